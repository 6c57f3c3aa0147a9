"""The cause "retrieval" where one document is to blame: the drop is confined to exchanges that got it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from monitors.alerting.causes.observations import (
    ALPHA,
    Explanation,
    Fall,
    Observation,
    Split,
    Words,
    compare,
    divided,
    from_p_value,
    percent,
    share,
    values_of,
)
from monitors.alerting.causes.traffic import CARRIED, ROOM, before_tail
from monitors.alerting.causes.weighing import HARDEST, repeated
from monitors.statistics.attribution import ScoredAnswer, contrast, retrievals_of
from monitors.statistics.decomposition import LEAST_N_EFF, Contrast, fall
from monitors.statistics.weighted_mean import Estimate

_STRATA = ("topic", "model", "prompt")
_LOW = 0.1
"""An answer is bad if it scores as the worst tenth before the onset did."""


class Spread(Struct, frozen=True, kw_only=True):
    """The shares of the bad and the good answers since Unix time `since` that got a source; None without any."""

    since: float
    bad: float | None
    good: float | None

    def sentence(self, name: str) -> str:
        """Return where the source occurs.

        >>> Spread(since=50_700.0, bad=0.83, good=0.04).sentence("faq.md")
        'Source faq.md, since 14:05 UTC, in 83 % of the bad answers and 4 % of the good.'
        """
        minutes = int(self.since // 60) % 1440
        clock = f"{minutes // 60:02}:{minutes % 60:02} UTC"
        bad, good = (percent(ratio) if ratio is not None else "none" for ratio in (self.bad, self.good))
        return f"Source {name}, since {clock}, in {bad} of the bad answers and {good} of the good."


def suspicious(
    since: Sequence[Observation], documents: Mapping[str, frozenset[str]], *, across_questions: bool = False
) -> list[str]:
    """Return the sources that exchanges with low scores got, the strongest first; wrong ones are 5 % of these.

    `documents` are the names of the sources by sample id. Exchanges are compared within topic, model and prompt, and
    those of a question that is asked often with one another only; not so `across_questions`, where a source cannot be
    told apart from the questions that it comes with.
    """
    names = sorted({name for observation in since for name in documents[observation.sample_id]})
    answers = [
        ScoredAnswer(
            id=observation.sample_id,
            score=observation.value or 0.0,
            rate=observation.rate,
            traits=documents[observation.sample_id],
            stratum=tuple(observation.strata.get(key, "") for key in _STRATA),
            question="" if across_questions else observation.question,
        )
        for observation in since
    ]
    return [names[source] for source in contrast(retrievals_of(answers, names), ALPHA).log_e_alone]


def spread_of(
    name: str,
    before: Sequence[Observation],
    since: Sequence[Observation],
    documents: Mapping[str, frozenset[str]],
    *,
    new: bool,
) -> Spread:
    """Return how a source is spread over bad and good answers; a `new` one counts from its first use."""
    is_bad = _bad(values_of(before) or values_of(since))
    got = [name in documents[observation.sample_id] for observation in since]
    first = [observation.started_at for observation, has in zip(since, got, strict=True) if has or not new]

    def part(*, bad: bool) -> float | None:
        found = share(
            (has, observation.rate)
            for observation, has in zip(since, got, strict=True)
            if is_bad(observation.value or 0.0) is bad
        )
        return None if found is None else found.mean

    return Spread(since=min(first, default=0.0), bad=part(bad=True), good=part(bad=False))


def _bad(usual: Sequence[float]) -> Callable[[float], bool]:
    """Return whether a score is among the lowest tenth of the usual ones; where most are equal, whether it is lower."""
    limit, median = float(np.quantile(usual, _LOW)), float(np.median(usual))
    return (lambda value: value <= limit) if limit < median else (lambda value: value < median)


MAX_DOCUMENTS = 20
"""Documents that are compared: the most frequent ones since the onset, beside those that low scores point at."""
LARGEST = 0.9
_PLAIN, _PART = 0.1, 0.3


class Passages(Struct, frozen=True, kw_only=True):
    """What an exchange was given: its documents' names, the `count` of passages, and whether the judge contradicts one.

    A contradiction is a claim of the answer that a passage contradicts, or a passage that the answer contradicts; None
    if the judge did not look for one.
    """

    documents: frozenset[str]
    contradicted: bool | None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect(Split):
    """A document: the fall of the scores of exchanges that got it, and that of the rest, with the contradictions.

    `drop` is what it may explain, of the slice `part` ("" for the whole app). `contradictions` is None where no judge
    looked for them. `pointed_at`: low scores point at it, among all documents, and not only because it comes with
    another one (`sources.suspicious`); `noticed`: also where different questions are compared.

    `arrived`: it was not in use before the onset (`new`), or far less, and its scores are compared with those of
    exchanges without it before, of the same questions where these recur; `recurring` is then the fall among questions
    that were asked before, without it.
    """

    name: str
    part: str
    drop: Contrast
    contradictions: Contrast | None
    contradicted: tuple[float, float]
    recurring: Contrast | None
    spread: Spread
    pointed_at: bool
    noticed: bool
    arrived: bool
    new: bool

    @property
    def p_apart(self) -> float:
        """The p-value of equal falls."""
        return 1.0 if self.apart is None else self.apart.p_value

    @property
    def p(self) -> float:
        """The larger p-value: of equal falls, and of equally frequent contradictions."""
        return max(self.p_apart, 1.0 if self.contradictions is None else self.contradictions.p_value)

    def contradicts(self, alpha: float) -> bool:
        """Return whether only exchanges with this document fell, and they have clearly more contradictions."""
        return self.p < alpha / 2.0 and self.confines(alpha)

    def worsened(self, alpha: float) -> bool:
        """Return whether only exchanges with this document fell, which were in use before, and low scores point at it.

        A new document may come with new questions, which are harder.
        """
        return self.pointed_at and not self.arrived and self.p_apart < alpha / 2.0 and self.confines(alpha)

    def beyond_questions(self, alpha: float) -> bool:
        """Return whether only exchanges with this arrived document fell, and harder questions do not explain it.

        Either the same questions scored clearly higher before without it, or the document is new and its exchanges fell
        by more than harder questions cost.
        """
        is_likely = self.pointed_at and self.arrived and self.p_apart < alpha / 2.0 and self.confines(alpha)
        return is_likely and (self.recurs(alpha) or (self.new and self._too_large(alpha)))

    def recurs(self, alpha: float) -> bool:
        """Return whether at least half of the fall is found among questions that were asked before."""
        ours, again = self.inside.contrast, self.recurring
        return ours is not None and again is not None and again.clear(alpha) and again.value >= ROOM * ours.value

    def can_carry(self) -> bool:
        """Return whether its exchanges are so many that their fall to 0 would be most of the drop."""
        return self.inside.old is not None and self.share * self.inside.old.mean >= CARRIED * self.drop.value

    def confines(self, alpha: float) -> bool:
        """Return whether only exchanges with this document fell, and their fall is most of the drop.

        The drop is estimated, and from more scores than the documents: one standard error of it is granted.
        """
        ours, theirs = self.inside.contrast, self.rest.contrast
        return (
            ours is not None
            and theirs is not None
            and ours.clear(alpha)
            and theirs.interval(ALPHA)[0] <= ROOM * ROOM * ours.value
            and theirs.value < ROOM * ours.value
            and self.share * (ours.value - theirs.value) >= CARRIED * self.drop.value - self.drop.se
        )

    def doubtful(self, alpha: float) -> bool:
        """Return whether the document cannot be ruled out: the drop is confined to it, or nearly so.

        Nearly: scores and contradictions together point at it. The two p-values are combined by Fisher's method;
        neither may be large.
        """
        apart = self.share * self.apart.value if self.apart is not None else 0.0
        if apart >= CARRIED * self.drop.value and self.p_apart < alpha / 2.0 and self.confines(alpha):
            return True
        if self.contradictions is None:
            return False
        p_apart, other = self.p_apart, self.contradictions.p_value
        product = max(p_apart * other, 1e-300)
        return (
            apart >= _PART * self.drop.value
            and max(p_apart, other) < _PLAIN
            and product * (1.0 - math.log(product)) < alpha
        )

    def _too_large(self, alpha: float) -> bool:
        ours, old = self.inside.contrast, self.inside.old
        return ours is not None and old is not None and ours.interval(alpha)[0] > HARDEST * old.mean


def suspects(drop: Fall, passages: Mapping[str, Passages], whole: Fall, part: str = "") -> list[Suspect]:
    """Return the documents since the onset that can be compared, the most suspicious first.

    `drop` may be of a slice (`part`) of the app, `whole` is of all of it. A document that nearly all exchanges of the
    slice got cannot be compared there: it is compared in the app.
    """
    found = list(_compared(drop, passages, whole, part))
    if drop is not whole:
        _, since = _known(drop, passages)
        everywhere = _compared(whole, passages, whole, "")
        found += [suspect for suspect in everywhere if _fills(since, suspect.name, passages)]
    return sorted(
        (suspect for suspect in found if suspect.can_carry()),
        key=lambda suspect: (suspect.p, not suspect.pointed_at, suspect.p_apart, suspect.name),
    )


def _compared(drop: Fall, passages: Mapping[str, Passages], whole: Fall, part: str) -> Iterator[Suspect]:
    before, since = _known(drop, passages)
    if drop.contrast is None:
        return
    documents = {name: seen.documents for name, seen in passages.items()}
    counts = Counter(name for observation in since for name in documents[observation.sample_id])
    common = [name for name in sorted(counts, key=lambda name: (-counts[name], name)) if counts[name] >= LEAST_N_EFF]
    lately, both = suspicious(since, documents), suspicious([*before, *since], documents)
    across = suspicious([*before, *since], documents, across_questions=True)
    pointed_at = dict.fromkeys([*lately, *both, *across])
    everything = _known(whole, passages)
    for name in dict.fromkeys([*common[:MAX_DOCUMENTS], *(name for name in pointed_at if name in common)]):
        share_before, share_since = (_share(name, side, passages) for side in (before, since))
        if share_since is None or share_since.mean > LARGEST:
            continue
        (old, old_rest), (new, new_rest) = (
            divided(side, lambda observation: name in documents[observation.sample_id])  # noqa: B023 - called at once
            for side in (before, since)
        )
        is_new = len(before_tail(old, before)) < LEAST_N_EFF
        itself = compare(drop.metric, old, new)
        arrived = is_new or (_grew(share_before, share_since) and not itself.clear(ALPHA))
        inside = compare(drop.metric, _asked_again(old_rest, new), new) if arrived else itself
        rest = compare(drop.metric, _asked_again(old_rest, new_rest) if arrived else old_rest, new_rest)
        if inside.contrast is None or rest.contrast is None:
            continue
        here, there = _contradicted(new, passages), _contradicted(new_rest, passages)
        yield Suspect(
            name=name,
            part=part,
            drop=drop.contrast,
            share=share_since.mean,
            inside=inside,
            rest=rest,
            contradictions=fall(here, there),
            contradicted=(here.mean if here is not None else 0.0, there.mean if there is not None else 0.0),
            recurring=repeated(inside) if arrived else None,
            spread=spread_of(name, *everything, documents, new=is_new),
            pointed_at=name in lately or (arrived and name in both),
            noticed=name in lately or (arrived and (name in both or name in across)),
            arrived=arrived,
            new=is_new,
        )


def _grew(before: Estimate | None, since: Estimate | None) -> bool:
    """Return whether the share of exchanges that got a document at least doubled, and clearly rose."""
    rise = fall(since, before)  # with the sides swapped: a rise
    return (
        before is not None
        and since is not None
        and rise is not None
        and rise.clear(ALPHA)
        and before.mean < ROOM * since.mean
    )


def _asked_again(before: Sequence[Observation], since: Sequence[Observation]) -> Sequence[Observation]:
    """Return the scores before of the questions asked since, if these are at least half of the scores since; else all.

    Where a document comes with whole questions, the rest are other questions, which may always have scored lower.
    """
    known = {observation.question for observation in before if observation.question} & {
        observation.question for observation in since
    }
    again = [observation for observation in before if observation.question in known]
    now = sum(observation.question in known for observation in since)
    return again if len(again) >= LEAST_N_EFF and now >= ROOM * len(since) else before


def _fills(side: Sequence[Observation], name: str, passages: Mapping[str, Passages]) -> bool:
    found = _share(name, side, passages)
    return found is not None and found.mean > LARGEST


def _share(name: str, side: Sequence[Observation], passages: Mapping[str, Passages]) -> Estimate | None:
    return share((name in passages[observation.sample_id].documents, observation.rate) for observation in side)


def _known(drop: Fall, passages: Mapping[str, Passages]) -> tuple[list[Observation], list[Observation]]:
    """Return the scores on both sides whose passages were read."""
    before, since = (
        [observation for observation in side if observation.sample_id in passages] for side in (drop.before, drop.since)
    )
    return before, since


def _contradicted(side: Sequence[Observation], passages: Mapping[str, Passages]) -> Estimate | None:
    known = ((passages[observation.sample_id].contradicted, observation.rate) for observation in side)
    return share((flag, rate) for flag, rate in known if flag is not None)


_LONGEST_NAME = 60
_ENOUGH = 50
_ALL = 1.0 - 1e-9
_UNSEEN = 0.8
"""One in five drops of the answers beside steady relevance is taken to be a document, where none can be seen."""
_OTHER_QUESTIONS = 0.8
"""The most that is said for a new document where no question recurs: its questions may be of a kind without answers."""
_UNCHALLENGED = 0.9
"""The most that is said for a document that no claim contradicts: its questions may have become harder."""


def blamed(drop: Fall, some: Sequence[Suspect], words: Words) -> Explanation | None:
    """Return the cause "retrieval" with the document that the drop is confined to."""
    if not some:
        return None
    alpha = ALPHA / len(some)
    against = next((suspect for suspect in some if suspect.contradicts(alpha)), None)
    found = against or next(
        (suspect for suspect in some if suspect.worsened(alpha) or suspect.beyond_questions(alpha)), None
    )
    if found is None:
        return None
    name = shortened(found.name)
    only = "only" if found.only else "mostly"
    detail = (
        f"{found.spread.sentence(name)} {f'In {found.part}, {only}' if found.part else only.capitalize()} exchanges "
        f"that got the source {name} changed ({percent(found.share)}): {drop.metric} {found.changes(words)}."
    )
    evidence = [f"scores of exchanges with and without the source {name}"]
    most = _UNCHALLENGED
    if against is not None:
        inside, outside = found.contradicted
        detail += (
            f" In {_part(inside)} of them the answer and a passage contradict each other, in {_part(outside)} of the "
            "rest. Check whether the source contradicts the others."
        )
        evidence.append("contradicted claims or passages")
    elif found.arrived:
        sentence, why = _arrival(found, alpha)
        detail += f" {sentence}"
        evidence.append(why)
        most = _UNCHALLENGED if found.recurs(alpha) else _OTHER_QUESTIONS
    else:
        detail += " Check whether the source has changed."
        evidence.append("scores with the source before and since")
    return Explanation(
        cause="retrieval",
        detail=detail,
        slice=f"source={name}",
        strength=from_p_value(min(1.0, found.p * len(some)))
        if against is not None
        else min(most, from_p_value(min(1.0, found.p_apart * len(some)))),
        evidence=tuple(evidence),
        source=found.name,
        place=found,
    )


def _arrival(found: Suspect, alpha: float) -> tuple[str, str]:
    """Return why a source that was not in use before is to blame and its questions are not, and the evidence."""
    use = "It was not in use before" if found.new else "It was in use far less before"
    check = "Check the source, and why it is retrieved."
    if found.recurs(alpha):
        return f"{use}, when the same questions scored better. {check}", "questions that recur fell with the source"
    return f"{use}, and harder questions do not cost that much. {check}", "a larger fall than harder questions explain"


def confined_to(some: Sequence[Suspect]) -> Suspect | None:
    """Return the document that most of the drop is confined to, and low scores point at; None without one."""
    alpha = ALPHA / max(len(some), 1)
    return next((suspect for suspect in some if suspect.noticed and suspect.confines(alpha)), None)


def placed(found: Explanation, source: Suspect | None) -> Explanation:
    """Add the document that most of the drop is confined to; it makes "generation" an "unknown" cause.

    Nothing contradicts it, and it is new: it may be bad, or come with questions that are harder to answer.
    """
    if source is None:
        return found
    sentence = source.spread.sentence(shortened(source.name))
    if found.cause == "generation":
        doubt = "It is the answers, the source, or the questions that it comes with."
        found = Explanation(cause="unknown", detail=f"{doubt} {found.detail}")
    return replace(found, detail=f"{sentence} {found.detail}", source=source.name, place=source)


def doubted(found: Explanation, some: Sequence[Suspect], drop: Fall, words: Words, *, seen: int) -> Explanation:
    """Return "unknown" instead of "generation" while a document may be the cause.

    Where the documents of fewer than 50 exchanges since were `seen`, "generation" is named with less strength.
    """
    if found.cause != "generation" or drop.contrast is None:
        return found
    doubtful = next((suspect for suspect in some if suspect.doubtful(ALPHA / len(some))), None)
    if doubtful is None and seen < _ENOUGH:
        return replace(found, strength=_UNSEEN * (found.strength or 0.0))
    if doubtful is None:
        return replace(found, evidence=(*found.evidence, "no source that the drop is confined to"))
    return Explanation(
        cause="unknown",
        detail=(
            f"{words.whole(drop)}. It is the answers, or the source {shortened(doubtful.name)}: with it "
            f"{doubtful.changes(words)}."
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
