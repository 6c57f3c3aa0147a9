"""Slack notifier: an incoming webhook, or a bot token with a channel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from gaugeway.records import Alert
from monitors.alerting.notifiers import GroupNotifier, Links, NotDeliveredError
from monitors.alerting.notifiers.http import Address
from monitors.alerting.notifiers.message import facts, shown_state, summary, title, worst

POST_MESSAGE = "https://slack.com/api/chat.postMessage"
MAX_ALERTS = 10  # internal bound: size of a message that we send
MAX_TEXT, MAX_FIELD, MAX_NOTE, MAX_FIELDS = 900, 200, 150, 10  # internal bound: size of a message that we send
"""Below Slack's limits per text (3000, 2000): all blocks of a message share a limit of about 13,000."""
MAX_NOTE_OF_FEW, FEW = 600, 3  # internal bound: size of a message that we send
"""Longer notes if the message has few alerts."""
MAX_EXCHANGES = 3  # internal bound: size of a message that we send
MAX_LINK = 300  # internal bound: size of a message that we send
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_COLOURS = {"firing": ":red_circle:", "resolved": ":large_green_circle:", "unwatched": ":white_circle:"}


class _Answer(msgspec.Struct):
    ok: bool
    error: str = "unknown_error"


class SlackNotifier(GroupNotifier):
    """Posts one message per group of alerts: to an incoming webhook's `url`, or with `token` to a `channel`."""

    no_heartbeat = "every heartbeat would be a message"

    def __init__(
        self, *, url: str | None = None, token: str | None = None, channel: str | None = None, timeout_s: float = 10.0
    ) -> None:
        if token is None and url is None:
            raise ValueError("url: slack needs the url of an incoming webhook, or a token and a channel")
        if (token is None) != (channel is None):
            raise ValueError("channel: slack takes it with a token, and a token only with it")
        self._address = Address(url or POST_MESSAGE, what="slack notifier", timeout_s=timeout_s)
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._channel = {"channel": channel} if channel else {}

    async def notify_all(self, alerts: Sequence[Alert]) -> None:
        response = await self._address.post(self._channel | message(alerts, self.links), self._headers)
        if self._channel:  # chat.postMessage returns 200 for errors too
            try:
                answer = msgspec.json.decode(response.content, type=_Answer)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise NotDeliveredError(f"{self._address.origin}: the response is not Slack's") from None
            if not answer.ok:
                raise NotDeliveredError(f"{self._address.origin}: {answer.error[:100]}")


def message(alerts: Sequence[Alert], links: Links) -> dict[str, Any]:
    """Return the message: a heading, and for each alert its summary, numbers and worst exchanges."""
    shown = alerts[:MAX_ALERTS]
    blocks = [{"type": "header", "text": {"type": "plain_text", "text": _escaped(title(alerts), 150)}}]
    most = MAX_NOTE if len(shown) > FEW else MAX_NOTE_OF_FEW
    blocks += [block for alert in shown for block in _blocks(alert, links, most)]
    if len(alerts) > len(shown):
        blocks.append(_section(f"… and {len(alerts) - len(shown)} more"))
    blocks.append(_context(f"<{_url(links.runbook_url)}|Runbook>"))
    text = _escaped(title(alerts) + ": " + summary(alerts[0]), MAX_TEXT)
    return {"text": text, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _blocks(alert: Alert, links: Links, most: int) -> list[dict[str, Any]]:
    colour, page = _COLOURS[shown_state(alert)], links.alert(alert)
    link = f" <{_url(page)}|Open>" if page else ""
    fields = [_markup(f"*{name}*\n{_escaped(value, MAX_FIELD)}") for name, value in facts(alert)]
    blocks = [_section(f"{colour} {_escaped(summary(alert), MAX_TEXT)}{link}")]
    if fields and alert.state != "resolved":
        blocks[0]["fields"] = fields[:MAX_FIELDS]
    if found := [_exchange(sample_id, note, links, most) for sample_id, note in worst(alert)[:MAX_EXCHANGES]]:
        blocks.append(_context("Worst exchanges:\n" + "\n".join(found)))
    return blocks


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _markup(text)}


def _context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [_markup(text)]}


def _markup(text: str) -> dict[str, Any]:
    """Return a text block; `verbatim` keeps Slack from linking URLs, channels and mentions in it."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _exchange(exchange_id: str, note: str, links: Links, most: int) -> str:
    name = _escaped(exchange_id, 60)
    link = _url(links.exchange(exchange_id))
    linked = f"<{link}|{name}>" if 0 < len(link) <= MAX_LINK else name
    return f"{linked} {_escaped(' '.join(note.split()), most)}".rstrip()


def _url(link: str) -> str:
    """Escape a link for <...|...>, where a bar would end it."""
    return _escaped(link.replace("|", "%7C"), 2000)


def _escaped(text: str, most: int) -> str:
    """Truncate `text` to `most` characters, with Slack's three markup characters escaped.

    >>> _escaped("<!channel> & co", 100)
    '&lt;!channel&gt; &amp; co'
    >>> _escaped("<<<", 9)
    '&lt;&lt;…'
    """
    parts = [_MARKUP.get(character, character) for character in text]
    if sum(map(len, parts)) <= most:
        return "".join(parts)
    ends = accumulate(map(len, parts))
    return "".join(part for part, end in zip(parts, ends, strict=True) if end < most) + "…"
