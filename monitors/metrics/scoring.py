"""From the probabilities of a judge's answer token to those of the valid scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from monitors.judges import JudgeError

_SURE = 0.5


def weights(probabilities: Mapping[str, float], choices: Iterable[int]) -> dict[int, float]:
    """The probability of each valid score, scaled to a sum of 1. White space around a token means nothing.

    Raises JudgeError when less than half of the probability is on valid scores: the judge meant to say something else.

    >>> weights({"4": 0.6, "5": 0.2, " 4": 0.1, "Sure": 0.1}, range(1, 6))
    {4: 0.777..., 5: 0.222...}
    """
    known = {str(choice): choice for choice in choices}
    found: dict[int, float] = {}
    for token, probability in probabilities.items():
        if not (math.isfinite(probability) and 0.0 <= probability <= 1.0 + 1e-6):
            raise JudgeError("unreadable", f"{probability!r} is no probability")
        if (choice := known.get(token.strip())) is not None and probability:
            found[choice] = found.get(choice, 0.0) + probability
    if (total := sum(found.values())) < _SURE:
        said = max(probabilities, key=probabilities.__getitem__, default="")
        raise JudgeError("unreadable", f"{said[:40]!r} is no score from {min(known.values())} to {max(known.values())}")
    return {choice: found[choice] / total for choice in sorted(found)}
