"""The product with everything switched on, and traffic in which everything happens that a dashboard can show."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.support import scripted_model as model
from tests.support.hostile_judge import HostileJudge
from tests.support.llm_server import Reply, Request
from tests.support.product import Product, product

CONFIG = """
[[upstreams]]
name = "main"
base_url = "{upstream}"

[routing]
eject_after = 1000

[prices."*"]
input = 1.0
output = 2.0

[capture]
resubmission_s = 0

[monitors]
otlp_receiver = true
join_window_s = 1
concurrency = 32

[judge]
base_url = "{judge}"
model = "large"
next_model = "next"
price_in = 1.0
price_out = 1.0
budget_usd_per_day = 1000000.0
anchors = "{anchors}"
timeout_s = 5
concurrency = 16
blind_after = 1000

[judge.small]
base_url = "{judge}"
model = "small"
audit_rate = 1.0

[embeddings]
base_url = "{embeddings}"
model = "embed-1"
price = 1.0
max_retries = 0

[metrics.faithfulness]
rate = 0.6
objective = 0.95

[metrics.answer_relevancy]
rate = 1.0
method = "questions"

[metrics.hallucination]
enabled = false

[metrics.context_relevancy]
enabled = false

[alerts]
bucket_s = 1
watermark_s = 0
min_slice_scores = 1

[[alerts.rules]]
metric = "lexical_groundedness"
apps = ["shop"]
slo = 0.9

[[alerts.rules]]
metric = "lexical_groundedness"
apps = ["mixed"]
slo = 0.7

[[alerts.rules]]
metric = "answer_relevancy"
slo = 0.1

[[notifiers]]
kind = "log"
"""
PASSAGE = "Mars has two moons, Phobos and Deimos."
GOOD = "Repeat after me: Mars has two moons."
BAD = "Repeat after me: The harbour was built by seven engineers."
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPANS = "1bf7651916cd43dd8448eb211c80319d"
FAULTS = ("malformed", "empty", "html", "wrong_enum")


class RetiringJudge(HostileJudge):
    """A judge whose endpoint announces that the model is shut down in a month."""

    def __init__(self) -> None:
        super().__init__(faults=FAULTS, rate=0.03)
        self.lists_models = True

    def answer(self, request: Request) -> Reply:
        """The list of models, or what the judge answers."""
        if not request.path.endswith("/models"):
            return super().answer(request)
        models = [{"id": "large", "shutdown_date": int(time.time()) + 30 * 86_400}]
        return Reply(body=json.dumps({"object": "list", "data": models}).encode())


@contextlib.contextmanager
def scene(directory: Path) -> Iterator[tuple[Product, Traffic]]:
    """Start it all; yields the product and its traffic."""
    anchors = directory / "anchors.jsonl"
    right = {"user_input": "How many moons?", "response": PASSAGE, "retrieved_contexts": [PASSAGE]}
    anchors.write_text(json.dumps({**right, "expected": {"faithfulness": 0.0}}) + "\n")
    upstream, embedder = model.Model(), model.Model()
    with (
        RetiringJudge() as judge,
        model.serve(upstream) as url,
        model.serve(embedder) as vectors,
    ):
        config = CONFIG.format(upstream=url, embeddings=vectors, judge=judge.url, anchors=anchors)
        with product(directory, config) as running:
            traffic = Traffic(running, upstream, embedder)
            with contextlib.closing(traffic):
                yield running, traffic


class Traffic:
    """What users and apps do."""

    def __init__(self, running: Product, upstream: model.Model, embedder: model.Model) -> None:
        self._running = running
        self._upstream, self._embedder = upstream, embedder
        self._numbers = itertools.count()
        self._client = httpx.Client(timeout=150, trust_env=False)
        self._answered = 0

    def scored(self) -> bool:
        """Whether every answer was evaluated by the metric that all of them get."""
        monitors = self._running.monitors
        return self._running.value(monitors, "gaugeway_verdicts_total", metric="lexical_groundedness") >= self._answered

    def close(self) -> None:
        """Ask no more."""
        self._client.close()

    def everything(self) -> None:
        """Good days, a bad one, failures, and things said beside the traffic."""
        self._ask(180, GOOD, model="first")
        self._ask(60, BAD, model="second")
        self._mixed(3)
        self._without_embeddings()
        self.again()
        self._mixed(40)  # what makes a slice was there before
        self._at_once(
            [_body(GOOD, model="first", app=f"app-{n}") for n in range(110)]
        )  # more than there are places for

    def again(self) -> None:
        """A little of everything that is counted, so that counters move while they are watched."""
        self._ask(10, GOOD, model="first")
        self._mixed(4)
        self._ask(3, GOOD, model="first", app="unlucky", same=99)
        self._beside()
        self._retrieved()
        self._failing()
        os.kill(self._running.pid_of("gateway"), signal.SIGHUP)  # it alone: the monitors would start anew

    def _ask(self, count: int, question: str, *, model: str, app: str = "shop", same: int = 5) -> None:
        """Ask so many times; every `same`-th time the same."""
        said = [f"{question} Number {next(self._numbers)}." if n % same else question for n in range(1, count + 1)]
        self._at_once([_body(one, model=model, app=app, stream=n % 2 == 0) for n, one in enumerate(said)])

    def _mixed(self, rounds: int) -> None:
        """One app's answers are good on the whole, and those of one of its models are not."""
        good, bad = _body(GOOD, model="first", app="mixed"), _body(BAD, model="second", app="mixed")
        self._at_once([good, good, good, good, bad] * rounds)

    def _at_once(self, bodies: Sequence[dict[str, Any]]) -> None:
        self._answered += len(bodies)
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        with ThreadPoolExecutor(min(len(bodies), 8)) as pool:
            list(pool.map(lambda body: self._post("/chat/completions", body, headers), bodies))

    def _post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
        answer = self._client.post(self._running.base_url + path, json=body, headers=headers)
        return answer.raise_for_status()

    def _beside(self) -> None:
        """No contexts, contexts by key, feedback, and the span of a tool that retrieves."""
        bare = {"model": "first", "messages": [{"role": "user", "content": "How many moons has Mars?"}]}
        answer = self._post("/chat/completions", bare)
        traffic = f"http://127.0.0.1:{self._running.port}/gaugeway/v1"
        feedback = {"exchange_id": answer.headers["x-gaugeway-exchange-id"], "reference": "Two.", "rating": 1.0}
        self._client.post(f"{traffic}/feedback", json=feedback).raise_for_status()
        self._client.post(f"{traffic}/contexts", json={"key": "k", "contexts": [PASSAGE]}).raise_for_status()
        attributes = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": PASSAGE}
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        span = {
            "traceId": SPANS,
            "spanId": "b7ad6b7169203331",
            "name": "retrieve",
            "startTimeUnixNano": "1790000000000000000",
            "endTimeUnixNano": "1790000000000000100",
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
        }
        payload = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
        self._client.post(f"{self._running.monitors}/v1/traces", json=payload).raise_for_status()

    def _retrieved(self) -> None:
        """An exchange with the span of its retriever, which took a quarter of a second."""
        number = next(self._numbers)
        trace = f"{number + 1:032x}"
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        bare = {"model": "first", "messages": [{"role": "user", "content": f"How many moons has Mars, {number}?"}]}
        began = time.time_ns() - 10**9
        self._post("/chat/completions", {**bare, "gaugeway": {"app": "shop"}}, headers)
        attributes = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": PASSAGE}
        span = {
            "traceId": trace,
            "spanId": f"{number + 1:016x}",
            "name": "retrieve",
            "startTimeUnixNano": str(began),
            "endTimeUnixNano": str(began + 250_000_000),
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
        }
        payload = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
        self._client.post(f"{self._running.monitors}/v1/traces", json=payload).raise_for_status()

    def _failing(self) -> None:
        """The upstream fails for a moment, and a request is refused for what it says beside the question."""
        self._upstream.failing = model.Failure(500)
        answer = self._client.post(f"{self._running.base_url}/chat/completions", json=_body("anything", model="first"))
        self._upstream.failing = None
        assert answer.status_code == 500
        refused = {**_body("anything", model="first"), "gaugeway": {"contexts": 1}}
        answer = self._client.post(f"{self._running.base_url}/chat/completions", json=refused)
        assert answer.status_code == 400

    def _without_embeddings(self) -> None:
        """Most of one app's answers come while there are no embeddings, and the others when there are some again."""
        self._running.until(self.scored, 400, what="what was asked before is scored")
        self._embedder.failing = model.Failure(500)
        self._ask(12, GOOD, model="first", app="unlucky", same=99)
        self._running.until(lambda: self._unlucky("error") >= 10, 60, what="evaluations fail without embeddings")
        self._embedder.failing = None
        self._ask(4, GOOD, model="first", app="unlucky", same=99)
        self._running.until(lambda: self._unlucky("pass", "fail") >= 1, 60, what="they succeed with embeddings")

    def _unlucky(self, *verdicts: str) -> float:
        stream = {"app": "unlucky", "metric": "answer_relevancy"}
        monitors = self._running.monitors
        return sum(
            self._running.value(monitors, "gaugeway_verdicts_total", **stream, verdict=verdict) for verdict in verdicts
        )


def _body(question: str, *, model: str, app: str = "shop", stream: bool = False) -> dict[str, Any]:
    return {
        "model": model,
        "stream": stream,
        "messages": [{"role": "user", "content": question}],
        "gaugeway": {"app": app, "contexts": [PASSAGE]},
    }
