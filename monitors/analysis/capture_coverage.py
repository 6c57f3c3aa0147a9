"""Capture coverage: the share of answered exchanges with question and passages found, by app."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gaugeway.records import Sample, grouped
from gaugeway.runtime.label_cap import OVERFLOW
from gaugeway.sampling import position
from gaugeway.settings.shared import MAX_AUDITS
from gaugeway.storage.stores import StateStore
from monitors.analysis.prompt_text import pieces, unplaced
from monitors.statistics.agreement import wilson

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
    return grouped(
        (audit.app, audit) for audit in audits if audit.result not in NOT_COMPARED and audit.at > now - MAX_KEPT_S
    )


Found: TypeAlias = Literal["both", "question", "passages", "nothing"]
FOUND: tuple[Found, ...] = ("both", "question", "passages", "nothing")
LEAST_ANSWERS = 20
"""With fewer answers in the window, those of a day are used."""
MAX_APPS = 200
"""Apps counted separately; one with few answers is merged into `_other` to make room for a new one."""
PREFIX = "capture/"
DAY_S = 86_400.0
_HOUR_S = 3600.0
_PARTS = 12
_log = logging.getLogger("gaugeway")

Buckets: TypeAlias = dict[int, list[int]]
"""Counts in the order of `FOUND`, by bucket number since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Capture coverage of one app over the last `window_s` seconds.

    `captured` answers have question and passages; `ratio` is their share, with its 95 % interval. A recognised
    retrieval that returned nothing counts as passages found.

    The judge marked `audited` exchanges of the last 30 days again, and in `agreed` of them as they had been captured:
    `audited_ratio` is that share, with its 95 % interval. `differing` are the ids of the latest others, newest first.
    """

    app: str
    window_s: float
    answers: int
    captured: int
    without_question: int
    without_passages: int
    ratio: float
    ci_low: float
    ci_high: float
    audited: int = 0
    agreed: int = 0
    audited_ratio: float | None = None
    audited_low: float | None = None
    audited_high: float | None = None
    differing: tuple[str, ...] = ()


def found_in(sample: Sample) -> Found | None:
    """Return what was found in an exchange; None for one that did not answer a user, and for a whole conversation.

    >>> found_in(Sample(id="x", started_at=0.0, question="How long?", context_source="tools"))
    'both'
    """
    if sample.skip_reason is not None or sample.transcript:
        return None
    question = bool((sample.question or "").strip())
    if sample.context_source != "none":
        return "both" if question else "passages"
    return "question" if question else "nothing"


class Tally(msgspec.Struct, kw_only=True):
    """The counts of one process by app, in buckets of `window_s`/12 and of an hour; `at` is when it was saved.

    `drawn` are the exchanges that this process drew for an audit.
    """

    window_s: float
    at: float = 0.0
    apps: dict[str, tuple[Buckets, Buckets]] = {}
    drawn: Draws = {}

    def add(self, sample: Sample, before: Sample | None, now: float) -> None:
        """Count a sample; with `before`, its earlier version that was already counted, only the difference.

        Counts here may become negative if another process counted `before`: only the sum over processes matters.
        """
        found, earlier = found_in(sample), found_in(before) if before is not None else None
        if found is None or found == earlier:
            return
        at = min(sample.started_at, now)
        for buckets, (size, span) in zip(self._of(sample.app), self._sizes(), strict=True):
            if at >= now - span - size:
                counts = buckets.setdefault(int(at // size), [0] * len(FOUND))
                counts[FOUND.index(found)] += 1
                if earlier is not None:
                    counts[FOUND.index(earlier)] -= 1

    def take_in(self, other: Tally) -> None:
        """Add the counts of an earlier process; with another window only the hourly ones."""
        for app, theirs in other.apps.items():
            mine = self._of(app)
            if other.window_s == self.window_s:
                _add(mine[0], theirs[0])
            _add(mine[1], theirs[1])
        _merge(self.drawn, other.drawn)

    def forget(self, now: float) -> None:
        """Drop buckets older than their span."""
        for app in list(self.apps):
            for buckets, (size, span) in zip(self.apps[app], self._sizes(), strict=True):
                for number in [bucket for bucket in buckets if bucket < int((now - span) // size)]:
                    del buckets[number]
            if not any(self.apps[app]):
                del self.apps[app]
        self.drawn = {start: apps for start, apps in self.drawn.items() if start > now - 2 * DAY_S}

    def counts(self, app: str, now: float, *, day: bool) -> list[int]:
        """Return an app's counts of the window, or of the last day."""
        size, span = self._sizes()[day]
        some = [counts for number, counts in self.apps[app][day].items() if number >= int((now - span) // size)]
        return [sum(column) for column in zip(*some, strict=True)] if some else [0] * len(FOUND)

    def _sizes(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return (self.window_s / _PARTS, self.window_s), (_HOUR_S, DAY_S)

    def _of(self, app: str) -> tuple[Buckets, Buckets]:
        if app not in self.apps and len(self.apps) >= MAX_APPS and app != OVERFLOW and not self._make_room():
            app = OVERFLOW
        return self.apps.setdefault(app, ({}, {}))

    def _make_room(self) -> bool:
        """Merge the app with the fewest answers into `_other`; return False if every app has many."""
        answers = {app: sum(map(sum, hours.values())) for app, (_, hours) in self.apps.items() if app != OVERFLOW}
        rarest = min(answers, key=lambda app: answers[app])
        if answers[rarest] >= LEAST_ANSWERS:
            return False
        gone = self.apps.pop(rarest)
        for buckets, theirs in zip(self.apps.setdefault(OVERFLOW, ({}, {})), gone, strict=True):
            _add(buckets, theirs)
        return True


def _add(mine: Buckets, theirs: Buckets) -> None:
    for number, counts in theirs.items():
        known = mine.get(number) or [0] * len(FOUND)
        mine[number] = [count + other for count, other in zip(known, counts, strict=True)]


def _merge(draws: Draws, others: Draws) -> None:
    for start, apps in others.items():
        for app, draw in apps.items():
            keep_draw(draws, start, app, draw, MAX_AUDITS)


def summarise(tallies: Iterable[Tally], window_s: float, now: float) -> list[Captured]:
    """Return the coverage of the apps with the most answers over all processes, sorted by app."""
    sums: dict[tuple[str, bool], list[int]] = {}
    for tally in tallies:
        for app in tally.apps:
            for day in (False, True):
                if day or tally.window_s == window_s:
                    known = sums.get((app, day), [0] * len(FOUND))
                    counts = tally.counts(app, now, day=day)
                    sums[app, day] = [count + other for count, other in zip(known, counts, strict=True)]
    found = []
    for app in {app for app, _ in sums}:
        counts, span = sums.get((app, False), [0] * len(FOUND)), window_s
        if sum(counts) < LEAST_ANSWERS and window_s < DAY_S:
            counts, span = sums[app, True], DAY_S
        if (app_coverage := _captured(app, counts, span)) is not None:
            found.append(app_coverage)
    return sorted(
        heapq.nlargest(MAX_APPS, found, key=lambda coverage: coverage.answers), key=lambda coverage: coverage.app
    )


def _captured(app: str, counts: Sequence[int], window_s: float) -> Captured | None:
    both, question, passages, nothing = (max(0, count) for count in counts)
    answers = both + question + passages + nothing
    if not answers:
        return None
    low, high = wilson(both, answers)
    return Captured(
        app=app,
        window_s=window_s,
        answers=answers,
        captured=both,
        without_question=passages + nothing,
        without_passages=question + nothing,
        ratio=both / answers,
        ci_low=low,
        ci_high=high,
    )


def _audited(captured: Captured, audits: Sequence[Audit]) -> Captured:
    """Add what audits show."""
    if not audits:
        return captured
    agreed = sum(audit.result == AGREES for audit in audits)
    low, high = wilson(agreed, len(audits))
    return replace(
        captured,
        audited=len(audits),
        agreed=agreed,
        audited_ratio=agreed / len(audits),
        audited_low=low,
        audited_high=high,
        differing=tuple(audit.sample_id for audit in reversed(audits) if audit.result != AGREES)[:MAX_DIFFERING],
    )


@dataclass(eq=False)
class CaptureCoverage:
    """Counts capture coverage; in the state store it survives restarts and is summed over processes.

    `replica` names this process. Without a state store only this process is counted. `clock` returns Unix time. Of each
    app, `audits_per_day` exchanges are drawn for an audit.
    """

    state_store: StateStore | None
    replica: str
    window_s: float
    clock: Callable[[], float] = time.time
    _: KW_ONLY
    audits_per_day: int = 0

    def __post_init__(self) -> None:
        self._key = PREFIX + self.replica
        self._own = Tally(window_s=self.window_s)
        self._others: Sequence[Tally] = ()
        self._audits = Audits()
        self._resumed = False
        self._warned = False

    def add(self, sample: Sample, before: Sample | None = None) -> None:
        """Count a stored sample; `before` is its first version if it was completed later."""
        self._own.add(sample, before, self.clock())
        if before is None and self.audits_per_day:
            draw_from(self._own.drawn, sample, self.audits_per_day, self.clock())

    def captured(self) -> Sequence[Captured]:
        """Return the coverage of each app, as known to this process."""
        now = self.clock()
        self._own.forget(now)
        audits = by_app(self._audits.audits, now)
        every = summarise([self._own, *self._others], self.window_s, now)
        return [_audited(coverage, audits.get(coverage.app, ())) for coverage in every]

    def drawn(self) -> Draws:
        """Return the exchanges that were drawn for an audit, by all processes."""
        draws: Draws = {}
        for tally in (self._own, *self._others):
            _merge(draws, tally.drawn)
        return draws

    async def tick(self) -> None:
        """Load the counts of other processes, then save. Errors of the state store propagate; the last counts stay."""
        if self.state_store is None:
            return
        now, states = self.clock(), await self.state_store.load()
        tallies = {key: tally for key, state in states.items() if (tally := self._read(key, state)) is not None}
        self._audits = audits_in(states)
        own = tallies.pop(self._key, None)
        if own is not None and not self._resumed:
            self._own.take_in(own)
        self._resumed = True
        gone = [key for key, tally in tallies.items() if tally.at < now - DAY_S - _HOUR_S]
        self._others = [tally for key, tally in tallies.items() if key not in gone]
        self._own.forget(now)
        changes = dict.fromkeys(gone, b"")  # replica names change with every deployment
        if own is None or (self._own.apps, self._own.drawn) != (own.apps, own.drawn):
            self._own.at = now
            changes[self._key] = msgspec.json.encode(self._own)
        if changes:
            await self.state_store.save(changes)

    def _read(self, key: str, state: bytes) -> Tally | None:
        if not key.startswith(PREFIX) or not state:
            return None
        try:
            return msgspec.json.decode(state, type=Tally)
        except msgspec.DecodeError:
            if not self._warned:
                _log.warning("state store: ignoring unreadable %s", key)
            self._warned = True
            return None
