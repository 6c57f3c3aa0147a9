"""`gaugeway inspect`: what the extractors find in a request, or what is stored of an exchange."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from gateway.capture.factory import extractors_of
from gaugeway.cli.output import fail
from gaugeway.cli.store_options import stored_options
from gaugeway.settings import ConfigError

if TYPE_CHECKING:
    from gaugeway.cli.extraction_report import Inspection

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
    from rich.console import Console  # noqa: PLC0415 - `--help` need not load it

    from gaugeway.cli.extraction_report import InspectionError, render  # noqa: PLC0415

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
        click.echo(msgspec.json.format(msgspec.json.encode(inspection)).decode())
    else:
        Console().print(render(inspection))


def _of_file(what: str, config: Path | None) -> Inspection:
    from gateway import config as configuration  # noqa: PLC0415
    from gaugeway.cli.extraction_report import inspect_request  # noqa: PLC0415

    raw = sys.stdin.buffer.read() if what == "-" else Path(what).read_bytes()
    return inspect_request(raw, extractors_of(configuration.load(config, upstream=_NOT_ASKED_FOR).capture))


def _of_exchange(exchange_id: str, config: Path | None, data_dir: Path) -> Inspection:
    """Read a stored exchange. Raises LookupError when the exchange or the store does not exist."""
    from gateway import config as configuration  # noqa: PLC0415
    from gaugeway.cli.extraction_report import inspect_sample  # noqa: PLC0415
    from gaugeway.records import Evaluation, Sample  # noqa: PLC0415
    from gaugeway.settings.loading import store_url  # noqa: PLC0415
    from gaugeway.storage.stores import from_url  # noqa: PLC0415

    if exchange_id.endswith(".json") or "/" in exchange_id:
        raise LookupError("no such file")
    loaded = configuration.load(config, upstream=_NOT_ASKED_FOR)
    if loaded.store.url is None and not (data_dir / "store.db").is_file():
        raise LookupError(f"neither a file nor a stored exchange: no store in {data_dir}")

    async def read() -> tuple[Sample, Sequence[Evaluation]] | None:
        store = from_url(store_url(loaded, data_dir))
        try:
            return await store.sample(exchange_id)
        finally:
            await store.aclose()

    stored = asyncio.run(read())
    if stored is None:
        raise LookupError("neither a file nor the ID of a stored exchange")
    return inspect_sample(*stored)
