"""What telling auxiliary calls apart costs: microseconds of CPU for one exchange, in prompts of about 8 KB.

    python benchmarks/extraction/auxiliary_calls.py [--rounds 7] [--requests 2000]

A row is a kind of traffic of one app: instructions recur, what users ask and what was retrieved varies. Printed is
the median of the rounds. Part of the sampler's work, off the request path.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from gateway.capture.auxiliary_calls import auxiliary  # noqa: E402 - the tree is not installed everywhere
from gaugeway.exchange import Request, Response  # noqa: E402

ANSWER = Response(status=200, body={}, text="Four weeks, and twice longer.", finish_reason="stop")
HANDBOOK = [
    json.loads(line)["text"] for line in (ROOT / "gaugeway/demo/handbook.jsonl").read_text("utf-8").splitlines()
]
QUESTIONS = [
    json.loads(line)["question"] for line in (ROOT / "gaugeway/demo/questions.jsonl").read_text("utf-8").splitlines()
]
HOUSE_RULES = "You help the readers of a library. " + "Be brief, be kind, and say so when you do not know. " * 22
STUFF = "Use the following pieces of context to answer the question at the end. If you don't know, say so.\n\n"
CONDENSE = "Rewrite the user's latest message into a self-contained search query. Output the query only."


def passages(rng):
    texts = rng.sample(HANDBOOK, len(HANDBOOK))
    return "\n\n".join(texts)[:8_000]


def question(rng):
    return f"{rng.choice(QUESTIONS)} It is about order {rng.randrange(10**6)}."


def bodies(name, rng):
    system, user = "", question(rng)
    if name == "passages in the user's message":
        user = f"{STUFF}{passages(rng)}\n\nQuestion: {user}\nHelpful Answer:"
    elif name == "passages in the system message":
        system = f"{HOUSE_RULES[:600]}\n<context>\n{passages(rng)}\n</context>"
    elif name == "fixed instructions, passages in the user's message":
        system, user = HOUSE_RULES, f"Context:\n{passages(rng)}\n\nQuestion: {user}"
    elif name == "fixed instructions, a short question":
        system = HOUSE_RULES
    elif name == "an auxiliary call":
        system = CONDENSE
    said = [{"role": "system", "content": system}] if system else []
    return {"messages": [*said, {"role": "user", "content": user}]}


KINDS = (
    "passages in the user's message",
    "passages in the system message",
    "fixed instructions, passages in the user's message",
    "fixed instructions, a short question",
    "an auxiliary call",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=2_000)
    chosen = parser.parse_args()
    print("| traffic | µs an exchange |\n|---|---:|")
    for name in KINDS:
        rng = random.Random(7)
        times = []
        for _ in range(chosen.rounds):
            requests = [
                Request(route="chat_completions", headers={}, body=bodies(name, rng)) for _ in range(chosen.requests)
            ]
            begin = time.process_time()
            for request in requests:
                auxiliary(request, ANSWER)
            times.append((time.process_time() - begin) * 1e6 / chosen.requests)
        print(f"| {name} | {statistics.median(times):.1f} |")


if __name__ == "__main__":
    main()
