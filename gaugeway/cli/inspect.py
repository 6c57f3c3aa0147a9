"""`gaugeway inspect`: what the extractors find in a request, or what is stored of an exchange."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from gateway import config as configuration
from gateway.capture.factory import extractors_of
from gaugeway.cli.extraction_report import Inspection, InspectionError, inspect_request, inspect_sample, render
from gaugeway.cli.shared import fail, print_json, stored_options, with_store
from gaugeway.settings import ConfigError

_NOT_ASKED_FOR = "http://localhost"  # the configuration requires an upstream, but nothing is sent


@click.command()
@click.argument("what", metavar="REQUEST.json|EXCHANGE_ID")
@stored_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(what: str, config: Path | None, data_dir: Path, as_json: bool) -> None:  # noqa: FBT001 - a click flag
    """Show what the extractors find in a request: question, contexts, the extractor used, and why.

    REQUEST.json (- for standard input) is a request body; an object with `request` and optionally `response` and
    `route`; or an object with `path`, `headers` and `body`. Any other argument is the ID of a stored exchange.
    """
    try:
        is_file = what == "-" or Path(what).is_file()
        inspection = _of_file(what, config) if is_file else _of_exchange(what, config, data_dir)
    except ConfigError as error:
        fail(error)
    except (InspectionError, LookupError) as error:
        fail(f"{what}: {error.args[0]}")
    except (OSError, ValueError) as error:  # EngineError and RefusedError among them
        fail(f"{what}: {error}")
    if as_json:
        print_json(inspection)
    else:
        Console().print(render(inspection))


def _of_file(what: str, config: Path | None) -> Inspection:
    raw = sys.stdin.buffer.read() if what == "-" else Path(what).read_bytes()
    return inspect_request(raw, extractors_of(configuration.load(config, upstream=_NOT_ASKED_FOR).capture))


def _of_exchange(exchange_id: str, config: Path | None, data_dir: Path) -> Inspection:
    """Read a stored exchange. Raises LookupError when the exchange or the store does not exist."""
    if exchange_id.endswith(".json") or "/" in exchange_id:
        raise LookupError("no such file")
    loaded = configuration.load(config, upstream=_NOT_ASKED_FOR)
    if loaded.store.url is None and not (data_dir / "store.db").is_file():
        raise LookupError(f"neither a file nor a stored exchange: no store in {data_dir}")
    stored = with_store(loaded, data_dir, lambda store: store.sample(exchange_id))
    if stored is None:
        raise LookupError("neither a file nor the ID of a stored exchange")
    return inspect_sample(*stored)
