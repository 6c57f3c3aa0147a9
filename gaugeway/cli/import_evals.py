"""`gaugeway import`: data and graders of OpenAI's Evals and of promptfoo become a data set and metrics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gaugeway.cli.shared import FILE, map_option, mapped_fields, reported_errors, with_options
from gaugeway.settings import ConfigError
from monitors.offline.imports import openai_evals as evals
from monitors.offline.imports import promptfoo as promptfoo_files
from monitors.offline.imports import result
from monitors.offline.imports.result import Imported
from monitors.offline.reports import counted

INCOMPLETE = 1
_written = with_options(
    click.option("--out", type=FILE, help="Data set to write. [FILE.gaugeway.jsonl]"),
    click.option("--config", type=FILE, help="Configuration to write, with the metrics. [FILE.gaugeway.toml]"),
    map_option("Variable of a field; repeatable."),
    click.option("--force", is_flag=True, help="Overwrite files that exist."),
)


@click.group("import")
def import_() -> None:
    """Turn data and graders of another evaluation tool into a data set and metrics for `gaugeway evaluate`.

    Exit codes: 0 everything was imported, 1 written without what the output names, 2 bad input, nothing written.
    """


@import_.command("openai-evals")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@_written
def openai_evals(files: tuple[Path, ...], **options: Any) -> None:
    """Import one eval of OpenAI: eval object, runs, output items, data source JSONL; or of openai/evals."""
    with reported_errors():
        imported = evals.load(files, mapped_fields(options["mapped"]))
        done = _write(imported, files[0], options)
    sys.exit(done)


@import_.command()
@click.argument("file", type=FILE)
@_written
def promptfoo(file: Path, **options: Any) -> None:
    """Import a promptfoo configuration, or the results of `promptfoo eval -o results.json`."""
    with reported_errors():
        imported = promptfoo_files.load(file, mapped_fields(options["mapped"]))
        done = _write(imported, file, options)
    sys.exit(done)


def _write(imported: Imported, source: Path, options: dict[str, Any]) -> int:
    """Write what was imported, print what was not, and return the exit code."""
    result.check(imported)
    out = options["out"] or Path(f"{source.stem}.gaugeway.jsonl")
    config = options["config"] or Path(f"{source.stem}.gaugeway.toml")
    wanted = [(out, imported.records), (config, imported.metrics)]
    taken = [path for path, content in wanted if content and path.exists() and not options["force"]]
    if taken:
        raise ConfigError([f"{path}: exists already; --force overwrites it" for path in taken])
    if imported.records:
        result.write(out, result.data_set(imported))
        click.echo(f"wrote {out}: {counted(len(imported.records), 'record')}")
    if imported.metrics:
        result.write(config, result.config(imported, str(source)))
        click.echo(f"wrote {config}: {', '.join(imported.metrics)}")
    for text, times in imported.notes.items():
        click.echo(f"note: {text}" + (f" ({times} times)" if times > 1 else ""))
    for line in imported.unmapped_lines():
        click.echo(line)
    if imported.unmapped:
        click.echo(f"{sum(imported.unmapped.values())} not imported")
    if imported.records and imported.metrics:
        click.echo(f"next: gaugeway evaluate {out} --config {config} --metrics {','.join(imported.metrics)}")
    return INCOMPLETE if imported.unmapped else 0
