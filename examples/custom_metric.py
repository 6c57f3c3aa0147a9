"""A custom metric, as an object and by import string: `python examples/custom_metric.py`."""

from __future__ import annotations

from gaugeway import Sample, Score, Skipped, evaluate


class Brevity:
    """1 for an answer of at most `words` words, less for a longer one."""

    name = "brevity"

    def __init__(self, *, words: int = 30) -> None:
        self._words = words
        self.version = f"1-{words}"

    async def score(self, sample: Sample) -> Score | Skipped:
        """Score one sample."""
        if not sample.response.strip():
            return Skipped("no_response")
        count = len(sample.response.split())
        return Score(min(1.0, self._words / count), f"{count} words")


DATA = [
    {"question": "How long is the warranty?", "answer": "Two years."},
    {"question": "Who pays for returns?", "answer": "We do, " + "and gladly so, " * 20 + "for 30 days."},
]

if __name__ == "__main__":
    print(evaluate(DATA, metrics=[Brevity(words=20)]))
    # With options, by import string: the class may live in any module that can be imported.
    print(evaluate(DATA, metrics={f"{__name__}:Brevity": {"words": 10}}))
