"""A judge model that misbehaves on purpose, over real HTTP: one answer in ten each way, the rest as it should be."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from gaugeway.demo import model_judge as judging
from gaugeway.demo import model_text as texts
from gaugeway.records import Context, Evaluation, Sample
from gaugeway.settings.shared import Metric
from monitors.evaluation.evaluator import evaluate
from monitors.judges import Observer
from monitors.judges.middleware.limits import DEADLINE, Deadline
from monitors.judges.middleware.stack import StackSettings, build_stack
from monitors.judges.openai import OpenAIJudge
from monitors.metrics.registry import Mode, build
from tests.support.llm_server import LLMServer, Reply, Request, error

VERDICTS = ("verdict", "relevance", "contradicted", "relevant", "noncommittal")
METRICS = ("faithfulness", "hallucination", "answer_relevancy", "context_relevancy")
LISTS = ("claims", "verdicts", "contexts")
FAULTS = (
    "malformed",
    "truncated",
    "wrong_enum",
    "missing",
    "extra",
    "nan",
    "fifteen_of_ten",
    "html",
    "empty",
    "rate_limited",
    "stalled",
)


class HostileJudge(LLMServer):
    """Answers the built-in tasks as the scripted model does, and spoils a share `rate` of the answers for each fault.

    Every fault is drawn for every request, whatever the others do; of several one, chosen at random, comes to pass.
    `seen` counts what was done, `drawn` what was drawn. `sane()` ends it. With `storms` a 429 is followed by some more,
    to whomever they go.
    """

    def __init__(
        self,
        *,
        faults: Sequence[str] = FAULTS,
        rate: float = 0.1,
        stall_s: float = 30.0,
        latency_s: float = 0.0,
        storms: int = 3,
        seed: int = 1,
        clean: Callable[[Request], Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(self._spoil)
        self.seen: Counter[str] = Counter()
        self.drawn: Counter[str] = Counter()
        self._faults = tuple(faults)
        self._rate = rate
        self._stall_s = stall_s
        self._latency_s = latency_s
        self._storms = storms
        self._storming = 0
        self._clean = clean or scripted
        self._draws = random.Random(seed)
        self._guard = threading.Lock()

    def sane(self) -> None:
        """From now on, answer as one should."""
        with self._guard:
            self._faults, self._storming = (), 0

    def _spoil(self, request: Request) -> Reply:
        with self._guard:
            fault = self._fault()
            self.seen[fault or "fine"] += 1
        reply = Reply(content=self._clean(request), delay_s=self._latency_s, tokens=(400, 60))
        return reply if fault is None else spoiled(reply, fault, stall_s=self._stall_s)

    def _fault(self) -> str | None:
        drawn = [one for one in self._faults if self._draws.random() < self._rate]
        self.drawn.update(drawn)
        if self._storming:
            self._storming -= 1
            return "rate_limited"
        fault = self._draws.choice(drawn) if drawn else None
        if fault == "rate_limited":
            self._storming = self._draws.randrange(self._storms + 1)
        return fault


def scripted(request: Request) -> Mapping[str, Any]:
    """What the scripted model answers."""
    messages = [(one["role"], one["content"]) for one in request.body["messages"]]
    task = judging.task_of(messages)
    if task is None:
        raise ValueError("not a task of the scripted model")
    return judging.judge(task, messages)


def spoiled(reply: Reply, fault: str, *, stall_s: float) -> Reply:
    """The reply with one thing wrong."""
    text = json.dumps(reply.content, ensure_ascii=False)
    content: Any = {
        "malformed": lambda: text.replace('": ', '" ', 1),
        "wrong_enum": lambda: _with_verdicts(reply.content, "mostly"),
        "missing": lambda: _without_a_verdict(reply.content),
        "extra": lambda: _with_more(reply.content),
        "nan": lambda: _with_verdicts(reply.content, float("nan")),
        "fifteen_of_ten": lambda: _with_verdicts(reply.content, 15),
        "empty": lambda: "",
    }.get(fault, lambda: reply.content)()
    if fault == "truncated":
        told = len(text) % 2  # some servers do not say that they cut
        return replace(reply, content=text[: 2 * len(text) // 3], finish_reason="length" if told else "stop")
    if fault == "html":
        return replace(reply, body=b"<!doctype html><title>502</title><h1>Bad gateway</h1>")
    if fault == "rate_limited":
        return error(429, "slow down", headers={"retry-after-ms": "50"})
    if fault == "stalled":
        return replace(reply, delay_s=stall_s)
    return replace(reply, content=content)


def _with_verdicts(node: Any, value: Any) -> Any:
    """Every verdict replaced."""
    if isinstance(node, list):
        return [_with_verdicts(one, value) for one in node]
    if isinstance(node, dict):
        return {key: value if key in VERDICTS else _with_verdicts(one, value) for key, one in node.items()}
    return node


def _without_a_verdict(node: dict[str, Any]) -> dict[str, Any]:
    """The last item that carries an id or index is gone; where items are told apart by nothing, its verdict is."""
    for name in LISTS:
        items = node.get(name)
        if isinstance(items, list) and items and isinstance(items[-1], dict):
            last = items[-1]
            if "id" in last or "index" in last:
                return {**node, name: items[:-1]}
            return {**node, name: [*items[:-1], {key: one for key, one in last.items() if key not in VERDICTS}]}
    return {key: one for key, one in node.items() if key not in VERDICTS}


def _with_more(node: dict[str, Any]) -> dict[str, Any]:
    """Verdicts on things nobody asked about, a second opinion that differs on one that was, and unknown keys."""
    more: dict[str, Any] = {"confidence": 15, "note": "ignore the other fields"}
    for name in LISTS:
        items = node.get(name)
        if isinstance(items, list) and items and isinstance(items[-1], dict):
            last = items[-1]
            if "id" in last or "index" in last:
                key = "id" if "id" in last else "index"
                strangers = [{**last, key: last[key] + 15}, _opposite(last)]
                return {**node, name: [*items, *strangers], **more}
            return {**node, name: [{**one, "confidence": 15} for one in items], **more}
    return {**node, **more}


def _opposite(node: dict[str, Any]) -> dict[str, Any]:
    opposites = {"supported": "contradicted", "contradicted": "supported", "not_mentioned": "supported"}
    opposites |= {"relevant": "irrelevant", "borderline": "irrelevant", "irrelevant": "relevant"}
    return {
        key: opposites.get(one, one) if isinstance(one, str) else not one if isinstance(one, bool) else one
        for key, one in node.items()
    }


def samples(count: int) -> list[Sample]:
    """Questions with a passage and an answer that is partly right, partly invented, partly contradicted."""
    demo = files("gaugeway") / "demo"
    passages = {one["id"]: one["text"] for one in map(json.loads, (demo / "handbook.jsonl").read_text().splitlines())}
    asked = [json.loads(line) for line in (demo / "questions.jsonl").read_text().splitlines()]
    made = []
    for number in range(count):
        one = asked[number % len(asked)]
        said = texts.sentences(passages[one["document"]])
        right, wrong = said[number % len(said)], said[(number + 1) % len(said)]
        invented = ["", "The harbour of Lisbon was rebuilt in 1931 by seven engineers."][number % 2]
        digits = str.maketrans("123456789", "912345678")
        answer = f"{right} {wrong.translate(digits)} {invented}".strip()
        contexts = (Context(text=passages[one["document"]]), Context(text="Bread is baked from flour and water."))
        made.append(
            Sample(id=f"s{number}", started_at=0.0, question=one["question"], response=answer, contexts=contexts)
        )
    return made


@dataclass
class Run:
    """What came of judging some samples."""

    evaluations: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    limit: int = 0
    blind: bool = False
    kinds: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    calls: int = 0

    def judged(self, model: str, seconds: float, input_tokens: int, output_tokens: int, usd: float) -> None:
        self.calls += 1

    def failed(self, model: str, kind: str) -> None:
        self.kinds[kind] += 1


class Bench(Observer):
    """A guarded judge and the four metrics on top, as the product builds them; judges in rounds."""

    def __init__(self, url: str, *, mode: Mode = "fused", timeout_s: float = 0.5, concurrency: int = 8) -> None:
        self._now = Run()
        self._inner = OpenAIJudge(
            url,
            "key",
            "hostile-1",
            timeout_s=timeout_s,
            concurrency=concurrency,
            max_retries=0,
            observer=self,
        )
        self._guarded = build_stack(self._inner, StackSettings(concurrency=concurrency), observer=self)
        settings = {"answer_relevancy": {"method": "statements"}}
        chosen = {name: Metric(options=settings.get(name, {})) for name in METRICS}
        catalogue = build(chosen, self._guarded.judge, None, mode)
        self._metrics = [one.metric for one in catalogue.enabled if one.metric.name in METRICS]
        self._at_once = asyncio.Semaphore(concurrency)

    def judged(self, *call: Any) -> None:
        self._now.judged(*call)

    def failed(self, model: str, kind: str) -> None:
        self._now.failed(model, kind)

    def unusable(self, model: str, reason: str) -> None:
        self._now.unusable[reason] += 1

    async def round(self, some: Sequence[Sample]) -> Run:
        """Judge every sample by every metric."""
        run = self._now = Run()
        started = time.perf_counter()
        for found in await asyncio.gather(*(self._sample(one) for one in some)):
            run.evaluations += found
        run.seconds = time.perf_counter() - started
        run.limit, run.blind = self._guarded.concurrency.limit, self._guarded.breaker.is_open
        return run

    async def _sample(self, sample: Sample) -> list[Evaluation]:
        async with self._at_once:
            DEADLINE.set(Deadline(30.0))
            evaluating = (evaluate(one, sample, rate=1.0, clock=time.perf_counter) for one in self._metrics)
            return list(await asyncio.gather(*evaluating))

    async def aclose(self) -> None:
        await self._guarded.breaker.aclose()
