"""How often the checks of a judge's evidence refuse what is honest and catch what is not, on human-written texts.

    nice .venv/bin/python benchmarks/judging/evidence.py DIRECTORY

DIRECTORY holds QAGS as `evaluate` reads it (`qags_*.jsonl`: response, retrieved_contexts). Honest: a sentence of a
summary as a claim of it; a quote of the article as judges write it (whole, other case and marks, a word dropped, a gap
between two parts). Not honest: a claim of another summary; a quote of another article, with another number, without its
negation, or cut within a word. Prints shares with 95 % intervals (Wilson).
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gaugeway.text.language import NEGATIONS
from gaugeway.text.lexical.sentences import sentences
from monitors.metrics.judged.evidence import fault_of_claim, is_quoted
from monitors.statistics.agreement import wilson

SEED = 20261130
LEAST, MOST = 6, 40
Case = tuple[str, bool]  # what was tried, and whether it was accepted


def cut(text: str) -> list[str]:
    return [text[place.start : place.end] for place in sentences(text)]


def honest(rng: random.Random, said: str) -> Iterator[tuple[str, str]]:
    words = said.split()
    yield "whole", said
    yield "upper case, quoted", f"\u201c{said.upper().rstrip('.')}\u201d"
    yield "without marks", re.sub(r"[,;:\"'()]", "", said)
    plain = [at for at, word in enumerate(words) if word.isalpha() and word.lower() not in NEGATIONS]
    if len(words) >= 10 and plain:
        at = rng.choice(plain)
        yield "a word dropped", " ".join(words[:at] + words[at + 1 :])
    third = len(words) // 3
    yield "a gap marked", " ".join([*words[:third], "...", *words[-third:]])


def dishonest(rng: random.Random, said: str, other: str) -> Iterator[tuple[str, str]]:
    yield "of another article", other
    if number := re.search(r"\b[1-9]\d*\b", said):
        yield "another number", said[: number.start()] + str(int(number[0]) + 1) + said[number.end() :]
    words = said.split()
    if negation := [at for at, word in enumerate(words) if word.lower() in NEGATIONS]:
        yield "negation left out", " ".join(words[: negation[0]] + words[negation[0] + 1 :])
    if long := [word for word in words if word.isalpha() and len(word) > 7]:
        yield "cut within a word", rng.choice(long)[2:]


def tried(rows: list[dict]) -> Iterator[tuple[str, str, bool]]:
    rng = random.Random(SEED)
    for at, row in enumerate(rows):
        other = rows[(at + len(rows) // 2) % len(rows)]
        article, summary, strange = " ".join(row["retrieved_contexts"]), row["response"], other["response"]
        for case, what, claims in (("honest", "of its summary", summary), ("dishonest", "of another summary", strange)):
            for part in cut(claims):
                fault = fault_of_claim("claims", part, summary, ["What does the article say?"], [article])
                yield f"{case} claim", what, fault is None
        inside = [said for said in cut(article) if LEAST <= len(said.split()) <= MOST]
        outside = [said for said in cut(" ".join(other["retrieved_contexts"])) if LEAST <= len(said.split()) <= MOST]
        for said in inside:
            for kind, quote in honest(rng, said):
                yield "honest quote", kind, is_quoted(quote, [article])
            for kind, quote in dishonest(rng, said, rng.choice(outside or [""])):
                yield "dishonest quote", kind, is_quoted(quote, [article])


def main() -> int:
    print("| case | what | n | accepted | 95 % interval |\n|---|---|--:|--:|---|")
    for path in sorted(Path(sys.argv[1]).glob("qags_*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        counts, accepted = Counter(), Counter()
        for case, what, ok in tried(rows):
            counts[case, what] += 1
            accepted[case, what] += ok
        for key, n in counts.items():
            low, high = wilson(accepted[key], n)
            print(f"| {path.stem}: {key[0]} | {key[1]} | {n} | {accepted[key] / n:.2%} | {low:.2%} to {high:.2%} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
