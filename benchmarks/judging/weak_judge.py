"""A model too weak to judge, as the judge of 20 small RAG exchanges: what is scored, refused, spent and said.

    .venv/bin/python benchmarks/judging/installs.py
    nice .venv/bin/python benchmarks/judging/weak_judge.py --write benchmarks/judging/results/weak_judge.md

SmolLM2-135M-Instruct (4 bits) behind llama.cpp's own server, one thread, temperature 0, one call at a time; only the
context bounds its answers. Ten answers repeat the passage word for word, ten are about something else; four exchanges
have three passages, the others one. `gaugeway evaluate` judges them, through a tap that counts calls. A score is
doubtful if a claim behind it is not in the answer (`is_foreign`), or if a verdict "supported" or "contradicted" has no
quote that stands in a passage it names. Exit code 1: a doubtful score was stored, or a failure has no reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.judging import installs
from gaugeway.demo.servers import body
from tests.support.in_thread import in_thread
from tests.support.models import CHAT_MODEL, SERVER, doubts, is_foreign, served

ROOT = Path(__file__).parents[2]
METRICS = ("faithfulness", "answer_relevancy", "hallucination")
PASSAGES = 3
LONGEST_MESSAGE = 160
JSON = {b"content-type": b"application/json"}


class Call(NamedTuple):
    """One judge call; a call that was given up reports no tokens."""

    seconds: float
    ending: str
    given: int = 0
    answered: int = 0


@dataclass(frozen=True)
class Exchange:
    """One exchange; `right` says whether its answer repeats its passage or another one."""

    name: str
    question: str
    passages: list[str]
    answer: str
    right: bool

    def line(self) -> str:
        """As `gaugeway evaluate` reads it."""
        fields = {"user_input": self.question, "response": self.answer, "retrieved_contexts": self.passages}
        return json.dumps({"id": self.name} | fields)


def exchanges(count: int) -> list[Exchange]:
    """Questions of the demo with passages of its handbook."""
    demo = files("gaugeway") / "demo"
    texts = {line["id"]: line["text"] for line in map(json.loads, (demo / "handbook.jsonl").read_text().splitlines())}
    asked = [json.loads(line) for line in (demo / "questions.jsonl").read_text().splitlines()]
    made, names = [], list(texts)
    for number in range(count):
        question = asked[number * len(asked) // count]
        own = names.index(question["document"])
        passages = [texts[names[(own + step) % len(names)]] for step in range(PASSAGES if number % 5 == 4 else 1)]
        right = number % 2 == 0
        source = passages[0] if right else texts[names[(own + PASSAGES + 5) % len(names)]]
        made.append(Exchange(f"e{number}", question["question"], passages, ". ".join(source.split(". ")[1:3]), right))
    return made


@dataclass
class Tap:
    """An ASGI app that forwards judge calls to `target` and notes each: seconds, tokens, how it ended.

    It hangs up when the product does, as a connection would. `longest` is the most tokens of an answer: llama.cpp takes
    a request's own bound instead of its server's.
    """

    target: str
    longest: int = -1
    calls: list[Call] = field(default_factory=list)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        content = await body(receive)
        if content and self.longest > 0 and "max_tokens" in (asked := json.loads(content)):
            content = json.dumps(asked | {"max_tokens": min(asked["max_tokens"], self.longest)}).encode()
        path = scope["path"].removeprefix("/v1")
        async with httpx.AsyncClient(base_url=self.target, timeout=None) as client:
            began = time.perf_counter()
            asking = asyncio.ensure_future(client.request(scope["method"], path, content=content, headers=JSON))
            leaving = asyncio.ensure_future(_left(receive))
            await asyncio.wait((asking, leaving), return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if not asking.done():
                asking.cancel()
                self.calls.append(Call(time.perf_counter() - began, "given up"))
                return
            answer = asking.result()
            if content:
                self.calls.append(_noted(time.perf_counter() - began, answer))
        await send({"type": "http.response.start", "status": answer.status_code, "headers": [*JSON.items()]})
        await send({"type": "http.response.body", "body": answer.content})


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _noted(seconds: float, answer: httpx.Response) -> Call:
    if answer.status_code != httpx.codes.OK:
        return Call(seconds, f"HTTP {answer.status_code}")
    found = answer.json()
    usage = found["usage"]
    return Call(seconds, found["choices"][0]["finish_reason"], usage["prompt_tokens"], usage["completion_tokens"])


def judged(url: str, some: list[Exchange], timeout_s: float) -> tuple[dict[str, Any], str]:
    """The product's report on these, and what it says."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "data.jsonl").write_text("\n".join(map(Exchange.line, some)), "utf-8")
        judge = f'base_url = "{url}"\napi_key = "not-needed"\nmodel = "{CHAT_MODEL}"\ntimeout_s = {timeout_s}\n'
        judge += "concurrency = 1\nmax_retries = 0"
        tables = [f"[metrics.{name}]\nrate = 1.0" for name in METRICS if name != "answer_relevancy"]
        tables.append('[metrics.answer_relevancy]\nrate = 1.0\nmethod = "statements"')
        (home / "gaugeway.toml").write_text("\n".join((f"[judge]\n{judge}", *tables)), "utf-8")
        words = ["--config", "gaugeway.toml", "--metrics", ",".join(METRICS), "--concurrency", "1"]
        done = subprocess.run(
            [sys.executable, "-m", "gaugeway", "evaluate", "data.jsonl", *words, "--output", "out.json", "--fresh"],
            cwd=home,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        if not (home / "out.json").is_file():
            raise SystemExit(done.stdout + done.stderr)
        return json.loads((home / "out.json").read_text("utf-8")), done.stdout + done.stderr


@dataclass
class Found:
    """What came of it all."""

    claims: int = 0
    foreign: int = 0
    doubtful: list[str] = field(default_factory=list)
    scores: dict[tuple[str, bool], list[float]] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    unnamed: int = 0


def read(report: dict[str, Any], some: list[Exchange]) -> Found:
    """Sort the outcomes of a report, and check the evidence of its scores."""
    found, known = Found(), {exchange.name: exchange for exchange in some}
    for row in report["rows"]:
        exchange = known[row["sample"]["id"]]
        for evaluation in row["evaluations"]:
            metric, outcome = evaluation["metric"], evaluation["outcome"]
            kind = outcome.get("type") or outcome.get("kind")
            if "value" not in outcome:
                reason = outcome.get("error") or outcome.get("reason") or ""
                found.unnamed += not reason
                found.outcomes[f"{kind} {reason}".strip()] += 1
                continue
            found.outcomes["scored"] += 1
            found.scores.setdefault((metric, exchange.right), []).append(outcome["value"])
            evidence = outcome.get("evidence") or []
            if metric == "faithfulness":
                claims = [str(item["claim"]) for item in evidence if "claim" in item]
                found.claims += len(claims)
                found.foreign += sum(is_foreign(claim, exchange.answer) for claim in claims)
            if any(doubts(evidence, exchange.answer, exchange.passages)):
                found.doubtful.append(f"{exchange.name} {metric} {outcome['value']:.2f}")
    return found


def table(found: Found, calls: list[Call], some: list[Exchange], seconds: float) -> str:
    """What is written."""
    spent = [call.seconds for call in calls] or [0.0]
    told = [call for call in calls if call.given]
    endings = ", ".join(f"{ending} {count}" for ending, count in Counter(call.ending for call in calls).most_common())
    tokens = (
        f"{fmean(c.given for c in told):.0f} in, {fmean(c.answered for c in told):.0f} out" if told else "none reported"
    )
    lines = [
        "| | |",
        "|---|---|",
        f"| exchanges, metrics | {len(some)} ({sum(one.right for one in some)} right), {len(METRICS)} |",
        f"| outcomes | {', '.join(f'{name} {count}' for name, count in found.outcomes.most_common())} |",
        f"| doubtful scores stored | {len(found.doubtful)} of {found.outcomes['scored']} |",
        f"| claims not in the answer, of those behind a stored faithfulness | {found.foreign} of {found.claims} |",
        *(
            f"| mean {metric}, right / wrong answers | {_mean(found.scores.get((metric, True)))} / "
            f"{_mean(found.scores.get((metric, False)))} |"
            for metric in METRICS
        ),
        f"| judge calls, how they ended | {len(calls)}: {endings} |",
        f"| seconds a call: median, longest | {median(spent):.1f}, {max(spent):.1f} |",
        f"| tokens a call that ended | {tokens} |",
        f"| seconds in all | {seconds:.0f} |",
    ]
    return "\n".join(lines)


def _mean(values: list[float] | None) -> str:
    return f"{fmean(values):.2f} (n={len(values)})" if values else "- (n=0)"


def messages(said: str) -> str:
    """The lines that say what went wrong."""
    lines = [line.strip()[:LONGEST_MESSAGE] for line in said.splitlines() if "failed" in line or "judge" in line]
    return "\n".join(dict.fromkeys(lines))


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    cpu = named[0] if named else platform.machine()
    return f"{os.cpu_count()} cores {cpu}, one used; Python {platform.python_version()}"


def main() -> int:
    """Run, print, and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=60.0, help="judge.timeout_s")
    parser.add_argument("--longest", type=int, default=-1, help="tokens of an answer that the endpoint allows")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    some = exchanges(arguments.count)
    model, process = served("python", SERVER, "{port}", arguments.longest, at="/v1")
    tap, began = Tap(model, arguments.longest), time.perf_counter()
    try:
        with in_thread(tap) as address:
            report, said = judged(f"{address}/v1", some, arguments.timeout)
    finally:
        process.kill()
    seconds, found = time.perf_counter() - began, read(report, some)
    command = f"python benchmarks/judging/weak_judge.py --count {arguments.count} --timeout {arguments.timeout:g}"
    command += f" --longest {arguments.longest}" if arguments.longest > 0 else ""
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    head = f"`{command}` at {revision.stdout.strip()}. {installs.versions()}. {_machine()}."
    shown = table(found, tap.calls, some, seconds)
    page = f"# A model too weak to judge\n\n{head}\n\n{shown}\n\n```\n{messages(said)}\n```\n"
    print(page)
    print("\n".join(found.doubtful))
    if arguments.write:
        arguments.write.parent.mkdir(exist_ok=True)
        arguments.write.write_text(page, "utf-8")
    return int(bool(found.doubtful or found.unnamed))


if __name__ == "__main__":
    sys.exit(main())
