"""Generates the dashboard JSON files: run `python -m tools.grafana.build` after every change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.grafana import app as drilldown
from tools.grafana import pipeline, quality, traffic

FOLDER = Path(__file__).parents[2] / "dashboards/grafana"
BOARDS = {
    "quality.json": quality.board,
    "app.json": drilldown.board,
    "traffic.json": traffic.board,
    "pipeline.json": pipeline.board,
}


def rendered() -> Mapping[str, str]:
    """File name -> JSON text of each dashboard."""
    return {name: json.dumps(board().build(), cls=JSONEncoder, indent=2) + "\n" for name, board in BOARDS.items()}


if __name__ == "__main__":
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, "utf-8")
