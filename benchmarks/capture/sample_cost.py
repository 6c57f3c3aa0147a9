"""What the sampler process spends on one exchange: decoding, finding the contexts, redacting, encoding the result.

    python benchmarks/capture/sample_cost.py [--exchanges 2000] [--before PATH] [--profile]

An exchange has 8 KB of passages from a pool of 200, a question of its own and an answer of 300 words; half of the
answers are streamed. Printed is the CPU time per exchange in microseconds, the median over batches of 20, once prompts
are learned: all of it, and by stage. `--before` is another checkout of the project, run in the same way, interleaved.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import io
import json
import platform
import pstats
import random
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[2]
sys.path.insert(0, sys.argv[sys.argv.index("--tree") + 1] if "--tree" in sys.argv else str(ROOT))

from gateway.capture import result  # noqa: E402 - of the tree that is measured
from gateway.capture.factory import capture_of  # noqa: E402
from gateway.config import Capture as Settings  # noqa: E402
from gateway.handoff import sampler_process  # noqa: E402
from gateway.handoff.sampler_process import Answer  # noqa: E402
from gaugeway.exchange import Recording  # noqa: E402
from gaugeway.processes.worker_metrics import framed  # noqa: E402

BATCH, POOL, ROUNDS = 20, 200, 3
WORDS = [
    "valve",
    "shelf",
    "ferry",
    "orchard",
    "ledger",
    "boiler",
    "harbour",
    "meter",
    "garden",
    "bridge",
    "engine",
    "parcel",
    "refund",
    "customer",
    "warranty",
    "invoice",
    "return",
    "delivery",
    "carrier",
    "label",
    "account",
    "after",
    "before",
    "within",
    "days",
    "weeks",
    "the",
    "a",
    "of",
    "to",
    "is",
    "are",
    "must",
    "may",
    "by",
    "with",
]
PATTERN = (
    "Use the following pieces of context to answer the question at the end. If you don't know the answer, just say "
    "that you don't know.\n\n{contexts}\n\nQuestion: {question}\nHelpful Answer:"
)
OWN = "Help our customers. Be brief.\n\nWhat we know:\n{contexts}\n\nThe customer writes: {question}"


def text(rng: random.Random, words: int) -> str:
    """Sentences of eight to sixteen words, with a number in some."""
    said = []
    while words > 0:
        length = min(words, rng.randint(8, 16))
        some = rng.choices(WORDS, k=length)
        if rng.random() < 0.3:
            some[-1] = str(rng.randint(2, 900))
        said.append(" ".join(some).capitalize() + ".")
        words -= length
    return " ".join(said)


def recordings(layout: str, count: int) -> list[Any]:
    """Return recordings of one app."""
    rng = random.Random(layout)
    pool = [text(rng, 330) for _ in range(POOL)]
    found = []
    for number in range(count):
        passages = rng.sample(pool, 4)
        question, answer = f"{text(rng, 12)[:-1]} {number}?", text(rng, 300)
        body = {"model": "gpt-4o-mini", "messages": messages(layout, passages, question), "stream": number % 2 == 0}
        found.append(
            Recording(
                id=f"{number:032x}",
                started_at=1_760_000_000.0 + number,
                method="POST",
                path="/v1/chat/completions",
                route="chat",
                request_headers=[(b"content-type", b"application/json"), (b"user-agent", b"OpenAI/Python 1.99")],
                request_body=json.dumps(body).encode(),
                status=200,
                response_headers=[(b"content-type", b"text/event-stream" if body["stream"] else b"application/json")],
                chunks=streamed(answer) if body["stream"] else [completion(answer)],
                duration_s=1.0,
            )
        )
    return found


def messages(layout: str, passages: list[str], question: str) -> list[dict[str, Any]]:
    """Return the messages of one request."""
    if layout == "tool":
        call = {"id": f"call_{question[:20]}", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        return [
            {"role": "system", "content": "Help our customers."},
            {"role": "user", "content": question},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": json.dumps([{"text": one} for one in passages])},
        ]
    form = PATTERN if layout == "known" else OWN
    return [{"role": "user", "content": form.format(contexts="\n\n".join(passages), question=question)}]


def completion(answer: str) -> bytes:
    """Return the body of an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 2100, "completion_tokens": 400, "total_tokens": 2500}
    body = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(body).encode()


def streamed(answer: str) -> list[bytes]:
    """Return the chunks of a streamed answer: one per word."""
    found = []
    for word in answer.split(" "):
        choice = {"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}
        event = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
        found.append(b"data: " + json.dumps(event).encode() + b"\n\n")
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    end = {"id": "c", "object": "chat.completion.chunk", "choices": [last]}
    return [*found, b"data: " + json.dumps(end).encode() + b"\n\n", b"data: [DONE]\n\n"]


def measure(layout: str, count: int, *, profile: bool) -> dict[str, float]:
    """CPU microseconds per exchange by stage."""
    events: list[Any] = []
    capture = capture_of(Settings(), "key", events.append)
    decoder = msgspec.msgpack.Decoder(list[Recording])
    made = recordings(layout, count)
    batches = [framed(made[start : start + BATCH]) for start in range(0, count, BATCH)]
    taken: list[tuple[float, ...]] = []
    sources: dict[str, int] = {}
    profiler = cProfile.Profile()
    gc.collect()
    gc.freeze()
    for number, batch in enumerate(batches):
        if profile and number == len(batches) // 3:
            profiler.enable()
        with _uncollected():
            at = [time.process_time_ns()]
            decoded = decoder.decode(batch[4:])
            at.append(time.process_time_ns())
            results = _results(capture, decoded)
            at.append(time.process_time_ns())
            framed(Answer(results=results, events=[]))
            at.append(time.process_time_ns())
        taken.append(tuple((b - a) / 1000 / len(decoded) for a, b in pairwise(at)))
        if number >= len(batches) // 3:
            for one in results:
                name = one.sample.context_source if one.sample else str(one.error)
                sources[name] = sources.get(name, 0) + 1
    if profile:
        profiler.disable()
        out = io.StringIO()
        pstats.Stats(profiler, stream=out).sort_stats("tottime").print_stats(60)
        print(out.getvalue(), file=sys.stderr)
    warm = taken[len(taken) // 3 :]
    stages = [statistics.median(column) for column in zip(*warm, strict=True)]
    print(layout, sources, file=sys.stderr)
    first = sum(taken[0])
    return {"all": sum(stages), "decode": stages[0], "sample": stages[1], "encode": stages[2], "first": first}


_uncollected = getattr(sampler_process, "uncollected", nullcontext)
"""As in the sampler process; in older trees the garbage collector runs within a batch."""


def _results(capture: Any, decoded: list[Any]) -> list[Any]:
    """As the sampler process makes them; older trees take one recording after the other."""
    if hasattr(result, "capture_all"):
        return list(result.capture_all(capture, decoded))
    return [result.capture(capture, one) for one in decoded]


LAYOUTS = ("known", "own", "tool")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=2000)
    parser.add_argument("--before", type=Path, help="another checkout of the project")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one", choices=LAYOUTS, help=argparse.SUPPRESS)
    parser.add_argument("--tree", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.exchanges, profile=arguments.profile)))
        return
    trees = {"now": ROOT} | ({"before": arguments.before.resolve()} if arguments.before else {})
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(1 if arguments.profile else ROUNDS):
        for layout in LAYOUTS:
            for name, tree in trees.items():
                command = [sys.executable, __file__, "--one", layout, "--exchanges", str(arguments.exchanges)]
                command += ["--tree", str(tree)]
                command += ["--profile"] if arguments.profile else []
                done = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE)
                found.setdefault((layout, name), []).append(json.loads(done.stdout))
    print(f"{platform.python_version()}, {platform.processor() or platform.machine()}; us of CPU per exchange\n")
    print("| prompt | tree | all | decode | sample | encode | first batch |\n|---|---|--:|--:|--:|--:|--:|")
    for (layout, name), some in found.items():
        cells = [statistics.median(one[key] for one in some) for key in ("all", "decode", "sample", "encode", "first")]
        print(f"| {layout} | {name} | " + " | ".join(f"{one:.0f}" for one in cells) + " |")


if __name__ == "__main__":
    main()
