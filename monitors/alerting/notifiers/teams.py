"""Microsoft Teams notifier: an Adaptive Card to the webhook of a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gaugeway.records import Alert
from monitors.alerting.notifiers import GroupNotifier, Links
from monitors.alerting.notifiers.http import Address
from monitors.alerting.notifiers.message import facts, plain, shown_state, summary, title, worst

MAX_BYTES = 24_000  # internal bound: size of a message that we send
"""Of a message. A workflow answers 202 before Teams drops what has more than 28 KB, so it must never be sent."""
MAX_ALERTS, MAX_EXCHANGES = 10, 3  # internal bound: size of a message that we send
MAX_TEXT, MAX_FIELD, MAX_NOTE, MAX_LINK = 900, 200, 400, 500  # internal bound: size of a message that we send
"""Characters; half as many if one alert alone is too large, in a script of four bytes a character."""
_RETIRED = "webhook.office.com"
_COLOURS = {"firing": "Attention", "resolved": "Good", "unwatched": "Default"}


class TeamsNotifier(GroupNotifier):
    """Posts one card per group of alerts to `url`, the trigger "When a Teams webhook request is received"."""

    no_heartbeat = "every heartbeat would be a message"

    def __init__(self, *, url: str, timeout_s: float = 10.0) -> None:
        self._address = Address(url, what="teams notifier", timeout_s=timeout_s)
        if (urlsplit(url).hostname or "").endswith(_RETIRED):
            raise ValueError("url: Office 365 connectors are retired; create a workflow with a webhook in Teams")

    async def notify_all(self, alerts: Sequence[Alert]) -> None:
        await self._address.post(message(alerts, self.links))


def message(alerts: Sequence[Alert], links: Links) -> bytes:
    """Return the message with as many of the alerts as fit into `MAX_BYTES`, the first ones."""
    counts = range(min(MAX_ALERTS, len(alerts)), 0, -1)
    bodies = (_message(alerts, count, links, part=1.0) for count in counts)
    fitting = next((body for body in bodies if len(body) <= MAX_BYTES), None)
    return fitting or _message(alerts, 1, links, part=0.5)


def _message(alerts: Sequence[Alert], count: int, links: Links, *, part: float) -> bytes:
    """Return a message that shows the first `count` alerts, with a `part` of each text."""
    body = [_text(_run(title(alerts), 150, size="Large", weight="Bolder"))]
    for alert in alerts[:count]:
        body += _elements(alert, links, part)
    if len(alerts) > count:
        body.append(_text(_run(f"… and {len(alerts) - count} more", 100)))
    page = links.alert(alerts[0]) if len(alerts) == 1 else ""
    targets = ((page, "Open alert"), (links.runbook_url, "Runbook"))
    actions = [_open(url, name) for url, name in targets if _usable(url)]
    card = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
        "actions": actions,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return msgspec.json.encode({"type": "message", "attachments": [attachment]})


def _elements(alert: Alert, links: Links, part: float) -> list[dict[str, Any]]:
    state = shown_state(alert)
    said = _run(summary(alert), round(MAX_TEXT * part), color=_COLOURS[state], link=links.alert(alert))
    elements = [_text(said, separator=True)]
    if state == "firing":
        for name, value in facts(alert):
            elements.append(_text(_run(f"{name}:", 100, weight="Bolder"), _run(value, round(MAX_FIELD * part))))
    for exchange, note in worst(alert)[:MAX_EXCHANGES]:
        named = _run(exchange, 60, link=links.exchange(exchange))
        elements.append(_text(named, *([_run(note, round(MAX_NOTE * part))] if note else [])))
    return elements


def _text(*runs: dict[str, Any], separator: bool = False) -> dict[str, Any]:
    """Return a block of text runs with spaces between. Cards read Markdown in a TextBlock and a Fact, not in these."""
    spaced = [part for run in runs for part in (run, {"type": "TextRun", "text": " "})]
    return {"type": "RichTextBlock", "inlines": spaced[:-1]} | ({"separator": True} if separator else {})


def _run(text: str, most: int, *, link: str = "", **style: str) -> dict[str, Any]:
    opens = {"selectAction": _open(link)} if _usable(link) else {}
    return {"type": "TextRun", "text": plain(text, most) or "-", **style, **opens}


def _open(url: str, name: str = "Open") -> dict[str, Any]:
    return {"type": "Action.OpenUrl", "title": name, "url": url}


def _usable(link: str) -> bool:
    """Whether there is a link, and it is not so long that it would take the room of the text."""
    return 0 < len(link) <= MAX_LINK
