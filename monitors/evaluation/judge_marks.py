"""Prompts that the judge marks: layouts that traffic alone does not reveal, and audits of what was captured."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias, TypeVar

import msgspec

from gaugeway.records import Sample
from gaugeway.settings.shared import MAX_AUDITS, Config
from gaugeway.storage.stores import StateStore, Store
from gaugeway.storage.templates import ASKED, StoredTemplate, Templates
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
from monitors.exporters.instruments import Instruments
from monitors.judges import SPEND, Judge, JudgeError, Spend
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import CaptureMarks, PassageMarks, PromptMarks

PROMPT_MARKS = "prompt_marks"
"""The prompt's task, and the metric name under which the judge's cost is shown."""
MARK_EVERY_S = 10.0
MAX_MARKED_PER_TICK = 5
APP_EVERY_S = 3_600.0
"""Time between two requests of one app that are sent to the judge."""
MARKED_PER_DAY = 50
"""Most requests of all apps that are sent to the judge in 24 hours: a bound on their cost."""
MAX_REQUEST_KEPT_S = 7 * 86_400.0
"""How long a marked request is kept, unless the store's retention is shorter."""
MAX_PASSAGES = 200
TIMES_ASKED = 3
"""Attempts for one request; the first useful answer ends them."""

Outcome: TypeAlias = Literal["marked", "unusable", "failed"]
Marks = TypeVar("Marks")

PERMANENT = frozenset({"refused", "bad_request", "context_overflow", "unreadable", "too_large"})


@dataclass(eq=False)
class PromptMarking:
    """Marks the requests that gateways put into the template store; only the leader calls `tick`.

    Of an app at most one request an hour is sent, and `per_day` of all apps in any 24 hours; the others wait. `allowed`
    says whether the judge may be called now (available, with budget left). `clock` gives Unix time.
    `on_outcome` gets "marked", "unusable" (marks that are not in the request) or "failed" (no answer).
    """

    templates: Templates
    judge: Judge
    _: KW_ONLY
    retention_s: float
    per_day: int = MARKED_PER_DAY
    allowed: Callable[[], bool] = lambda: True
    on_outcome: Callable[[Outcome], None] = lambda _: None
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._kept_s = min(MAX_REQUEST_KEPT_S, self.retention_s)
        self._revision: bytes | None = None
        self._requests: list[StoredTemplate] = []
        self._attempts: dict[tuple[str, str], int] = {}
        self._sent: deque[tuple[float, str]] = deque()
        """When a request of which app was sent first, of the last 24 hours."""

    async def tick(self) -> None:
        """Mark the waiting requests and drop the old ones. Raises what the store raises."""
        first = self._revision is None
        self._revision, every = await self.templates.changed(self._revision)
        if every is not None:
            self._requests = [template for template in every if template.state in ASKED]
            if first:  # after a restart: those of the process before
                marked = sorted(
                    (template.learned_at, template.app) for template in self._requests if template.state == "marked"
                )
                self._sent.extend(marked)
        oldest = self.clock() - self._kept_s
        if old := [template for template in self._requests if template.learned_at < oldest]:
            await self.templates.drop_templates(
                [(template.app, template.version) for template in old], learned_only=False
            )
        waiting = [
            template for template in self._requests if template.state == "asked" and template.learned_at >= oldest
        ]
        names = set(map(_name, waiting))
        self._attempts = {name: count for name, count in self._attempts.items() if name in names}
        if waiting and self.allowed():
            await asyncio.gather(*map(self._mark, self._due(waiting)))

    def _due(self, waiting: list[StoredTemplate]) -> list[StoredTemplate]:
        """Return the requests that may be sent now: those sent before may be sent again."""
        now = self.clock()
        while self._sent and self._sent[0][0] <= now - DAY_S:
            self._sent.popleft()
        recent = {app for at, app in self._sent if at > now - APP_EVERY_S}
        due: list[StoredTemplate] = []
        for request in waiting:
            if len(due) == MAX_MARKED_PER_TICK:
                break
            if _name(request) not in self._attempts:
                if request.app in recent or len(self._sent) >= self.per_day:
                    continue
                recent.add(request.app)
                self._sent.append((now, request.app))
            due.append(request)
        return due

    async def _mark(self, request: StoredTemplate) -> None:
        attempts = self._attempts[_name(request)] = self._attempts.get(_name(request), 0) + 1
        text = visible("".join(request.literals))
        try:
            answer = await marked(self.judge, PROMPT_MARKS, request.app, [Datum("request", text)], PromptMarks)
        except JudgeError as error:
            if error.kind not in PERMANENT and attempts < TIMES_ASKED:
                return
            self.on_outcome("failed")
            marks = None
        else:
            marks = located(text, answer)
            self.on_outcome("marked" if marks is not None else "unusable")
        split = {} if marks is None else {"question": marks[0], "passages": list(marks[1])}
        # `put_template` leaves what is there as it is: delete the request first.
        await self.templates.drop_templates([_name(request)], learned_only=False)
        await self.templates.put_template(msgspec.structs.replace(request, state="marked", split=split))


async def marked(judge: Judge, task: str, app: str, data: Sequence[Datum], schema: type[Marks]) -> Marks:
    """Return the judge's answer to a task that is no metric, whose cost is the app's. Raises JudgeError."""
    token = SPEND.set(Spend(app=app, metric=task))
    try:
        return await judge.ask(prompting.load(task).fill(data), schema)
    finally:
        SPEND.reset(token)


def visible(text: str) -> str:
    """Replace each role marker (characters 1 to 5) by a line break, so that every character keeps its offset."""
    return text.translate(dict.fromkeys(range(1, 6), "\n"))


def located(text: str, answer: PromptMarks) -> tuple[str, tuple[str, ...]] | None:
    r"""Return question and passages as they occur in the text, verbatim; None when one of them does not occur.

    >>> marks = PromptMarks("Why?", [PassageMarks("The lamp", "12 hours."), PassageMarks("Rain", "it.")])
    >>> located("1. The lamp lasts 12 hours.\n2. Rain harms it.\nWhy?", marks)
    ('Why?', ('The lamp lasts 12 hours.', 'Rain harms it.'))
    """
    question, spans = answer.question.strip(), spans_of(text, answer.passages)
    if not question or question not in text or not spans:
        return None
    return question, tuple(text[slice(*span)] for span in spans)


def spans_of(text: str, passages: Sequence[PassageMarks]) -> list[tuple[int, int]] | None:
    """Return where the passages stand in the text; None when one of them does not occur, or there are too many."""
    if len(passages) > MAX_PASSAGES:
        return None
    found: list[tuple[int, int]] = []
    position = 0
    for number, marks in enumerate(passages):
        following = passages[number + 1] if number + 1 < len(passages) else None
        if (span := span_of(text, marks, position, following)) is None:
            return None
        found.append(span)
        position = span[1]
    return found


def span_of(
    text: str, marks: PassageMarks, position: int, following: PassageMarks | None = None
) -> tuple[int, int] | None:
    """Return where a passage stands: up to the last place of its last words before the next passage."""
    begins, ends = _loosely(marks.begins), _loosely(marks.ends)
    first = begins.search(text, position) if begins else None
    if first is None or ends is None:
        return None
    behind = _loosely(following.begins) if following is not None else None
    limit = behind.search(text, first.end()) if behind is not None else None
    # In a short passage the last words overlap the first ones; they never end before those do.
    places = [
        found.end()
        for found in ends.finditer(text, first.start(), limit.start() if limit is not None else len(text))
        if found.end() >= first.end()
    ]
    return (first.start(), places[-1 if limit is not None else 0]) if places else None


def _loosely(words: str) -> re.Pattern[str] | None:
    """Return a pattern for words between which any white space stands: models join lines."""
    return re.compile(r"\s+".join(map(re.escape, words.split()))) if words.strip() else None


def _name(template: StoredTemplate) -> tuple[str, str]:
    return template.app, template.version


CAPTURE_AUDIT = "capture_audit"
"""The prompt's task, and the metric name under which the judge's cost is shown."""
AGREEMENT = 0.9
"""Share of the marked and the captured characters together that both have, from which on they agree."""
MAX_PLACES = 20
"""Places of a marked question that are compared."""
AUDIT_EVERY_S = 60.0
SETTLED_S = 120.0
"""After a part of the day: until then every process has saved what it drew."""


@dataclass(eq=False)
class CaptureAudits:
    """Audits the exchanges drawn in each of `per_day` parts of the day, once that is over; only the leader audits.

    `allowed` says whether the judge may be called now; until then the draws of the last day wait. An exchange is
    audited at most once: a process that ends in between leaves the rest of its part of the day out. `on_result` gets
    each result. `clock` gives Unix time.
    """

    judge: Judge
    store: Store
    state_store: StateStore
    drawn: Callable[[], Draws]
    _: KW_ONLY
    per_day: int
    allowed: Callable[[], bool] = lambda: True
    on_result: Callable[[Result], None] = lambda _: None
    clock: Callable[[], float] = time.time

    async def tick(self) -> None:
        """Audit what was drawn in the parts of the day that are over. Raises what the store raises."""
        now, part_s = self.clock(), DAY_S / self.per_day
        draws, state = self.drawn(), None
        for start in sorted(draws):
            end = start + part_s
            if not now - DAY_S < end + SETTLED_S <= now or not self.allowed():
                continue
            state = state or audits_in(await self.state_store.load())
            if end <= state.until:
                continue
            lowest = sorted(draws[start].values())[: MAX_AUDITS // self.per_day]
            state = await self._save(end, state.audits)  # first: a crash must not pay for an audit twice
            for _, sample_id in lowest:
                if (audit := await self._audit(sample_id, end)) is not None:
                    state = await self._save(end, (*state.audits, audit))

    async def _save(self, until: float, audits: Iterable[Audit]) -> Audits:
        state = Audits(until=until, audits=tuple(audit for audit in audits if audit.at > until - MAX_KEPT_S))
        await self.state_store.save({STATE: msgspec.json.encode(state)})
        return state

    async def _audit(self, sample_id: str, at: float) -> Audit | None:
        """Audit an exchange; None if it was deleted, or what came later shows that its capture cannot be audited."""
        stored = await self.store.sample(sample_id)
        request = None if stored is None else request_of(stored[0])
        if stored is None or request is None:
            return None
        sample = stored[0]
        try:
            marks = await marked(self.judge, CAPTURE_AUDIT, sample.app, [Datum("request", request.text)], CaptureMarks)
            result = compare(sample, request, marks)
        except JudgeError:
            result = "failed"
        self.on_result(result)
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
    asked = judging is not None and judging.writer is not None and capture.ask_judge and capture.content
    return capture.audits_per_day if asked else 0


def open_audits(
    judging: JudgeSetup | None,
    per_day: int,
    coverage: CaptureCoverage,
    stores: tuple[Store, StateStore | None],
    instruments: Instruments,
) -> CaptureAudits | None:
    """Build the audits; None if there are none."""
    store, state_store = stores
    if judging is None or judging.writer is None or state_store is None or not per_day:
        return None
    return CaptureAudits(
        judging.writer,
        store,
        state_store,
        coverage.drawn,
        per_day=per_day,
        allowed=judging.is_available,
        on_result=lambda result: instruments.capture_audits.labels(result).inc(),
    )
