"""`gaugeway dataset` keeps data sets of captured exchanges; `gaugeway import` makes one of another tool's evals."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gaugeway.cli import shared
from gaugeway.cli.shared import FILE, map_option, mapped_fields, reported_errors, stored_options, with_options
from gaugeway.runtime import audit
from gaugeway.settings import ConfigError
from gaugeway.settings.loading import load
from monitors.alerting.engine import saved_alert
from monitors.analysis import captured, datasets
from monitors.analysis.datasets import Added, Datasets, open_datasets
from monitors.offline.imports import exports, result
from monitors.offline.imports import openai_evals as evals
from monitors.offline.imports import promptfoo as promptfoo_files
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
    """Turn data and graders of another tool into a data set and metrics for `gaugeway evaluate`.

    Exit codes: 0 everything was imported, 1 written without what the output names, 2 bad input, nothing written.
    """


@import_.command("openai-evals")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@_written
def openai_evals(files: tuple[Path, ...], **options: Any) -> None:
    """Import one eval of OpenAI: eval object, runs, output items, data source JSONL; or of openai/evals."""
    with reported_errors():
        done = _write(evals.load(files, mapped_fields(options["mapped"])), files, options)
    sys.exit(done)


@import_.command()
@click.argument("file", type=FILE)
@_written
def promptfoo(file: Path, **options: Any) -> None:
    """Import a promptfoo configuration, or the results of `promptfoo eval -o results.json`."""
    with reported_errors():
        done = _write(promptfoo_files.load(file, mapped_fields(options["mapped"])), (file,), options)
    sys.exit(done)


def _export_of(tool: str, help_text: str) -> None:
    """Add the command that imports the exports of a tool."""

    @import_.command(tool, help=help_text)
    @click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
    @_written
    def command(files: tuple[Path, ...], **options: Any) -> None:
        with reported_errors():
            done = _write(exports.load(tool, files, mapped_fields(options["mapped"])), files, options)
        sys.exit(done)


_export_of("langfuse", "Import items of a Langfuse data set, traces or observations: API pages, JSON, JSONL or CSV.")
_export_of("langsmith", "Import examples of a LangSmith data set, or runs: JSON, JSONL or CSV.")
_export_of("helicone", "Import requests of Helicone with their responses: JSONL of `@helicone/export --include-body`.")


def _write(imported: Imported, files: tuple[Path, ...], options: dict[str, Any]) -> int:
    """Write what was imported, print what was not, and return the exit code."""
    result.check(imported)
    source = files[0]
    out = options["out"] or Path(f"{source.stem}.gaugeway.jsonl")
    config = options["config"] or Path(f"{source.stem}.gaugeway.toml")
    wanted = [(out, imported.records), (config, imported.metrics)]
    existing = [path for path, content in wanted if content and path.exists()]
    if read := [path for path in existing if any(path.samefile(file) for file in {*files, *imported.read})]:
        raise ConfigError([f"{path}: is one of the files that are imported; write to another" for path in read])
    if existing and not options["force"]:
        raise ConfigError([f"{path}: exists already; --force overwrites it" for path in existing])
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
    elif imported.records:
        click.echo(f"next: gaugeway evaluate {out}")
    return INCOMPLETE if imported.unmapped else 0


@click.group()
def dataset() -> None:
    """Keep data sets of captured exchanges: every change is a version, which `evaluate --dataset NAME@3` scores."""


@dataset.command()
@click.argument("name")
@click.option("--exchange", "exchanges", multiple=True, metavar="ID", help="An exchange; repeatable.")
@click.option("--alert", metavar="ID", help="The worst answers since the onset of this alert (its fingerprint).")
@click.option("--labelled", is_flag=True, help="Answers with a score that people labelled or gave a reference for.")
@click.option("--app", help="Answers of this app. [all]")
@click.option("--metric", help="Answers with a score of this metric, the worst first.")
@click.option("--below", type=float, help="Only scores below this.")
@click.option("--above", type=float, help="Only scores above this.")
@shared.since_option("24h")
@click.option("--limit", type=click.IntRange(1, datasets.MAX_ADDED), default=datasets.WORST, help="Maximum to add.")
@stored_options
def add(name: str, config: Path | None, data_dir: Path, **options: Any) -> None:
    """Add captured exchanges: question, passages, answer, labels, reference and where they come from.

    A question that the data set has already is added only with a label or a reference that the row there lacks.
    """

    async def run(kept: Datasets) -> Added:
        now, alert = time.time(), options["alert"]
        async with contextlib.aclosing(shared.open_store(load(config), data_dir)) as store:
            options["alert"] = None if alert is None else await saved_alert(store, alert)
            about = {"since": captured.since(options["since"], now), "by": audit.whoami()}
            return await kept.add(store, name, options | about, now)

    counts = asdict(shared.ask_kept(open_datasets, config, data_dir, run))
    made = counts.pop("dataset")
    shared.record(data_dir, "dataset_add", dataset=name, version=str(made["version"]))
    said = ", ".join(f"{n} {words.replace('_', ' ')}" for words, n in counts.items())
    click.echo(f"{name}@{made['version']} ({made['hash']}): {counted(made['rows'], 'row')}; {said}")


@dataset.command("list")
@click.option("--app", help="Only those with rows of this app. [all]")
@stored_options
def list_datasets(config: Path | None, data_dir: Path, app: str | None) -> None:
    """List the data sets with their newest version."""
    rows = [("NAME", "VERSION", "HASH", "ROWS", "CHANGED", "APPS")]
    for made in shared.ask_kept(open_datasets, config, data_dir, lambda kept: kept.versions(app)):
        counts = (str(made.version), made.hash, str(made.rows))
        rows.append((made.name, *counts, shared.utc(made.changed_at), ", ".join(made.apps)))
    shared.print_table(rows, "no data sets")


@dataset.command()
@click.argument("name", metavar="NAME[@VERSION]")
@stored_options
def show(config: Path | None, data_dir: Path, name: str) -> None:
    """Show a data set with its rows, as JSON."""
    made, records = shared.ask_kept(open_datasets, config, data_dir, lambda kept: kept.read(name))
    shared.print_json(asdict(made) | {"records": records})


@dataset.command()
@click.argument("name", metavar="NAME[@VERSION]")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--format", "form", type=click.Choice(datasets.FORMATS), default="jsonl")
@stored_options
def export(config: Path | None, data_dir: Path, name: str, file: Path, form: str) -> None:
    """Write a data set: JSONL for `gaugeway evaluate`, or a file for another tool ("-": standard output)."""
    made, records = shared.ask_kept(open_datasets, config, data_dir, lambda kept: kept.read(name))
    with reported_errors(), click.open_file(str(file), "w", encoding="utf-8") as out:
        out.write(datasets.written(records, form))
    click.echo(f"{made.name}@{made.version} ({made.hash}): {counted(made.rows, 'row')} written", err=True)


@dataset.command()
@click.argument("name")
@click.option("--id", "ids", multiple=True, help="Only this row, from the next version on; repeatable. [all versions]")
@stored_options
def remove(config: Path | None, data_dir: Path, name: str, ids: tuple[str, ...]) -> None:
    """Remove rows, or a data set with all its versions."""
    if not shared.ask_kept(open_datasets, config, data_dir, lambda kept: kept.remove(name, ids, time.time())):
        shared.fail(f"{name} has no such row" if ids else f"there is no data set {name}")
    shared.record(data_dir, "dataset_remove", dataset=name)
    click.echo(f"removed {counted(len(ids), 'row')} of {name}" if ids else f"removed {name}")
