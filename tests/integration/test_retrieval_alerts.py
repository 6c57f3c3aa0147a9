"""What goes wrong in a retrieval, in the running product: who pages under which name, and where the cause is shown."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time

import httpx

from tests.support.in_thread import in_thread
from tests.support.product import Webhook, product

CONFIG = """
[[upstreams]]
base_url = "{url}/v1"

[alerts]
bucket_s = 0.5
watermark_s = 0.5
slices = ["app"]
repeat_interval_s = 1.0

{rules}

[[notifiers]]
kind = "webhook"
url = "{hook}"
"""
SIGNAL_RULES = """
[[alerts.rules]]
metric = "retriever_score"
slo = 0.4
direction = "drop"

[[alerts.rules]]
metric = "no_contexts"
slo = 0.08
"""
GROUNDED = """
[[alerts.rules]]
metric = "lexical_groundedness"
slo = 0.85
"""
TOPICS = {
    "parcel": "How long does the refund for parcel {n} take once it is back in the warehouse?",
    "voucher": "Why was voucher {n} not accepted at the checkout with my student discount?",
    "invoice": "Where do I find invoice {n} with the tax number of my company on it?",
    "customs": "Which customs duties apply when furniture {n} is shipped to Norway by sea?",
}
WITHOUT_DOCUMENTS = "customs"
LEARNED = 300
"""Exchanges by which the signals know what is usual for an app: 256 are needed."""
SOURCES = 300
MISLEADING = "handbook-117.md"
WRONG = "The harbour was built by seven engineers from Bruges in 1931. They kept forty horses there."


class Model:
    """Repeats the first passage; once it is misled, not if a passage is of the misleading source."""

    def __init__(self):
        self.is_misled = False

    async def __call__(self, scope, receive, send):
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        passages = json.loads(raw)["messages"][0]["content"].split("\n")
        misled = self.is_misled and any(MISLEADING in one for one in passages)
        text = WRONG if misled else passages[0].partition(": ")[2] or "It takes five working days."
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 90, "completion_tokens": 20, "total_tokens": 110}
        said = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(said).encode()})


class App:
    """A RAG app whose retriever finds passages of some sources for questions of four topics.

    `worse` is by how much the scores of its retriever fall. Topics in `without` have no documents.
    """

    def __init__(self, running, name, seed):
        self.running, self.name = running, name
        self.worse, self.without = 0.0, frozenset()
        self._topics = itertools.cycle(TOPICS)
        self._numbers = itertools.count()
        self._draw = random.Random(seed)

    def ask(self, count):
        asyncio.run(self._ask(count))

    async def _ask(self, count):
        places = asyncio.Semaphore(8)
        async with httpx.AsyncClient(base_url=self.running.base_url, timeout=60) as client:

            async def one():
                topic, number = next(self._topics), next(self._numbers)
                found = [] if topic in self.without else self._found(topic, number)
                prompt = "\n".join(f"{one['source']}: {one['text']}" for one in found)
                messages = [{"role": "system", "content": prompt}]
                messages += [{"role": "user", "content": TOPICS[topic].format(n=number)}]
                body = {"model": "m", "messages": messages, "gaugeway": {"app": self.name, "contexts": found}}
                async with places:
                    response = await client.post("/chat/completions", json=body)
                assert response.status_code == 200, response.text

            await asyncio.gather(*(one() for _ in range(count)))

    def _found(self, topic, number):
        """Three passages: two of any source, and in two of five exchanges one of the misleading source behind them."""
        sources = [f"handbook-{self._draw.randrange(SOURCES)}.md" for _ in range(3)]
        if self._draw.random() < 0.4:
            sources[-1] = MISLEADING
        return [
            {
                "text": f"Clerk {self._draw.randrange(1000)} keeps the {topic} rules of case {number + place} on file.",
                "source": source,
                "score": round(self._draw.uniform(0.7, 0.9) - self.worse, 3),
            }
            for place, source in enumerate(sources)
        ]

    def until(self, condition, *, rounds=60):
        """Go on asking until the condition holds; return what it then is."""
        for _ in range(rounds):
            self.ask(20)
            until = time.monotonic() + 0.7
            while time.monotonic() < until:
                if found := condition():
                    return found
                time.sleep(0.1)
        raise AssertionError(f"nothing after {20 * rounds} questions: {self.running.get('/api/alerts')}")


@contextlib.contextmanager
def running_with(tmp_path, rules):
    model = Model()
    with (
        in_thread(model) as url,
        contextlib.closing(Webhook()) as hook,
        product(tmp_path, CONFIG.format(url=url, hook=hook.url, rules=rules)) as running,
    ):
        yield running, model, hook


def fired(hook, **labels):
    every = [alert for body in list(hook.bodies) for alert in body["alerts"]]
    return [one for one in every if all(one["labels"].get(name) == value for name, value in labels.items())]


def learn(app, signal):
    app.ask(LEARNED)
    mean = {"app": app.name, "signal": signal}
    app.until(lambda: app.running.value(app.running.monitors, "gaugeway_signal_n_eff", **mean) >= 20)


def test_retriever_scores_that_fall_and_a_topic_without_documents_page_under_their_names(tmp_path):
    with running_with(tmp_path, SIGNAL_RULES) as (running, _, hook):
        shop, bank = App(running, "shop", 1), App(running, "bank", 2)
        learn(shop, "retriever_score")
        learn(bank, "no_contexts")
        assert hook.bodies == []

        shop.worse = 0.2
        alert = shop.until(  # the cause may come as an update
            lambda: [one for one in fired(hook, app="shop") if one["annotations"]["likely_cause"] != "unknown"]
        )[0]
        assert {key: alert["labels"][key] for key in ("signal", "metric", "rule")} == {
            "signal": "retriever_score",
            "metric": "retriever_score",
            "rule": "retriever_score-below-0.4",
        }
        assert alert["annotations"]["likely_cause"] == "retrieval"
        assert "scores of the retrieved passages" in alert["annotations"]["summary"]

        bank.without = {WITHOUT_DOCUMENTS}
        alert = bank.until(lambda: fired(hook, app="bank"))[0]
        assert (alert["labels"]["signal"], alert["labels"]["rule"]) == ("no_contexts", "no_contexts-above-0.08")
        assert "share of answers without retrieved passages" in alert["annotations"]["summary"]
        assert {one["labels"]["signal"] for one in fired(hook, app="shop")} == {"retriever_score"}

        first, *others = running.get("/api/topics?app=bank")["topics"]
        assert WITHOUT_DOCUMENTS in first["topic"]
        assert first["no_passages"] >= 5
        assert first["examples"][0]["question"].startswith("Which customs duties")
        assert all(one["no_passages"] == 0 for one in others)
        page = httpx.get(f"{running.monitors}/topics?app=bank", timeout=60).text
        assert first["topic"] in page


def test_the_one_bad_source_of_three_hundred_is_named_as_the_cause(tmp_path):
    with running_with(tmp_path, GROUNDED) as (running, model, hook):
        shop = App(running, "shop", 3)
        shop.ask(400)
        running.until(
            lambda: running.value(running.monitors, "gaugeway_score_count", metric="lexical_groundedness") >= 400,
            60,
            what="all answers have a score",
        )
        assert hook.bodies == []
        model.is_misled = True

        named = shop.until(lambda: [one for one in fired(hook, app="shop") if one["annotations"]["source"]])[-1]
        assert named["annotations"]["source"] == MISLEADING
        assert named["annotations"]["likely_cause"] == "retrieval"
        assert MISLEADING in named["annotations"]["cause_detail"]
        assert named["labels"]["metric"] == "lexical_groundedness"
        address = "/api/sources?app=shop&metric=lexical_groundedness&limit=2000"
        running.until(lambda: running.get(address)["pending"] == 0, 60, what="every exchange is read")
        sources = running.get(address)
        assert sources["total_sources"] > 290
        assert [one["name"] for one in sources["sources"] if one["named"]] == [MISLEADING]
