"""A judge's endpoint that does not repeat itself."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tests.support.llm_server import Reply, Request


def verdicts(supported: int) -> dict[str, Any]:
    """The answer that so many of four claims about a parcel are supported."""
    words = ["supported"] * supported + ["not_mentioned"] * (4 - supported)
    evidence = {"contexts": [0], "quote": "leaves the depot", "relevance": "relevant"}
    claims = [{"claim": f"It leaves Leipzig, {i}.", "verdict": word, **evidence} for i, word in enumerate(words)]
    return {"noncommittal": False, "claims": claims}


class Moody:
    """Says that `first` of four claims are supported and, when it is asked the same again, that two of them are.

    `second` is another second reply; `asked` counts how often it was asked what.
    """

    def __init__(self, second: Reply | None = None, *, first: int = 4) -> None:
        self.asked: Counter[str] = Counter()
        self.first = Reply(content=verdicts(first))
        self.second = second or Reply(content=verdicts(2))

    def __call__(self, request: Request) -> Reply:
        asked = re.sub(r"data-\d+", "data", request.text)  # the fences of a prompt have a code of their own each time
        self.asked[asked] += 1
        return self.first if self.asked[asked] == 1 else self.second
