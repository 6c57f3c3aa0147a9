"""Audited capture: exchanges drawn for the judge to mark again, and how often its marks agree with the capture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gaugeway.records import Sample
from gaugeway.sampling import position
from gaugeway.settings.shared import MAX_AUDITS
from monitors.analysis.prompt_text import pieces, unplaced

STATE = "audits/capture"
"""The name under which the audits are in the state store."""
DAY_S = 86_400.0
MAX_KEPT_S = 30 * DAY_S
"""How long an audit counts."""
MAX_CHARACTERS = 32_768
"""Longest request that is audited."""
MAX_DIFFERING = 10
"""Exchanges of one app that are named because the judge differs."""

Result: TypeAlias = Literal["agrees", "kind", "question", "passages", "unusable", "failed"]
"""The judge agrees, or differs in one of three things; its marks are not in the request; it did not answer."""
AGREES: Result = "agrees"
NOT_COMPARED: tuple[Result, ...] = ("unusable", "failed")

Span: TypeAlias = tuple[int, int]
Draw: TypeAlias = tuple[int, str]
"""The hash of an exchange's id, and the id."""
Draws: TypeAlias = dict[int, dict[str, Draw]]
"""The draw of each app, by the Unix second in which a stretch of time began."""

_SALT = "capture_audit"


class Audit(msgspec.Struct, frozen=True, array_like=True):
    """The result for one exchange; `at` is the end of the stretch of time of which it was drawn."""

    app: str
    sample_id: str
    at: float
    result: Result


class Audits(msgspec.Struct, frozen=True, kw_only=True):
    """All audits, the oldest first; stretches of time up to `until` are done."""

    until: float = 0.0
    audits: tuple[Audit, ...] = ()


class Request(NamedTuple):
    """The text of a request put together from its parts, and where the captured question and passages stand in it."""

    text: str
    questions: list[Span]
    passages: list[Span]


def request_of(sample: Sample) -> Request | None:
    """Return the request of an exchange; None where the capture cannot be audited.

    That is an exchange without an answer or whose passages did not come in the prompt's text (sent separately, from
    tools, from the provider), one with hashes instead of texts, and one of which not the whole text was kept.
    """
    capture = sample.capture
    if capture is None or sample.transcript or sample.skip_reason not in (None, "auxiliary"):
        return None
    tools = sample.tool_checks is not None and sample.tool_checks.results > 0
    elsewhere = capture.source != sample.context_source or unplaced(capture.parts, len(sample.contexts))
    if capture.cut or capture.shortened or tools or elsewhere:
        return None
    text, spans, before = "", {"question": list[Span](), "passage": list[Span]()}, None
    shown = pieces(capture, sample.question, sample.contexts, sample.context_source)
    for part, piece in zip(capture.parts, shown, strict=True):
        if piece.text is None or part.role == "tool" or len(text) + len(piece.text) > MAX_CHARACTERS:
            return None
        # Only white space is in no part.
        apart = before is not None and (part.message != before.message or part.start > before.end)
        text += "\n" if apart else ""
        if piece.kind in spans:
            spans[piece.kind].append((len(text), len(text) + len(piece.text)))
        text, before = text + piece.text, part
    asked = bool((sample.question or "").strip())
    return Request(text, spans["question"], spans["passage"]) if text and asked == bool(spans["question"]) else None


def keep_draw(draws: Draws, start: int, app: str, draw: Draw, most: int) -> None:
    """Keep the draw with the lowest hash of each app, and of the apps of a stretch of time the `most` lowest."""
    apps = draws.setdefault(start, {})
    apps[app] = min(draw, apps.get(app, draw))
    if len(apps) > most:
        del apps[max(apps, key=lambda name: apps[name])]


def draw_from(draws: Draws, sample: Sample, per_day: int, now: float) -> None:
    """Draw this exchange for the current one of `per_day` parts of the day, if none of its app has a lower hash."""
    every_s = DAY_S / per_day
    start, draw = int(now // every_s * every_s), (position(sample.id, _SALT), sample.id)
    known = draws.get(start, {}).get(sample.app)
    if (known is None or draw < known) and request_of(sample) is not None:
        keep_draw(draws, start, sample.app, draw, MAX_AUDITS // per_day)


def audits_in(states: Mapping[str, bytes]) -> Audits:
    """Read the audits; none where they cannot be read."""
    try:
        return msgspec.json.decode(states.get(STATE) or b"{}", type=Audits)
    except msgspec.DecodeError:
        return Audits()


def by_app(audits: Iterable[Audit], now: float) -> dict[str, list[Audit]]:
    """Return the audits that count, by app: marks that are not in the request show nothing."""
    found: dict[str, list[Audit]] = {}
    for audit in audits:
        if audit.result not in NOT_COMPARED and audit.at > now - MAX_KEPT_S:
            found.setdefault(audit.app, []).append(audit)
    return found
