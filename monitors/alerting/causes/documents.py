"""The cause "retrieval" where one document is to blame: the drop is confined to exchanges that got it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from monitors.alerting.causes.hypotheses import from_p_value
from monitors.alerting.causes.observations import ALPHA, Explanation, Fall, Observation, Words, compare, percent, share
from monitors.alerting.causes.slices import ROOM
from monitors.alerting.causes.sources import Spread, spread_of, suspicious
from monitors.alerting.causes.traffic_mix import CARRIED
from monitors.statistics.decomposition import LEAST_N_EFF, Contrast, fall
from monitors.statistics.weighted_mean import Estimate

MAX_DOCUMENTS = 20
"""Documents that are compared: the most frequent ones since the onset, beside those that low scores point at."""
LARGEST = 0.9
_LONGEST_NAME = 60
_PLAIN, _PART, _ENOUGH = 0.1, 0.3, 50
_ALL = 1.0 - 1e-9
_UNSEEN = 0.8
"""One in five drops of the answers beside steady relevance is taken to be a document, where none can be seen."""
_UNCHALLENGED = 0.9
"""The most that is said for a document that no claim contradicts: its questions may have become harder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
    """What an exchange was given: the names of its documents, and whether the judge found a contradiction.

    A contradiction is a claim of the answer that a passage contradicts, or a passage that the answer contradicts; None
    if the judge did not look for one.
    """

    documents: frozenset[str]
    contradicted: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A document: the fall of the scores of exchanges that got it, and that of the rest, with the contradictions.

    `contradictions` is None where no judge looked for them. `pointed_at`: low scores since the onset point at it, among
    all documents, and not only because it comes with another one (`sources.suspicious`). `new`: too few exchanges got
    it before the onset to compare, so that it is compared with all of them.
    """

    name: str
    share: float
    inside: Fall
    rest: Fall
    apart: float
    p_apart: float
    contradictions: Contrast | None
    contradicted: tuple[float, float]
    spread: Spread
    pointed_at: bool
    new: bool

    @property
    def p(self) -> float:
        """The larger p-value: of equal falls, and of equally frequent contradictions."""
        return max(self.p_apart, 1.0 if self.contradictions is None else self.contradictions.p_value)

    def contradicts(self, drop: Contrast, alpha: float) -> bool:
        """Return whether only exchanges with this document fell, and they have clearly more contradictions."""
        return self.p < alpha / 2.0 and self.confines(drop, alpha)

    def worsened(self, drop: Contrast, alpha: float) -> bool:
        """Return whether only exchanges with this document fell, which were in use before, and low scores point at it.

        A new document may come with new questions, which are harder.
        """
        return self.pointed_at and not self.new and self.p_apart < alpha / 2.0 and self.confines(drop, alpha)

    def can_carry(self, drop: Contrast) -> bool:
        """Return whether its exchanges are so many that their fall to 0 would be most of the drop."""
        return self.inside.old is not None and self.share * self.inside.old.mean >= CARRIED * drop.value

    def confines(self, drop: Contrast, alpha: float) -> bool:
        """Return whether only exchanges with this document fell, and their fall is most of the drop."""
        ours, theirs = self.inside.contrast, self.rest.contrast
        return (
            ours is not None
            and theirs is not None
            and ours.clear(alpha)
            and theirs.interval(ALPHA)[0] <= ROOM * ROOM * ours.value
            and theirs.value < ROOM * ours.value
            and self.share * (ours.value - theirs.value) >= CARRIED * drop.value - _room(drop)
        )

    def doubtful(self, drop: Contrast, alpha: float) -> bool:
        """Return whether the document cannot be ruled out: scores and contradictions together point at it.

        The two p-values are combined by Fisher's method; neither may be large.
        """
        if self.contradictions is None:
            return False
        one, other = self.p_apart, self.contradictions.p_value
        product = max(one * other, 1e-300)
        pointed = self.share * self.apart >= _PART * drop.value
        return pointed and max(one, other) < _PLAIN and product * (1.0 - math.log(product)) < alpha


def suspects(drop: Fall, passages: Mapping[str, Passages], whole: Fall) -> list[Suspect]:
    """Return the documents since the onset that can be compared, the most suspicious first.

    `drop` may be of a slice of the app, `whole` is of all of it.
    """
    before, since = _known(drop, passages)
    documents = {name: seen.documents for name, seen in passages.items()}
    counts = Counter(name for one in since for name in documents[one.sample_id])
    common = [name for name in sorted(counts, key=lambda name: (-counts[name], name)) if counts[name] >= LEAST_N_EFF]
    pointed_at = suspicious(since, documents)
    some = dict.fromkeys([*common[:MAX_DOCUMENTS], *(name for name in pointed_at if name in common)])
    everything = _known(whole, passages)
    found = [
        _suspect(
            name,
            drop.metric,
            before,
            since,
            passages=passages,
            pointed_at=name in pointed_at,
            spread=partial(spread_of, name, *everything, documents),
        )
        for name in some
    ]
    large = [one for one in found if one is not None and drop.contrast is not None and one.can_carry(drop.contrast)]
    return sorted(large, key=lambda one: (one.p, not one.pointed_at, one.p_apart, one.name))


def blamed(drop: Fall, some: Sequence[Suspect], words: Words, part: str) -> Explanation | None:
    """Return the cause "retrieval" with the document that the drop is confined to; `part` is the slice, "" for none."""
    if drop.contrast is None or not some:
        return None
    alpha = ALPHA / len(some)
    against = next((one for one in some if one.contradicts(drop.contrast, alpha)), None)
    found = against or next((one for one in some if one.worsened(drop.contrast, alpha)), None)
    if found is None:
        return None
    here = words.change(drop.metric, found.inside.old, found.inside.new)
    rest = words.change(drop.metric, found.rest.old, found.rest.new)
    name = shortened(found.name)
    detail = (
        f"{found.spread.sentence(name)} {f'In {part}, only' if part else 'Only'} exchanges that got the source "
        f"{name} changed ({percent(found.share)}): {drop.metric} {here}, the rest {rest}."
    )
    evidence = [f"scores of exchanges with and without the source {name}"]
    if against is not None:
        inside, outside = found.contradicted
        detail += (
            f" In {_part(inside)} of them the answer and a passage contradict each other, in {_part(outside)} of the "
            "rest. Check whether the source contradicts the others."
        )
        evidence.append("contradicted claims or passages")
    else:
        detail += " Check whether the source has changed."
        evidence.append("scores with the source before and since")
    return Explanation(
        cause="retrieval",
        detail=detail,
        slice=f"source={name}",
        strength=from_p_value(min(1.0, found.p * len(some)))
        if against is not None
        else min(_UNCHALLENGED, from_p_value(min(1.0, found.p_apart * len(some)))),
        evidence=tuple(evidence),
        source=found.name,
    )


def confined_to(drop: Fall, some: Sequence[Suspect]) -> Suspect | None:
    """Return the document that most of the drop is confined to, and low scores point at; None without one."""
    if drop.contrast is None:
        return None
    contrast, alpha = drop.contrast, ALPHA / max(len(some), 1)
    return next((one for one in some if one.pointed_at and one.confines(contrast, alpha)), None)


def placed(found: Explanation, source: Suspect | None) -> Explanation:
    """Add the document that most of the drop is confined to; it makes "generation" an "unknown" cause.

    Nothing contradicts it, and it is new: it may be bad, or come with questions that are harder to answer.
    """
    if source is None:
        return found
    sentence = source.spread.sentence(shortened(source.name))
    if found.cause == "generation":
        doubt = "It is the answers, the source, or the questions that it comes with."
        return Explanation(cause="unknown", detail=f"{sentence} {doubt} {found.detail}", source=source.name)
    return replace(found, detail=f"{sentence} {found.detail}", source=source.name)


def doubted(found: Explanation, some: Sequence[Suspect], drop: Fall, words: Words, *, seen: int) -> Explanation:
    """Return "unknown" instead of "generation" while a document may be the cause.

    Where the documents of fewer than 50 exchanges since were `seen`, "generation" is named with less strength.
    """
    if found.cause != "generation" or drop.contrast is None:
        return found
    doubtful = next((one for one in some if one.doubtful(drop.contrast, ALPHA / len(some))), None)
    if doubtful is None and seen < _ENOUGH:
        return replace(found, strength=_UNSEEN * (found.strength or 0.0))
    if doubtful is None:
        return replace(found, evidence=(*found.evidence, "no source that the drop is confined to"))
    here = words.change(drop.metric, doubtful.inside.old, doubtful.inside.new)
    rest = words.change(drop.metric, doubtful.rest.old, doubtful.rest.new)
    return Explanation(
        cause="unknown",
        detail=(
            f"{words.whole(drop)}. It is the answers, or the source {shortened(doubtful.name)}: with it {here}, "
            f"the rest {rest}."
        ),
    )


def shortened(name: str) -> str:
    """Return a document's name, cut to a length that fits a sentence."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _part(ratio: float) -> str:
    """Return a share in words where it is all or nothing."""
    if ratio <= 0.0:
        return "none"
    return "all" if ratio >= _ALL else percent(ratio)


def _suspect(
    name: str,
    metric: str,
    before: Sequence[Observation],
    since: Sequence[Observation],
    *,
    passages: Mapping[str, Passages],
    pointed_at: bool,
    spread: Callable[..., Spread],
) -> Suspect | None:
    """Compare exchanges with the document and without; a document without enough scores before counts as new."""
    old, old_rest = _divided(name, before, passages)
    new, new_rest = _divided(name, since, passages)
    part = share((name in passages[one.sample_id].documents, one.rate) for one in since)
    if part is None or part.mean > LARGEST:
        return None
    fresh = len(old) < LEAST_N_EFF
    inside, rest = compare(metric, before if fresh else old, new), compare(metric, old_rest, new_rest)
    here, there = _contradicted(new, passages), _contradicted(new_rest, passages)
    if inside.contrast is None or rest.contrast is None:
        return None
    apart = Contrast(
        value=inside.contrast.value - rest.contrast.value, se=math.hypot(inside.contrast.se, rest.contrast.se)
    )
    return Suspect(
        name=name,
        share=part.mean,
        inside=inside,
        rest=rest,
        apart=apart.value,
        p_apart=apart.p_value,
        contradictions=fall(here, there),
        contradicted=(here.mean if here is not None else 0.0, there.mean if there is not None else 0.0),
        spread=spread(new=fresh),
        pointed_at=pointed_at,
        new=fresh,
    )


def _known(drop: Fall, passages: Mapping[str, Passages]) -> tuple[list[Observation], list[Observation]]:
    """Return the scores on both sides whose passages were read."""
    before, since = ([one for one in side if one.sample_id in passages] for side in (drop.before, drop.since))
    return before, since


def _divided(
    name: str, side: Sequence[Observation], passages: Mapping[str, Passages]
) -> tuple[list[Observation], list[Observation]]:
    with_it = [one for one in side if name in passages[one.sample_id].documents]
    return with_it, [one for one in side if name not in passages[one.sample_id].documents]


def _contradicted(side: Sequence[Observation], passages: Mapping[str, Passages]) -> Estimate | None:
    known = ((passages[one.sample_id].contradicted, one.rate) for one in side)
    return share((flag, rate) for flag, rate in known if flag is not None)


def _room(drop: Contrast) -> float:
    """Return one standard error: the drop is estimated, and from more scores than the documents."""
    return drop.se
