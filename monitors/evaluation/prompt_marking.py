"""Prompt marking: the judge marks question and passages in requests whose layout traffic alone does not reveal."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from gaugeway.storage.templates import ASKED, StoredTemplate, Templates
from monitors.judges import SPEND, Judge, JudgeError, Spend
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import PassageMarks, PromptMarks

PROMPT_MARKS = "prompt_marks"
"""The prompt's task, and the metric name under which the judge's cost is shown."""
EVERY_S = 10.0
MAX_MARKED_PER_TICK = 5
APP_EVERY_S = 3_600.0
"""Time between two requests of one app that are sent to the judge."""
MARKED_PER_DAY = 50
"""Most requests of all apps that are sent to the judge in 24 hours: a bound on their cost."""
MAX_KEPT_S = 7 * 86_400.0
"""How long a marked request is kept, unless the store's retention is shorter."""
MAX_PASSAGES = 200
TIMES_ASKED = 3
"""Attempts for one request; the first useful answer ends them."""

Outcome: TypeAlias = Literal["marked", "unusable", "failed"]

_DAY_S = 86_400.0
_PERMANENT = frozenset({"refused", "bad_request", "context_overflow", "unreadable", "too_large"})


class PromptMarking:
    """Marks the requests that gateways put into the template store; only the leader calls `tick`.

    Of an app at most one request an hour is sent, and `per_day` of all apps in any 24 hours; the others wait. `allowed`
    says whether the judge may be called now (available, with budget left). `clock` gives Unix time.
    `on_outcome` gets "marked", "unusable" (marks that are not in the request) or "failed" (no answer).
    """

    def __init__(
        self,
        templates: Templates,
        judge: Judge,
        *,
        retention_s: float,
        per_day: int = MARKED_PER_DAY,
        allowed: Callable[[], bool] = lambda: True,
        on_outcome: Callable[[Outcome], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._templates = templates
        self._judge = judge
        self._kept_s = min(MAX_KEPT_S, retention_s)
        self._allowed = allowed
        self._on_outcome = on_outcome
        self._clock = clock
        self._template = prompting.load(PROMPT_MARKS)
        self._revision: bytes | None = None
        self._requests: list[StoredTemplate] = []
        self._attempts: dict[tuple[str, str], int] = {}
        self._per_day = per_day
        self._sent: deque[tuple[float, str]] = deque()
        """When a request of which app was sent first, of the last 24 hours."""

    async def tick(self) -> None:
        """Mark the waiting requests and drop the old ones. Raises what the store raises."""
        first = self._revision is None
        self._revision, every = await self._templates.changed(self._revision)
        if every is not None:
            self._requests = [template for template in every if template.state in ASKED]
            if first:  # after a restart: those of the process before
                marked = sorted(
                    (template.learned_at, template.app) for template in self._requests if template.state == "marked"
                )
                self._sent.extend(marked)
        oldest = self._clock() - self._kept_s
        if old := [template for template in self._requests if template.learned_at < oldest]:
            await self._templates.drop_templates(
                [(template.app, template.version) for template in old], learned_only=False
            )
        waiting = [
            template for template in self._requests if template.state == "asked" and template.learned_at >= oldest
        ]
        names = set(map(_name, waiting))
        self._attempts = {name: count for name, count in self._attempts.items() if name in names}
        if waiting and self._allowed():
            await asyncio.gather(*map(self._mark, self._due(waiting)))

    def _due(self, waiting: list[StoredTemplate]) -> list[StoredTemplate]:
        """Return the requests that may be sent now: those sent before may be sent again."""
        now = self._clock()
        while self._sent and self._sent[0][0] <= now - _DAY_S:
            self._sent.popleft()
        recent = {app for at, app in self._sent if at > now - APP_EVERY_S}
        due: list[StoredTemplate] = []
        for request in waiting:
            if len(due) == MAX_MARKED_PER_TICK:
                break
            if _name(request) not in self._attempts:
                if request.app in recent or len(self._sent) >= self._per_day:
                    continue
                recent.add(request.app)
                self._sent.append((now, request.app))
            due.append(request)
        return due

    async def _mark(self, request: StoredTemplate) -> None:
        attempts = self._attempts[_name(request)] = self._attempts.get(_name(request), 0) + 1
        text = visible("".join(request.literals))
        token = SPEND.set(Spend(app=request.app, metric=PROMPT_MARKS))
        try:
            answer = await self._judge.ask(self._template.fill([Datum("request", text)]), PromptMarks)
        except JudgeError as error:
            if error.kind not in _PERMANENT and attempts < TIMES_ASKED:
                return
            self._on_outcome("failed")
            marks = None
        else:
            marks = located(text, answer)
            self._on_outcome("marked" if marks is not None else "unusable")
        finally:
            SPEND.reset(token)
        split = {} if marks is None else {"question": marks[0], "passages": list(marks[1])}
        # `put_template` leaves what is there as it is: delete the request first.
        await self._templates.drop_templates([_name(request)], learned_only=False)
        await self._templates.put_template(msgspec.structs.replace(request, state="marked", split=split))


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
        span = span_of(text, marks, position, following)
        if span is None:
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
