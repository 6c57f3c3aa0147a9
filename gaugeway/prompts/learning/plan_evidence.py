"""Evidence for one plan over several requests: passages recur next to different ones, questions do not."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gaugeway.prompts.learning.passage_fields import PassageSkeleton
from gaugeway.prompts.learning.plans import Plan
from gaugeway.prompts.learning.slot_contents import CONSTANT_SHARE, MOST_VALUES, Edges, SlotEvidence, mask_of
from gaugeway.prompts.learning.tokens import salted

MOST_CHUNKS = 160
"""Most passages of a plan whose hashes are remembered to detect recurrence."""

_LEAST_RECURRED = 3
_LEAST_RATE = 0.1
_HALF = 0.5
_SOME = 0.2
_FEW = 2
_NUMBERED = re.compile(r"[\[(#<{]{0,2}\d{1,3}[\])}>.:]{1,3}\s")


@dataclass(slots=True)
class PlanEvidence:
    """Evidence for one plan."""

    literals: int
    first: int
    certain: float
    is_read: bool
    last: int = 0
    marks: int = 0
    count: int = 0
    items: int = 0
    alone: int = 0
    characters: int = 0
    multiple: int = 0
    again: set[int] = field(default_factory=set)
    agreed: int = 0
    disagreed: int = 0
    together: int = 0
    """Passages that recurred after the same one, or with all the others, as parts of one text do."""
    chunks: dict[int, int] = field(default_factory=dict)
    masks: dict[tuple[int, bool], int] = field(default_factory=dict)
    regions: set[int] = field(default_factory=set)
    slots: list[SlotEvidence] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0, 0])
    """Characters of the first and of the last passages where there are several."""
    repeated: int = 0
    numbered: int = 0
    partial: int = 0
    variants: bool = False
    """Whether something may come off its passages: a line, or what stands before a sign."""
    inner: PassageSkeleton | None = None
    region_edges: Edges = field(default_factory=Edges)
    heads: Edges = field(default_factory=Edges)
    tails: Edges = field(default_factory=Edges)

    @property
    def size(self) -> int:
        """Approximate bytes held."""
        counts = (
            len(self.chunks)
            + len(self.masks)
            + sum(len(one.counts) for one in (self.region_edges, self.heads, self.tails))
        )
        return (
            900
            + 110 * (counts + len(self.again))
            + (self.inner.size if self.inner else 0)
            + sum(300 + 70 * (len(one.values) + len(one.edges.counts)) for one in self.slots)
        )

    @property
    def clean(self) -> bool:
        """Whether neither constant text is in the passages nor passages in another slot."""
        edges = self.heads.constant or self.tails.constant or (self.region_edges.constant and not self.is_read)
        if self.numbered > max(_FEW, _SOME * self.items) or self.partial > max(_FEW, _SOME * self.count):
            return False
        if min(self.ends) < _HALF * _HALF * self.multiple * self.length:
            return False
        if self.together > max(_FEW, _FEW * len(self.again)):
            return False
        if self.constant or edges or self.repeated > _FEW or (self.inner is not None and self.inner.literals):
            return False
        return all(len(slot.values & self.chunks.keys()) < _FEW for slot in self.slots)

    @property
    def mean(self) -> float:
        """Passages of a request."""
        return (self.items + self.alone) / max(1, self.count + self.alone)

    @property
    def length(self) -> float:
        """Characters of a passage."""
        return self.characters / max(1, self.items)

    @property
    def rate(self) -> float:
        """The share of different passages that came again, behind another one."""
        return len(self.again) / max(1, len(self.chunks))

    @property
    def constant(self) -> bool:
        """Whether one of the passages is in nearly every request: then it is a text of the prompt."""
        requests = max(1, len(self.regions))
        return any(
            count > (_HALF if short else CONSTANT_SHARE) * requests and count > _FEW
            for (_, short), count in self.masks.items()
        )

    @property
    def proven(self) -> bool:
        """Whether recurrence proves the split."""
        return len(self.again) >= _LEAST_RECURRED and self.rate >= _LEAST_RATE

    def add(self, plan: Plan, region: str) -> None:
        """Count the passages of a request: those that came before, but behind another one than now."""
        self.count += 1
        self.partial += plan.partial
        self._look(plan, region)
        texts = [salted(one.text) for one in plan.contexts]
        self.repeated += len(set(texts)) < len(texts)
        combination = salted(tuple(texts))
        if combination in self.regions:
            self.together += len(texts) > 1
            return
        if len(self.regions) < MOST_VALUES:
            self.regions.add(combination)
        self.items += len(texts)
        self.characters += sum(len(one.text) for one in plan.contexts)
        if len(texts) > 1:
            self.multiple += 1
            self.ends[0] += len(plan.contexts[0].text)
            self.ends[1] += len(plan.contexts[-1].text)
        previous = 0
        for text in texts:
            known = self.chunks.get(text)
            if known is not None and known != previous:
                self.again.add(text)
            elif known:
                self.together += 1
            if known is not None or len(self.chunks) < MOST_CHUNKS:
                self.chunks[text] = previous
            previous = text

    def _look(self, plan: Plan, region: str) -> None:
        """Record text of the passages that may belong to the prompt."""
        self.region_edges.add(region.strip(), labels=False)
        last = len(plan.contexts) - 1
        for index, one in enumerate(plan.contexts):
            if index:
                self.heads.add(one.text, tail=False)
            if index < last:
                self.tails.add(one.text, head=False)
            self.numbered += _NUMBERED.match(one.text) is not None
        for mask in {mask_of(one.text) for one in plan.contexts}:
            if mask in self.masks or len(self.masks) < MOST_CHUNKS:
                self.masks[mask] = self.masks.get(mask, 0) + 1


def question_of(plan: PlanEvidence) -> int | None:
    """Return the index of the slot that looks like the question's, if any."""
    best = max(range(len(plan.slots)), key=lambda index: plan.slots[index].points(), default=None)
    return best if best is not None and plan.slots[best].points() > 1.0 else None
