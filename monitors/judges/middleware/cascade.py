"""The cascade: calls a small judge first and a large one when it is unsure, and measures their agreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from gaugeway import sampling
from monitors.judges import Judge, JudgeError, Prompt
from monitors.judges.middleware.cache import fingerprint

T = TypeVar("T")
Outcome: TypeAlias = Literal["sure", "unsure", "failed"]
_AUDITED = "audit gaugeway"
"""What the hash of a prompt is salted with that decides whether it is audited."""
PASSED_ON = frozenset(
    {"unsure", "verifier_failed", "unreadable", "truncated", "too_large", "refused", "context_overflow"}
)
"""Failures that the next tier may not have. An unreachable judge is not among them: it must not raise the bill."""


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """A judge, and the probability from which its answer is accepted; the last tier's answer always is."""

    name: str
    judge: Judge
    least: float = 0.9


@dataclass(eq=False)
class Cascade(Judge):
    """Calls its tiers in turn until one is sure enough.

    A tier whose judge gives no probability (no log-probabilities) is called twice, and is sure if both answers have the
    same verdicts. A share `audit_rate` of the accepted answers is also sent to the last tier, only to measure
    agreement: audits change no score, and a failed audit has no effect. A hash of the prompt selects them, so
    that the same prompt is always or never audited. A tier that never answers such prompts ("skipped") is not counted.
    `on_outcome` gets (tier, outcome), `on_agreement` (tier, whether
    it was sure, agreement in [0, 1]).
    """

    tiers: Sequence[Tier]
    _: KW_ONLY
    audit_rate: float = 0.05
    on_outcome: Callable[[str, Outcome], None] = lambda *_: None
    on_agreement: Callable[[str, bool, float], None] = lambda *_: None

    def __post_init__(self) -> None:
        if not self.tiers:
            raise ValueError("a cascade needs at least one tier")
        self._tiers = tuple(self.tiers)

    @property
    def model(self) -> str:
        return ">".join(tier.judge.model for tier in self._tiers)

    @property
    def identity(self) -> str:
        return " > ".join(f"{tier.judge.identity} {tier.least:g}" for tier in self._tiers)

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        doubted: list[tuple[Tier, T]] = []
        for tier in self._tiers[:-1]:
            try:
                answer, sure = await self._answer(tier, prompt, answer_type)
            except JudgeError as error:
                if error.kind == "skipped":
                    continue
                self.on_outcome(tier.name, "unsure" if error.kind == "unsure" else "failed")
                if error.kind not in PASSED_ON:
                    raise
                continue
            self.on_outcome(tier.name, "sure" if sure else "unsure")
            if sure:
                await self._audit(tier, answer, prompt, answer_type)
                return answer
            doubted.append((tier, answer))
        last = self._tiers[-1]
        try:
            final = await last.judge.ask(prompt, answer_type)
        except JudgeError:
            self.on_outcome(last.name, "failed")
            raise
        self.on_outcome(last.name, "sure")
        for tier, answer in doubted:
            self._compare(tier, answer, final, sure=False)
        return final

    async def ask_scored(self, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
        """Return the probabilities of the first tier that is sure of one choice; None when no tier has any."""
        found = None
        for tier in self._tiers:
            last = tier is self._tiers[-1]
            try:
                found = await tier.judge.ask_scored(prompt, choices)
            except JudgeError as error:
                if last or error.kind not in {*PASSED_ON, "skipped"}:
                    raise
                continue
            if found is not None and (last or max(found.values()) >= tier.least):
                break
        return found

    async def aclose(self) -> None:
        for tier in self._tiers:
            await tier.judge.aclose()

    async def _answer(self, tier: Tier, prompt: Prompt, answer_type: type[T]) -> tuple[T, bool]:
        answer, sureness = await tier.judge.ask_sure(prompt, answer_type)
        if sureness is None:
            return answer, agreement(answer, await tier.judge.ask(prompt, answer_type)) == 1.0
        return answer, sureness >= tier.least

    async def _audit(self, tier: Tier, answer: T, prompt: Prompt, answer_type: type[T]) -> None:
        if not sampling.keep(fingerprint(prompt).hex(), self.audit_rate, _AUDITED):
            return
        try:
            reference = await self._tiers[-1].judge.ask(prompt, answer_type)
        except JudgeError:
            return
        self._compare(tier, answer, reference, sure=True)

    def _compare(self, tier: Tier, answer: Any, reference: Any, *, sure: bool) -> None:
        if (share := agreement(answer, reference)) is not None:
            self.on_agreement(tier.name, sure, share)


_NAMES = ("id", "index")
_JUDGED = ("boolean", "integer", "number")


def agreement(left: Any, other: Any) -> float | None:
    """Return the share of verdicts that two answers of one type have in common, in [0, 1] (Dice's coefficient).

    Verdicts are enumerated texts, booleans and numbers, identified by their key and the `id` or `index` of the objects
    around them; verdicts without those (each judge splits claims in its own way) are compared as a multiset. None when
    neither answer holds a verdict.

    Reference: L. R. Dice (1945), Measures of the amount of ecologic association between species.

    >>> class Mood(msgspec.Struct):
    ...     good: bool
    ...     why: str
    >>> agreement(Mood(True, "sun"), Mood(True, "warm")), agreement(Mood(True, "sun"), Mood(False, "rain"))
    (1.0, 0.0)
    """
    ours, theirs = Counter(_verdicts(left)), Counter(_verdicts(other))
    total = ours.total() + theirs.total()
    return 2.0 * (ours & theirs).total() / total if total else None


def _verdicts(answer: Any) -> Iterator[tuple[str, ...]]:
    schema = msgspec.json.schema(type(answer))
    yield from _walk(msgspec.to_builtins(answer), schema, schema.get("$defs", {}), ())


def _walk(
    value: Any, node: Mapping[str, Any], known: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    if "$ref" in node:
        node = known[node["$ref"].rpartition("/")[2]]
    if isinstance(value, dict):
        path += tuple(f"{name}={value[name]}" for name in _NAMES if name in value)
        for key, item in value.items():
            if key not in _NAMES:
                yield from _walk(item, node.get("properties", {}).get(key, {}), known, (*path, key))
    elif isinstance(value, list):
        inside = node.get("items", {})
        if "$ref" in inside:  # a list of bare numbers refers to contexts; it is not a verdict
            for item in value:
                yield from _walk(item, inside, known, path)
    elif "enum" in node or node.get("type") in _JUDGED:
        yield (*path, str(value))
