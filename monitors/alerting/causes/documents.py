"""The cause "retrieval" where one document is to blame: the drop is confined to exchanges that got it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monitors.alerting.causes.hypotheses import from_p_value
from monitors.alerting.causes.observations import ALPHA, Explanation, Fall, Words, percent
from monitors.alerting.causes.suspects import Suspect

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
    only = "mostly" if found.rest.clear(ALPHA) else "only"
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
        return Explanation(cause="unknown", detail=f"{sentence} {doubt} {found.detail}", source=source.name)
    return replace(found, detail=f"{sentence} {found.detail}", source=source.name)


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
