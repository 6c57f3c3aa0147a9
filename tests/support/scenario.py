"""A RAG app whose parts break one at a time, and the model, judge and Alertmanager around the product that watch it.

Nothing is marked: the model writes sentences that stand in the passages it was sent and others that do not, the judge
looks every sentence up. How many stand there is drawn from the question alone, so that a question always fares alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx
import msgspec

from gaugeway.demo import model_judge
from gaugeway.demo.model_judge import Block, fenced
from monitors.alerting.stream import Case
from tests.support.clock import Patience
from tests.support.in_thread import in_thread
from tests.support.product import Product, Webhook, product
from tests.support.receivers import Alertmanager, alertmanager

SPEED = 600
"""One second of a test stands for ten minutes: buckets of a minute last a tenth of a second."""
BUCKET_S, WATERMARK_S = 60.0 / SPEED, 1.0
BUDGET = 1.0 * SPEED
"""`false_alerts_per_30d` that is 1 in 30 of the days that go by so fast: the default budget, bucket by bucket."""
CLAIMS, BEHIND = 5, 40
STAY, ROAM = "Say only what the passages say.", "Say whatever you know, too."
TOPICS = {
    "refund": "How long does the refund for parcel {n} take once it is back in the warehouse?",
    "delivery": "When is the delivery of order {n} due if the courier missed me yesterday?",
    "voucher": "Why was voucher {n} not accepted at the checkout with my student discount?",
    "invoice": "Where do I find invoice {n} with the tax number of my company on it?",
    "customs": "Which customs form and which duties apply when item {n} is shipped to Norway?",
}
STATED, REWORDED = "is kept by", "lies with"
HARD = "customs"
SCATTER = 4.0
"""Shares of supported claims are Beta(4 m, 4 (1 - m)): scores of a mean of .90 have a standard deviation of .18."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One question to be asked."""

    app: str
    topic: str = "refund"
    tags: str = ""
    system: str = STAY
    retrieval: bool = True


class Script:
    """Model and judge, an ASGI app: `/app` answers, `/judge` judges; neither lists its models.

    What it may do wrong can be changed at any time.

    `means` are the expected faithfulness by app, and by topic for topics that differ. A strict judge calls the share
    `strict` of what is fine not fine. `failing` is the status it answers instead, after `delay_s`.
    """

    def __init__(self) -> None:
        self.means: dict[str, float] = {}
        self.roaming = 0.65
        self.strict = 0.0
        self.failing = 0
        self.delay_s = 0.0
        self.judged = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        body = json.loads(raw or b"{}")
        judging = scope["path"].startswith("/judge")
        status = 404 if scope["method"] == "GET" else self.failing if judging and self.failing else 200
        await asyncio.sleep(self.delay_s if judging else 0.0)
        said = {"error": {"message": "out", "type": "server_error", "param": None, "code": None}}
        if status == 200:
            said = completion(body, json.dumps(self.judge(body)) if judging else self.answer(body))
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(said).encode()})

    def answer(self, body: dict[str, Any]) -> str:
        """Some sentences from the passages about the question's topic, the others from nowhere."""
        system, user = (message["content"] for message in body["messages"])
        question = re.search(r"Question: (.*) \n", user)[1]  # type: ignore[index]
        topic = next(one for one in TOPICS if one in question)
        app = system.split()[3].rstrip(".")
        mean = self.means.get(topic, self.means.get(app, 0.9)) if STAY in system else self.roaming
        draw = random.Random(question)
        share = draw.betavariate(SCATTER * mean, SCATTER * (1.0 - mean))
        known = [one for one in user.split("Context: ")[1].replace("\n\n", " ").split(". ") if topic in one]
        said = []
        for number in range(CLAIMS):
            good = draw.random() < share and len(known) > number
            said.append(
                _reworded(known[number]) if good else f"Our {topic} desk keeps number {draw.randrange(10**6)} in Bruges"
            )
        return ". ".join(said) + "."

    def judge(self, body: dict[str, Any]) -> dict[str, Any]:
        """Look every claim up in the contexts, and every statement of them for the question's topic."""
        self.judged += 1
        system, user = (message["content"] for message in body["messages"])
        blocks = fenced(user)
        question = next((one.text for one in blocks if one.name == "question"), None)
        if question is None:  # no judgement of an answer: what is to be given a name, for instance
            said = [("system", system), ("user", user)]
            return model_judge.judge(model_judge.task_of(said) or "", said)
        contexts = [one for one in blocks if one.name == "context"]
        if system.startswith("Task: context_statements"):
            topic = next(one for one in TOPICS if one in question)
            return {"contexts": [self._statements(one, topic) for one in contexts]}
        response = next(one.text for one in blocks if one.name == "response")
        return {"noncommittal": False, "claims": [self._claim(one, contexts) for one in _sentences(response)]}

    def _claim(self, claim: str, contexts: Sequence[Block]) -> dict[str, Any]:
        stated = claim.replace(REWORDED, STATED)
        there = [int(one.attributes["index"]) for one in contexts if stated in one.text] if self._passes(claim) else []
        verdict = "supported" if there else "not_mentioned"
        quote = stated if there else ""
        return {"claim": claim, "verdict": verdict, "relevance": "relevant", "contexts": there, "quote": quote}

    def _statements(self, one: Block, topic: str) -> dict[str, Any]:
        statements = [
            {"statement": said, "relevant": topic in said and self._passes(said)} for said in _sentences(one.text)
        ]
        return {"index": int(one.attributes["index"]), "statements": statements}

    def _passes(self, text: str) -> bool:
        return crc32(text.encode()) % 1000 >= 1000 * self.strict


def _reworded(text: str) -> str:
    """The same in other words: of what a passage says word for word, no judge may say that it is not mentioned."""
    return text.replace(STATED, REWORDED)


def _sentences(text: str) -> list[str]:
    return [one.strip(" .\n") for one in text.split(". ") if one.strip(" .\n")]


def completion(body: dict[str, Any], content: str) -> dict[str, Any]:
    """Four characters of messages, schema and answer count as a token."""
    message = {"role": "assistant", "content": content, "refusal": None}
    asked = "".join(one["content"] for one in body["messages"]) + json.dumps(body.get("response_format", ""))
    tokens = {"prompt_tokens": len(asked) // 4, "completion_tokens": len(content) // 4}
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {**tokens, "total_tokens": sum(tokens.values())},
    }


def passages(topic: str, number: int) -> str:
    """Three passages of three sentences; six to nine of these are about the topic."""
    draw = random.Random(f"{topic} {number}")
    said = [f"The {topic} rule {draw.randrange(10**6)} {STATED} clerk {draw.randrange(1000)}" for _ in range(9)]
    for index in draw.sample(range(9), draw.randint(0, 3)):
        said[index] = f"The canteen serves soup {draw.randrange(10**6)} at noon"
    return "\n\n".join(". ".join(said[start : start + 3]) + "." for start in range(0, 9, 3))


PROMPT = (
    "Use the following pieces of retrieved context to answer the question. Keep it short.\n"
    "Question: {question} \nContext: {contexts} \nAnswer:"
)
CONFIG = """
[[upstreams]]
base_url = "{url}/app/v1"

[judge]
base_url = "{url}/judge/v1"
model = "judge-1"
concurrency = 8
cache = "off"
{judge}

[metrics.faithfulness]
rate = 1.0

{metrics}

[alerts]
false_alerts_per_30d = {budget}
bucket_s = {bucket}
watermark_s = {watermark}
slices = ["app"]

{rules}

[[notifiers]]
kind = "alertmanager"
url = "{alertmanager}"
resend_s = 1.0
severities = ["page"]
"""
RULE = """
[[alerts.rules]]
name = "answers-{number}"
metric = "faithfulness"
apps = {apps}
slo = {slo}
"""
JUDGED_TOO = """
[metrics.context_relevancy]
rate = 1.0
"""
ROUTES = """
route: {{receiver: people, group_by: [alertname, app], group_wait: 0s, group_interval: 1s, repeat_interval: 1s}}
receivers: [{{name: people, webhook_configs: [{{url: "{hook}"}}]}}]
"""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The running product with everything around it."""

    running: Product
    script: Script
    hook: Webhook
    alertmanager: Alertmanager
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def ask(self, asks: Sequence[Ask], *, per_s: float = 80.0) -> None:
        """Ask through the gateway at this pace at most; every answer must come."""
        asyncio.run(self._ask(asks, per_s))

    async def _ask(self, asks: Sequence[Ask], per_s: float) -> None:
        places, begin = asyncio.Semaphore(12), time.monotonic()
        async with httpx.AsyncClient(base_url=self.running.base_url, timeout=30) as client:

            async def one(place: int, what: Ask) -> None:
                await asyncio.sleep(begin + place / per_s - time.monotonic())
                async with places:
                    response = await client.post("/chat/completions", **self._request(what))
                    assert response.status_code == 200, response.text

            await asyncio.gather(*(one(place, what) for place, what in enumerate(asks)))

    def _request(self, what: Ask) -> dict[str, Any]:
        number = next(self.numbers)
        question = TOPICS[what.topic].format(n=number)
        found = what.topic if what.retrieval else next(one for one in TOPICS if one != what.topic)
        messages = [
            {"role": "system", "content": f"You answer for {what.app}. {what.system}"},
            {"role": "user", "content": PROMPT.format(question=question, contexts=passages(found, number))},
        ]
        tags = {"x-gaugeway-tags": what.tags} if what.tags else {}
        return {"json": {"model": "m", "messages": messages}, "headers": {"x-gaugeway-app": what.app, **tags}}

    def scored(self, app: str, metric: str = "faithfulness") -> float:
        """How many scores there are."""
        return self.running.value(self.running.monitors, "gaugeway_score_count", app=app, metric=metric)

    def mean(self, app: str, metric: str = "faithfulness") -> float:
        """The mean of all scores there are."""
        return self.running.value(self.running.monitors, "gaugeway_score_sum", app=app, metric=metric) / self.scored(
            app, metric
        )

    def settle(self) -> None:
        """Wait until what was asked is judged, for as long as some of it is: how fast depends on the machine."""
        while waiting := self._waiting():
            fewer = functools.partial(lambda most: self._waiting() < most, waiting)
            self.running.until(fewer, 60, what=f"fewer than {waiting} wait to be judged")

    def _waiting(self) -> int:
        queue = self.running.get("/api/status")["queue"]
        return int(queue["ready"] + queue["leased"])

    def told(self, app: str, status: str = "firing") -> list[dict[str, Any]]:
        """What people were told about an app, by way of Alertmanager, in the order of telling.

        Alertmanager leaves out empty annotations, such as those of a cause that is still looked for.
        """
        every = [alert for body in list(self.hook.bodies) for alert in body["alerts"]]
        found = [one for one in every if one["labels"]["app"] == app and one["status"] == status]
        return [one | {"annotations": defaultdict(str, one["annotations"])} for one in found]

    def active(self, app: str) -> list[dict[str, Any]]:
        """The alerts about an app that Alertmanager holds for active."""
        return [one for one in self.alertmanager.alerts() if one["labels"]["app"] == app]

    def onset(self, app: str) -> float:
        """When the latest alert about an app says that the drop began, Unix seconds."""
        return next(float(one["finding"]["onset"]) for one in self.running.get("/api/alerts") if one["app"] == app)

    def took(self, app: str, since: float) -> int:
        """How many scores of an app there were from `since` to the alarm; prints that, and what was named at last."""
        cases = msgspec.json.decode(self.running.saved_states()["alerts/cases"], type=list[Case])
        alarm_at = max(one.alarm_at for one in cases if one.alert.app == app)
        count, cause = self.between(app, since, alarm_at), self.told(app)[-1]["annotations"]
        print(f"{app}: alarm after {count} scores; {cause['likely_cause']}: {cause['cause_detail']}")  # noqa: T201
        return count

    def between(self, app: str, since: float, until: float) -> int:
        """How many of an app's answers of that time have a score."""
        points = self.running.get(f"/api/exchanges?app={app}&metric=faithfulness&limit=1000")
        return sum(one["outcome"] == "score" and since <= one["started_at"] < until for one in points)

    def prompt(self, app: str) -> str:
        """The version of the prompt of an app's newest exchange."""
        (newest,) = self.running.get(f"/api/exchanges?app={app}&limit=1")
        return str(self.running.get(f"/api/exchanges/{newest['sample_id']}")["sample"]["prompt"])

    def ask_until(
        self,
        make: Callable[[], Sequence[Ask]],
        condition: Callable[[], object],
        *,
        within_s: float = 200.0,
        at_most: int = 10_000,
    ) -> int:
        """Go on asking what `make` gives for each round until the condition holds; return how many were asked.

        No faster than it is judged, and no more than `at_most`: then all that is left is to wait.
        """
        patience, asked = Patience(within_s), 0
        while not condition():
            assert not patience.is_over(), f"nothing after {asked} questions\n{self.running.get('/api/alerts')}"
            if self._waiting() > BEHIND or asked >= at_most:
                time.sleep(0.2)
                continue
            some = make()
            self.ask(some)
            asked += len(some)
        return asked


def anchors(count: int) -> str:
    """So many anchors as JSON lines: answers that say what stands in the passages."""
    lines = []
    for number in range(count):
        topic = list(TOPICS)[number % len(TOPICS)]
        found = passages(topic, -number)
        said = [one for part in found.split("\n\n") for one in _sentences(part)]
        good = [one for one in said if topic in one]
        line: dict[str, Any] = {"id": f"anchor {number}", "user_input": TOPICS[topic].format(n=number)}
        line |= {"response": _reworded(". ".join(good[:CLAIMS])) + ".", "retrieved_contexts": found.split("\n\n")}
        lines.append(
            json.dumps({**line, "expected": {"faithfulness": 1.0, "context_relevancy": len(good) / len(said)}})
        )
    return "\n".join(lines)


@contextlib.contextmanager
def lab(
    directory: Path,
    *,
    rules: Sequence[tuple[Sequence[str], float]],
    judge: str = "",
    metrics: str = JUDGED_TOO,
    more: str = "",
    script: Script | None = None,
) -> Iterator[Lab]:
    """Run all of it; `rules` are apps and the mean faithfulness they are promised, `more` is put after them."""
    script = script or Script()
    with contextlib.ExitStack() as stack:
        hook = stack.enter_context(contextlib.closing(Webhook()))
        real = stack.enter_context(alertmanager(directory))
        config = directory / f"alertmanager-{httpx.URL(real.url).port}.yml"
        config.write_text(ROUTES.format(hook=hook.url), "utf-8")
        httpx.post(f"{real.url}/-/reload", timeout=5).raise_for_status()
        url = stack.enter_context(in_thread(script))
        written = [RULE.format(number=n, apps=json.dumps(apps), slo=slo) for n, (apps, slo) in enumerate(rules)]
        values: dict[str, Any] = {
            "url": url,
            "alertmanager": real.url,
            "rules": "".join([*written, more]),
            "judge": judge,
            "metrics": metrics,
        }
        values |= {"budget": BUDGET, "bucket": BUCKET_S, "watermark": WATERMARK_S}
        running = stack.enter_context(product(directory, CONFIG.format(**values)))
        yield Lab(running=running, script=script, hook=hook, alertmanager=real)
