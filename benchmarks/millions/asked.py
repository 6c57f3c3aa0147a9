"""What is asked of the operator's page and of the API: by name, the address."""

from __future__ import annotations

from urllib.parse import urlencode

from benchmarks.millions.fill import RARE

_MONTH_S = 30 * 86_400
_EXPLORE: dict[str, dict[str, str]] = {
    "": {},
    "an app": {"app": "checkout"},
    "a metric": {"metric": "faithfulness"},
    "a model": {"model": "chat-2"},
    "a prompt": {"prompt": "9f3b21c1"},
    "a tag": {"tag": "tenant=tenant-7"},
    "a tag nobody has": {"tag": "tenant=nobody"},
    "failed": {"outcome": "failed"},
    "a range of scores": {"least": "0.2", "most": "0.3"},
    "a range of a metric": {"metric": "faithfulness", "most": "0.2"},
    "lowest": {"metric": "faithfulness", "order": "lowest"},
    "highest": {"metric": "hallucination", "order": "highest"},
    "lowest of an app": {"metric": "faithfulness", "order": "lowest", "app": "search"},
    "lowest of a tag": {"metric": "faithfulness", "order": "lowest", "tag": "tenant=tenant-7"},
    "a text": {"text": "warranty"},
    "a rare text": {"text": RARE},
    "a text nobody wrote": {"text": "qqqq"},
}
_COMPARE = {"by": "model", "a": "chat-1", "b": "chat-2"}


def pages(exchange: str, fingerprint: str) -> dict[str, str]:
    """The operator's page: every view."""
    found = {
        "overview": "/",
        "overview by model": "/?by=model",
        "overview by prompt": "/?by=prompt",
        "overview by tag": "/?by=tag:tenant",
        "alerts": "/alerts",
        "alert": f"/alerts/{fingerprint}",
        "exchange": f"/exchanges/{exchange}",
    }
    for since in ("24h", "30d"):
        for name, fields in _EXPLORE.items():
            found[f"explore {since}{', ' if name else ''}{name}"] = _address("/explore", {**fields, "since": since})
    for since in ("7d", "30d"):
        found[f"compare {since}"] = _address("/compare", {**_COMPARE, "since": since})
        found[f"compare {since}, an app"] = _address("/compare", {**_COMPARE, "since": since, "app": "search"})
        found[f"compare {since}, a version nobody has"] = _address("/compare", {**_COMPARE, "b": "x", "since": since})
    for since in ("1h", "24h", "7d", "30d"):
        about = {"metric": "faithfulness", "since": since}
        found[f"app {since}"] = _address("/apps/search", about)
        found[f"app {since}, by a tag"] = _address("/apps/search", {**about, "by": "tag:tenant"})
    for since in ("24h", "30d"):
        for group in ("topic", "source", "session", "prompt"):
            about = {"metric": "faithfulness", "app": "search", "since": since, "group": group}
            found[f"explore {since} by {group}"] = _address("/explore", about)
        found[f"sources {since}"] = _address("/sources", {"app": "search", "since": since})
        found[f"topics {since}"] = _address("/topics", {"app": "search", "since": since})
        found[f"pipeline {since}"] = _address("/pipeline", {"since": since})
    found["exchange, preview"] = f"/exchanges/{exchange}/preview"
    found["review of a metric"] = "/review?metric=faithfulness"
    found["find an id"] = f"/find?q={exchange}"
    found["find an id nobody has"] = "/find?q=nobody-has-this"
    others = {
        name: f"/{name}" for name in ("conversations", "prompts", "review", "settings", "welcome", "runbook", "login")
    }
    return {**found, "compare": "/compare", **others}


def api(exchange: str) -> dict[str, str]:
    """Every GET of the API."""
    named = ("status", "metrics", "alerts", "silences", "dead-letters", "versions")
    found = {f"/api/{name}": f"/api/{name}" for name in named}
    for since in (86_400, _MONTH_S):
        words = f"{since // 86_400} d"
        for order in ("newest", "lowest", "highest"):
            about = {"order": order, "since_s": str(since)}
            found[f"/api/exchanges {order}, {words}"] = _address("/api/exchanges", about)
            about |= {"metric": "faithfulness"}
            found[f"/api/exchanges {order} of a metric, {words}"] = _address("/api/exchanges", about)
            about |= {"app": "search"}
            found[f"/api/exchanges {order} of an app's metric, {words}"] = _address("/api/exchanges", about)
    found["/api/exchanges/{id}"] = f"/api/exchanges/{exchange}"
    for since in (7 * 86_400, _MONTH_S):
        words, about = f"{since // 86_400} d", {**_COMPARE, "since_s": str(since)}
        found[f"/api/compare {words}"] = _address("/api/compare", about)
        found[f"/api/compare of an app's metric, {words}"] = _address(
            "/api/compare", {**about, "app": "search", "metric": "faithfulness"}
        )
    for since in ("1h", "24h", "7d", "30d"):
        about = {"app": "search", "metric": "faithfulness", "since": since}
        found[f"/api/series {since}"] = _address("/api/series", about)
        for by in ("model", "tag:tenant"):
            found[f"/api/series {since}, by {by}"] = _address("/api/series", {**about, "by": by})
    found["/api/labels"] = "/api/labels"
    found["/api/labels of an app"] = "/api/labels?app=search"
    found["/api/labels of a metric"] = "/api/labels?metric=faithfulness"
    found["/api/labels of a metric, 1 d"] = "/api/labels?metric=faithfulness&since_s=86400"
    return {**found, "/metrics": "/metrics", "/healthz": "/healthz"}


def _address(path: str, fields: dict[str, str]) -> str:
    return f"{path}?{urlencode(fields)}"
