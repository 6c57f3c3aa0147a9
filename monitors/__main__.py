"""`python -m monitors`: the evaluation plane alone, with the operator's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaugeway.cli.plane import monitors

if TYPE_CHECKING:
    from monitors.app import PageFactory


def _page() -> PageFactory:
    from dashboards.web.app import operator_page  # noqa: PLC0415 - `--help` need not load it

    return operator_page


monitors(prog_name="python -m monitors", obj=_page)
