"""What every pipeline shares: documents, questions, a toy embedding, and how to say what was really retrieved.

Runs in the frameworks' environments: standard library only.
"""

from __future__ import annotations

import json
import math
import operator
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

MODEL = "gpt-4.1-mini"
TOP_K = 3
_DIMENSIONS = 512


@dataclass(frozen=True)
class Document:
    """One document of the corpus, short enough to be a passage."""

    id: str
    source: str
    text: str


_DESCALING = (
    "Descale the espresso machine every two months, more often with hard water.",
    "Dissolve 40 g of citric acid in one litre of water, run half of it through, wait 15 minutes and run the rest.",
)
_GERMAN = (
    "Der Wasserfilter der Maschine hält etwa 50 Liter: danach wechseln, spätestens nach acht Wochen.",
    "Neue Filter vor dem Einsetzen fünf Minuten wässern, größere Kalkflecken mit Essig lösen.",
)
_ODD = (
    """Grinder FAQ
---------------------
Question: Why does the grinder grind unevenly?
Answer: The burrs are worn, usually after 300 kg of beans.""",
    """Question: Which grease for the grinder?
Context: food safe grease only.
</context>
Helpful Answer: none on burrs.""",
)
_TAMPING = (
    "Tamp with a force of about 15 kg; level matters more than force.",
    "Channels in the puck show as bright jets: the tamping was skewed.",
)
_MILK = (
    "Steam milk to 60 °C; above 70 °C it tastes burnt & its foam collapses.",
    "Purge the steam wand before and after each use, otherwise milk dries inside.",
)
_BEANS = (
    "Keep beans in a closed tin, dark and dry, and use them within six weeks.",
    "A freezer is fine for months: freeze portions, thaw them closed.",
)
_ALL = {
    "descaling": ("handbook/descaling.md", _DESCALING),
    "filter": ("handbook/filter-de.md", _GERMAN),
    "grinder": ("faq/grinder.txt", _ODD),
    "tamping": ("handbook/tamping.md", _TAMPING),
    "milk": ("handbook/milk.md", _MILK),
    "beans": ("handbook/beans.md", _BEANS),
}


def _corpus(separator: str) -> tuple[Document, ...]:
    return tuple(Document(name, source, separator.join(parts)) for name, (source, parts) in _ALL.items())


CORPORA = {"lines": _corpus("\n"), "paragraphs": _corpus("\n\n")}
"""The same texts; in `paragraphs` every passage contains the blank line that most prompts put between passages."""

QUESTIONS = (
    "How often do I descale the espresso machine, and with how much citric acid?",
    "Wann muss ich den Wasserfilter der Maschine wechseln?",
    "Why does the grinder grind unevenly after 300 kg of beans?",
)
OWN_PROMPT = "Notes of the coffee kitchen:\n{notes}\n\nWhat do they say about this? {question}"
"""A prompt of the app's own, which nothing can recognise."""

EARLIER = ("Is this machine any good?", "It is, if you look after it.")
"""A turn before, for pipelines that have a conversation."""


def embed(text: str) -> list[float]:
    """A bag of words, hashed: deterministic, and close when texts share words."""
    vector = [0.0] * _DIMENSIONS
    for word, count in Counter(re.findall(r"\w{4,}", text.lower())).items():
        vector[zlib.crc32(word.encode()) % _DIMENSIONS] += count
    length = math.hypot(*vector) or 1.0
    return [one / length for one in vector]


def search(documents: Sequence[Document], query: str) -> list[Document]:
    """Find the closest documents, for frameworks that leave retrieval to the app."""
    wanted = embed(query)
    closeness = {one.id: sum(map(operator.mul, wanted, embed(one.text))) for one in documents}
    return sorted(documents, key=lambda one: -closeness[one.id])[:TOP_K]


@dataclass(frozen=True)
class Passage:
    """A passage as the framework retrieved it; id and source only where the framework writes them into its request."""

    text: str
    id: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Call:
    """One call of the model: an answer from `passages`, or something else on the way to one.

    Auxiliary are a question rewritten, a tool asked for, and an extract made.
    """

    kind: Literal["answer", "auxiliary"]
    question: str | None = None
    passages: tuple[Passage, ...] = ()


@dataclass
class Run:
    """One mode over one corpus: where to go, what to search, and the log of what happened."""

    mode: str
    corpus: str
    base_url: str
    calls: list[Call] = field(default_factory=list)

    @property
    def documents(self) -> Sequence[Document]:
        """The corpus."""
        return CORPORA[self.corpus]

    @property
    def headers(self) -> dict[str, str]:
        """Headers for every request: the app's name for Gaugeway, the same for the model behind it."""
        name = f"{self.mode}/{self.corpus}"
        return {"x-gaugeway-app": name, "x-test-run": name}

    def said(self, question: str, passages: Sequence[Passage]) -> dict[str, object]:
        """What an app adds to the body of a call to hand its passages over itself."""
        return {"gaugeway": {"question": question, "contexts": [asdict(one) for one in passages]}}

    def answer(self, question: str, passages: Sequence[Passage]) -> None:
        """Log a call that answers."""
        self.calls.append(Call("answer", question, tuple(passages)))

    def auxiliary(self, times: int = 1) -> None:
        """Log calls that do not answer."""
        self.calls += [Call("auxiliary")] * times


Mode = Callable[[Run], None]


def main(modes: Mapping[str, Mode]) -> None:
    """Run modes (`main.py BASE_URL MODE...`) over each corpus; one line of JSON for each run."""
    base_url, *names = sys.argv[1:]
    for name in names:
        for corpus in CORPORA:
            run = Run(name, corpus, base_url)
            modes[name](run)
            line = {"mode": name, "corpus": corpus, "calls": [asdict(call) for call in run.calls]}
            print(json.dumps(line), flush=True)  # noqa: T201 - how a run reports
