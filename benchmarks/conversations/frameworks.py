"""Conversations that real frameworks lead, through two gateways in front of one store.

python tests/frameworks/environment.py langchain openai_agents
python benchmarks/conversations/frameworks.py [--conversations 1000] [--store URL]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.conversations.run import join
from gateway.config import Capture, Config, Upstream
from gateway.config import Gateway as GatewayTable
from gaugeway.records import Sample
from gaugeway.storage.stores import Store, from_url
from tests.frameworks import environment
from tests.support.llm_server import LLMServer, Reply, Request
from tests.support.running import running_gateway

_APPS = Path(__file__).parent / "apps"
_TEXT = "warranty drill battery invoice refund parcel manual charger motor blade filter pump valve handle receipt"
_WORDS = tuple(_TEXT.split(" "))
_CANNED = ("I don't know.", "Sorry, I can only answer questions about our products. Please contact support for others.")
_TIMEOUT_S = 3_600


class Model:
    """The model behind the gateways: one answer in ten is canned, half of the turns begin with a tool call."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Reply:
        with self._lock:
            body = self._body(request)
        return Reply(body=json.dumps(body).encode())

    def _body(self, request: Request) -> dict[str, Any]:
        body = request.body
        stored = request.path.endswith("/responses")
        turns = body.get("input" if stored else "messages")
        last = turns[-1] if isinstance(turns, list) else {"role": "user"}
        asks = bool(body.get("tools")) and last.get("role") == "user" and self._draw.random() < 0.5
        again = bool(body.get("tools")) and last.get("role") != "user" and self._draw.random() < 0.3
        call = (
            {"name": "search_handbook", "arguments": json.dumps({"query": self._text(2, 6)})} if asks or again else None
        )
        return self._responses(body, call) if stored else self._chat(body, call)

    def _text(self, least: int = 5, most: int = 90) -> str:
        return " ".join(self._draw.choices(_WORDS, k=self._draw.randint(least, most))).capitalize() + "."

    def _answer(self) -> str:
        return self._draw.choice(_CANNED) if self._draw.random() < 0.1 else self._text()

    def _id(self, prefix: str) -> str:
        return prefix + f"{self._draw.getrandbits(96):024x}"

    def _chat(self, body: dict[str, Any], call: dict[str, str] | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None if call else self._answer()}
        if call:
            message["tool_calls"] = [{"id": self._id("call_"), "type": "function", "function": call}]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop", "logprobs": None}
        head = {"id": self._id("chatcmpl-"), "object": "chat.completion", "created": 0, "model": body["model"]}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return {**head, "choices": [choice], "usage": usage}

    def _responses(self, body: dict[str, Any], call: dict[str, str] | None) -> dict[str, Any]:
        part = {"type": "output_text", "text": self._answer(), "annotations": [], "logprobs": []}
        item: dict[str, Any] = {"type": "message", "id": self._id("msg_"), "role": "assistant", "status": "completed"}
        item |= {"content": [part]}
        if call:
            item = {"type": "function_call", "id": self._id("fc_"), "call_id": self._id("call_"), "status": "completed"}
            item |= call
        usage: dict[str, Any] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        head = {"id": self._id("resp_"), "object": "response", "created_at": 0, "model": body["model"]}
        more = {"status": "completed", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        return {**head, **more, "output": [item], "usage": usage}


async def capture(framework: str, conversations: int, seed: int) -> list[Sample]:
    """Run an app of a framework through two gateways; return what they captured."""
    with LLMServer(Model(seed)) as upstream:
        settings = Config(
            gateway=GatewayTable(), upstreams=(Upstream(base_url=upstream.url),), capture=Capture(salt="a salt of both")
        )
        async with (
            running_gateway(upstream.url, config=settings) as one,
            running_gateway(upstream.url, config=settings) as other,
        ):
            urls = [f"http://127.0.0.1:{running.port}/v1" for running in (one, other)]
            command = [str(environment.interpreter(framework)), str(_APPS / f"{framework}_app.py")]
            process = await asyncio.create_subprocess_exec(*command, str(conversations), str(seed), *urls)
            if await asyncio.wait_for(process.wait(), _TIMEOUT_S):
                raise SystemExit(f"the app of {framework} failed")
            taken: list[Sample] = []
            async with asyncio.timeout(120):
                while len(taken) < len(upstream.requests):
                    for running in (one, other):
                        taken += [lease.sample for lease in await running.queue.lease(1000)]
                    await asyncio.sleep(0.05)
    return taken


async def check(samples: Sequence[Sample], store: Store) -> tuple[Counter[str], ...]:
    """Count, by kind of app, exchanges that continue others, those joined right, and those joined wrongly."""
    found = {
        one.id: one
        for start in range(0, len(samples), 500)
        for one in await store.links([s.id for s in samples[start : start + 500]])
    }
    truth = {sample.id: sample.tags for sample in samples}
    due, right, wrong, seen = Counter[str](), Counter[str](), Counter[str](), set[str]()
    for sample in sorted(samples, key=lambda one: one.started_at):
        kind, name, before = sample.tags["kind"], sample.tags["conversation"], found[sample.id].place.before
        if before is not None and truth[before]["conversation"] != name:
            wrong[kind] += 1
        if kind == "auxiliary":
            continue
        if name in seen:
            due[kind] += 1
            right[kind] += before is not None and truth[before]["conversation"] == name
        seen.add(name)
    return due, right, wrong, Counter(conversations=len(seen))


async def measure(framework: str, conversations: int, url: str, seed: int) -> None:
    """Capture and join the conversations of one framework; print the table."""
    samples = await capture(framework, conversations, seed)
    stores = [from_url(url) for _ in range(2)]
    try:
        _, results = await join(samples, stores, seed, jitter_s=0.05)
        due, right, wrong, counted = await check(samples, stores[0])
    finally:
        for store in stores:
            await store.aclose()
    print(f"{framework}: {counted['conversations']} conversations, {len(samples):,} exchanges\n")
    print("| app | exchanges that continue one | joined right | wrong |\n|---|--:|--:|--:|")
    for kind, n in [*sorted(due.items()), ("all", due.total())]:
        ok, bad = (one.total() if kind == "all" else one[kind] for one in (right, wrong))
        print(f"| {kind} | {n:,} | {100 * ok / n:.2f} % | {bad} |")
    print("\nResults: " + ", ".join(f"{name} {n:,}" for name, n in results.most_common()) + ".\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store")
    parser.add_argument("--frameworks", nargs="*", default=["langchain", "openai_agents"])
    given = parser.parse_args()
    for framework in given.frameworks:
        with tempfile.TemporaryDirectory() as directory:
            url = given.store or f"sqlite:///{directory}/store.db"
            share = given.conversations // len(given.frameworks)
            asyncio.run(measure(framework, share, url, given.seed))


if __name__ == "__main__":
    main()
