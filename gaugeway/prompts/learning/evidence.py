"""Collects the plans suggested by a prompt's requests, and selects the one that is proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from gaugeway.prompts.learning.alignment import salted
from gaugeway.prompts.learning.model import Split, chunks_of, slots_in, split
from gaugeway.prompts.learning.outline import Outline, Span, has_letter
from gaugeway.prompts.learning.plan_evidence import PassageSkeleton, PlanEvidence, SlotEvidence, is_history, question_of
from gaugeway.prompts.learning.plans import Plan, proposals
from gaugeway.prompts.sizes import FEW, HALF, MANY, MOSTLY, NEARLY_ALL, OBJECT, SEVERAL
from gaugeway.records import Context

MOST_PLANS = MANY
_LEAST_REQUESTS = 2 * FEW
_WINDOW = SEVERAL
_PATIENT = MANY // 2
_RECENT = (1 << 2 * FEW) - 1
_FEW = 2


class Evidence(Struct):
    """Evidence from the requests of a skeleton since its literals last changed."""

    salt: int = 0
    requests: int = 0
    plans: dict[int, PlanEvidence] = {}

    @property
    def size(self) -> int:
        """Approximate bytes held."""
        return OBJECT + sum(plan.size for plan in self.plans.values())

    def shrink(self) -> None:
        """Drop the plans without evidence, or all if those are few."""
        plans = {key: one for key, one in self.plans.items() if one.clean and (one.again or one.certain > HALF)}
        self.plans = plans if len(plans) < len(self.plans) / 2 else {}

    def add(self, seen: Outline, known: tuple[Context, ...], question: str | None = None) -> dict[int, Plan]:
        """Add a request; return the plans it suggests.

        `known` are passages another extractor is sure of, `question` is the question it found.
        """
        self.requests += 1
        said: dict[int, Plan] = {}
        for plan in proposals(seen):
            said.setdefault(salted((plan.literals, plan.passages, plan.split)), plan)
        literals = {salted((plan.literals, plan.passages)) for plan in said.values()}
        for key, plan in list(said.items()):
            self._add(key, plan, seen.text, known, question)
            for other in self._derived(key, plan, seen.text):
                self._add(
                    said_as := salted((other.literals, other.passages, other.split)), other, seen.text, known, question
                )
                said[said_as] = other
        for key, entry in self.plans.items():
            # One passage has nothing between passages: the form does not show, and does not fail.
            alone = entry.literals in literals and FEW * entry.count >= self.requests - entry.first
            entry.alone += alone and key not in said
            entry.marks = (entry.marks << 1 | (key in said or alone)) & ((1 << _WINDOW) - 1)
        return said

    def _derived(self, key: int, plan: Plan, text: str) -> Iterator[Plan]:
        """Yield variants of the plan that strip text its passages share."""
        entry = self.plans.get(key)
        if (
            entry is None
            or plan.split.kind == "reading"
            or (spans := slots_in(plan.literals, plan.passages, text)) is None
        ):
            return
        region = text[slice(*spans[plan.passages])]
        hows: list[Split] = []
        if not plan.split.header and not plan.split.trailer:
            entry.inner = entry.inner or PassageSkeleton(self.salt)
            if (chunks := chunks_of(plan.split, region)) is not None:
                hows = entry.inner.add(plan.split, chunks)
        entry.variants = bool(hows) or entry.variants
        for how in hows:
            if contexts := split(how, region):
                yield replace(plan, split=how, contexts=contexts, certain=plan.certain + 0.02)

    def _add(self, key: int, plan: Plan, text: str, known: tuple[Context, ...], question: str | None) -> None:
        entry = self.plans.get(key)
        if entry is None:
            if len(self.plans) >= MOST_PLANS and not self._evicted():
                return
            entry = self.plans[key] = PlanEvidence(salted((plan.literals, plan.passages)), self.requests, plan.certain)
            entry.slots = [SlotEvidence() for _ in plan.literals[1:]]
            entry.is_history = is_history(plan.literals[plan.passages])
        spans = slots_in(plan.literals, plan.passages, text)
        if spans is None:
            return
        entry.last = self.requests
        entry.add(plan)
        for index, (start, end) in enumerate(spans):
            if index != plan.passages:
                entry.slots[index].add(text[start:end], question)
        if known and not _hold_constant_text(known, text, spans):
            there, here = (
                [" ".join(passage.text.split()) for passage in contexts] for contexts in (known, plan.contexts)
            )
            entry.agreed += there == here
            # The same words in more passages contradict nothing: recurrence shows what one request does not.
            entry.disagreed += there != here and (len(here) < len(there) or " ".join(there) != " ".join(here))

    def _evicted(self) -> bool:
        """Evict the least recently suggested plan, unless all are suggested now."""
        key = min(self.plans, key=lambda one: (self.plans[one].last, self.plans[one].count))
        if self.plans[key].last == self.requests:
            return False
        del self.plans[key]
        return True

    def best(self) -> int | None:
        """Return the key of the proven plan, or None."""
        fit = {key: one for key, one in self.plans.items() if self._fits(one)}
        coming = [one for key, one in self.plans.items() if key not in fit and self._may_fit(one)]
        proven = {key: one for key, one in fit.items() if one.proven}
        if proven:
            most = max(entry.rate for entry in (*proven.values(), *coming))
            good = {key: one for key, one in proven.items() if one.rate >= MOSTLY * most}
            # Parts of what recurs recur as well: long passages are whole ones. Of these the most, in the surest form.
            longest = max((entry.length for entry in good.values()), default=0)
            whole = {key: one for key, one in good.items() if one.length >= MOSTLY * longest}
            key = max(
                whole,
                key=lambda key: (round(whole[key].certain, 1), round(whole[key].mean, 1), whole[key].certain),
                default=None,
            )
            if key is None or self.requests >= _PATIENT or whole[key].certain > HALF:
                return key
            # Lines recur below headers too: where items are marked, it is seen first whether they recur without them.
            return None if any(entry.certain >= NEARLY_ALL for entry in (*fit.values(), *coming)) else key
        most = max((entry.rate for entry in (*fit.values(), *coming) if len(entry.again) > 1), default=0.0)
        likely = {
            key: one
            for key, one in fit.items()
            if (one.agreed > one.disagreed or self._is_plain(one)) and one.rate >= MOSTLY * most
        }
        if not likely:
            return None
        key = max(likely, key=lambda key: (likely[key].agreed, likely[key].certain, likely[key].mean))
        if any(entry.certain > likely[key].certain for entry in coming):
            return None
        # As long as headers cannot be distinguished from the passages' text, recurrence may still decide.
        return None if self.requests < _PATIENT and self.plans[key].variants and not self.plans[key].agreed else key

    def _may_fit(self, plan: PlanEvidence) -> bool:
        """Whether a plan with too few requests was suggested by each of the last ones."""
        young = plan.count < _LEAST_REQUESTS and plan.count > _FEW
        recent = (plan.marks & _RECENT).bit_count() >= _RECENT.bit_count() / 2
        return young and recent and plan.clean and question_of(plan) is not None

    def _is_plain(self, plan: PlanEvidence) -> bool:
        """Whether the form of the split suffices when no passage recurs."""
        return plan.disagreed == 0 and plan.multiple >= plan.count / 2 and plan.certain >= NEARLY_ALL

    def _fits(self, plan: PlanEvidence) -> bool:
        """Whether the plan explains nearly all of the last requests, several passages in some of them."""
        window = min(self.requests - plan.first + 1, _WINDOW)
        explained = (plan.marks & ((1 << window) - 1)).bit_count()
        enough = explained >= NEARLY_ALL * window and plan.count >= _LEAST_REQUESTS and plan.multiple > 1
        if plan.is_history and not plan.agreed:
            return False
        return enough and plan.clean and not self._is_contradicted(plan) and question_of(plan) is not None

    def _is_contradicted(self, plan: PlanEvidence) -> bool:
        """Whether another extractor was sure of other passages in most requests in which it found any."""
        return plan.disagreed > max(plan.agreed // FEW, _FEW)


def _hold_constant_text(passages: Sequence[Context], text: str, slots: Sequence[Span]) -> bool:
    """Whether one of the passages begins or ends within what all requests have: then it is wrong."""
    for passage in passages:
        if (at := text.find(passage.text)) < 0:
            continue
        end = at + len(passage.text)
        for left, right in pairwise([(0, 0), *slots, (len(text), len(text))]):
            start, stop = max(at, left[1]), min(end, right[0])
            if start < stop and (at < start or stop < end) and has_letter(text[start:stop]):
                return True
    return False
