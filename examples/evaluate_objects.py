"""Score your own objects from Python: `python examples/evaluate_objects.py`."""

from __future__ import annotations

from dataclasses import dataclass

from gaugeway import evaluate


@dataclass
class Turn:
    """What an app stores about one answer, with its own field names."""

    asked: str
    answered: str
    passages: list[str]


TURNS = [
    Turn("How long is the warranty?", "The warranty is two years.", ["All lamps have a warranty of two years."]),
    Turn("Who pays for returns?", "You pay the postage yourself.", ["Returns are free within 30 days."]),
]

FIELDS = {"user_input": "asked", "response": "answered", "retrieved_contexts": "passages"}

if __name__ == "__main__":
    run = evaluate(TURNS, fields=FIELDS)
    print(run)
    for row in run.worst("lexical_groundedness", 1):
        print("worst:", row.sample.response, row.score("lexical_groundedness"))
