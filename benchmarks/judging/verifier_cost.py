"""What a verifier costs for 1,000 answers: requests and tokens by kind, against a server that speaks its contract.

    .venv/bin/python benchmarks/judging/verifier_cost.py [--answers 1000] [--write FILE]

An answer has five sentences of 80 characters and five passages of 400, none of which repeats. Tokens are characters / 4
of all texts that are sent. The USD are an example: 0.10 per million input tokens and 0.50 per million output tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.grounding import KINDS, Opened, sample, table  # noqa: E402 - the tree may not be installed
from tests.support.verifier_server import VerifierServer  # noqa: E402

SENTENCES, SENTENCE, PASSAGES, PASSAGE = 5, 80, 5, 400
CHARACTERS = 4
PRICE_IN, PRICE_OUT = 0.10, 0.50
OUTPUT = {"lettucedetect chat": 25, "minicheck": 1}
"""Tokens of a reply: an average of one quoted span in every second answer; one word."""
AT_ONCE = 8


def answer(number: int):
    """An answer of which four sentences are in its passages."""
    said = [f"Sentence {one} of answer {number} says ".ljust(SENTENCE - 1, "x") + "." for one in range(SENTENCES)]
    passages = tuple(
        f"{said[one] if one else ''} Passage {one} of answer {number} ".ljust(PASSAGE - 1, "y") + "."
        for one in range(PASSAGES)
    )
    return sample(" ".join(said), passages=passages, id=str(number))


def texts(node: Any) -> int:
    """The characters of all texts in a request but the names of its keys and of the model."""
    if isinstance(node, str):
        return len(node)
    if isinstance(node, list):
        return sum(map(texts, node))
    if isinstance(node, dict):
        return sum(texts(one) for key, one in node.items() if key not in ("model", "role", "response_format"))
    return 0


def measure(name: str, count: int) -> tuple[int, float]:
    """Requests and input tokens of so many answers, eight at a time as in the product."""
    with VerifierServer() as server:
        opened = Opened(table(name, server.url, max_retries=3))

        async def main() -> None:
            for first in range(0, count, AT_ONCE):
                await opened.scores(*[answer(one) for one in range(first, min(first + AT_ONCE, count))])
            await opened.verifier.aclose()

        asyncio.run(main())
        return len(server.requests), sum(texts(one.body) for one in server.requests) / CHARACTERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    lines = [
        "# What a verifier costs for 1,000 answers",
        "",
        (
            f"{SENTENCES} sentences of {SENTENCE} characters and {PASSAGES} passages of {PASSAGE} an answer; tokens ="
            f" characters / {CHARACTERS}; example prices of {PRICE_IN:.2f} and {PRICE_OUT:.2f} USD per million tokens."
        ),
        "",
        "| kind | requests | input tokens | output tokens | USD |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in KINDS:
        requests, tokens = measure(name, options.answers)
        scale = 1000 / options.answers
        output = OUTPUT.get(name, 0) * requests * scale
        usd = (tokens * scale * PRICE_IN + output * PRICE_OUT) / 1e6
        lines.append(f"| {name} | {requests * scale:,.0f} | {tokens * scale:,.0f} | {output:,.0f} | {usd:.2f} |")
    print("\n".join(lines))
    if options.write:
        options.write.write_text("\n".join([*lines, ""]), "utf-8")


if __name__ == "__main__":
    main()
