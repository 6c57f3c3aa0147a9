"""The texts of the page that stand in no template (`texts.toml`)."""

from __future__ import annotations

from typing import Any

from gaugeway.data_files import table

TEXTS: dict[str, Any] = table("dashboards.web", "texts.toml")
