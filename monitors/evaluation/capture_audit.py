"""Capture audits: the judge marks some exchanges of each app again, and its marks are compared with the capture."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from gaugeway.records import Sample
from gaugeway.runtime.tasks import repeat
from gaugeway.settings.shared import MAX_AUDITS, Config
from gaugeway.storage.stores import StateStore, Store
from monitors.analysis.capture_coverage import (
    DAY_S,
    MAX_KEPT_S,
    STATE,
    Audit,
    Audits,
    CaptureCoverage,
    Draws,
    Request,
    Result,
    Span,
    audits_in,
    request_of,
)
from monitors.evaluation.models import JudgeSetup
from monitors.evaluation.prompt_marking import span_of, spans_of
from monitors.exporters.instruments import Instruments
from monitors.judges import SPEND, Judge, JudgeError, Spend
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import CaptureMarks, PassageMarks

CAPTURE_AUDIT = "capture_audit"
"""The prompt's task, and the metric name under which the judge's cost is shown."""
AGREEMENT = 0.9
"""Share of the marked and the captured characters together that both have, from which on they agree."""
MAX_PLACES = 20
"""Places of a marked question that are compared."""
EVERY_S = 60.0
SETTLED_S = 120.0
"""After a part of the day: until then every process has saved what it drew."""


class CaptureAudits:
    """Audits the exchanges drawn in each of `per_day` parts of the day, once that is over; only the leader calls `run`.

    `allowed` says whether the judge may be called now; until then the draws of the last day wait. An exchange is
    audited at most once: a process that ends in between leaves the rest of its part of the day out. `on_result` gets
    each result, `on_error` is called when the store fails. `clock` gives Unix time.
    """

    def __init__(
        self,
        judge: Judge,
        store: Store,
        state_store: StateStore,
        drawn: Callable[[], Draws],
        *,
        per_day: int,
        allowed: Callable[[], bool] = lambda: True,
        on_result: Callable[[Result], None] = lambda _: None,
        on_error: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._judge = judge
        self._store = store
        self._state_store = state_store
        self._drawn = drawn
        self._per_day = per_day
        self._allowed = allowed
        self._on_result = on_result
        self._on_error = on_error
        self._clock = clock
        self._template = prompting.load(CAPTURE_AUDIT)

    async def run(self) -> None:
        """Audit until cancelled."""
        await repeat(EVERY_S, self.tick, self._on_error)

    async def tick(self) -> None:
        """Audit what was drawn in the parts of the day that are over. Raises what the store raises."""
        now, part_s = self._clock(), DAY_S / self._per_day
        draws, state = self._drawn(), None
        for start in sorted(draws):
            end = start + part_s
            if not now - DAY_S < end + SETTLED_S <= now or not self._allowed():
                continue
            state = state or audits_in(await self._state_store.load())
            if end <= state.until:
                continue
            lowest = sorted(draws[start].values())[: MAX_AUDITS // self._per_day]
            state = await self._save(end, state.audits)  # first: a crash must not pay for an audit twice
            for _, sample_id in lowest:
                if (audit := await self._audit(sample_id, end)) is not None:
                    state = await self._save(end, (*state.audits, audit))

    async def _save(self, until: float, audits: Iterable[Audit]) -> Audits:
        kept = tuple(audit for audit in audits if audit.at > until - MAX_KEPT_S)
        state = Audits(until=until, audits=kept)
        await self._state_store.save({STATE: msgspec.json.encode(state)})
        return state

    async def _audit(self, sample_id: str, at: float) -> Audit | None:
        """Audit an exchange; None if it was deleted, or what came later shows that its capture cannot be audited."""
        stored = await self._store.sample(sample_id)
        request = None if stored is None else request_of(stored[0])
        if stored is None or request is None:
            return None
        sample = stored[0]
        token = SPEND.set(Spend(app=sample.app, metric=CAPTURE_AUDIT))
        try:
            marks = await self._judge.ask(self._template.fill([Datum("request", request.text)]), CaptureMarks)
            result = compare(sample, request, marks)
        except JudgeError:
            result = "failed"
        finally:
            SPEND.reset(token)
        self._on_result(result)
        return Audit(sample.app, sample.id, at, result)


def compare(sample: Sample, request: Request, marks: CaptureMarks) -> Result:
    """Compare the judge's marks with the capture; of an auxiliary call only the kind, as nothing else is used of it."""
    text, auxiliary = request.text, sample.skip_reason is not None
    passages, questions = spans_of(text, marks.passages), _places(text, marks.question)
    if passages is None or questions is None:
        return "unusable"
    if auxiliary != (marks.kind == "auxiliary"):
        return "kind"
    if auxiliary:
        return "agrees"
    if not _agree(text, request.passages, passages):
        return "passages"
    same = any(_agree(text, [question], [other]) for question in request.questions for other in questions)
    return "agrees" if same or not (request.questions or questions) else "question"


def _places(text: str, marks: PassageMarks) -> list[Span] | None:
    """Return where the marked stretch stands, which may be repeated; None if it is nowhere."""
    if not (marks.begins.strip() or marks.ends.strip()):
        return []
    found: list[Span] = []
    while len(found) < MAX_PLACES and (span := span_of(text, marks, found[-1][0] + 1 if found else 0)) is not None:
        found.append(span)
    return found or None


def _agree(text: str, spans: Iterable[Span], others: Iterable[Span]) -> bool:
    """Whether two sets of spans cover the same text, white space aside."""
    ours, theirs = _covered(text, spans), _covered(text, others)
    return len(ours & theirs) >= AGREEMENT * len(ours | theirs)


def _covered(text: str, spans: Iterable[Span]) -> set[int]:
    return {place for start, end in spans for place in range(start, end) if not text[place].isspace()}


def audits_per_day(config: Config, judging: JudgeSetup | None) -> int:
    """Return how many exchanges of an app are audited; 0 without a judge, with content off, or when it is not asked."""
    capture = config.capture
    return capture.audits_per_day if judging is not None and capture.ask_judge and capture.content else 0


def open_audits(
    judging: JudgeSetup | None,
    per_day: int,
    coverage: CaptureCoverage,
    stores: tuple[Store, StateStore | None],
    instruments: Instruments,
) -> CaptureAudits | None:
    """Build the audits; None if there are none."""
    store, state_store = stores
    if judging is None or state_store is None or not per_day:
        return None
    return CaptureAudits(
        judging.judge,
        store,
        state_store,
        coverage.drawn,
        per_day=per_day,
        allowed=judging.is_available,
        on_result=lambda result: instruments.capture_audits.labels(result).inc(),
        on_error=lambda: instruments.worker_errors.labels(CAPTURE_AUDIT + "s").inc(),
    )
