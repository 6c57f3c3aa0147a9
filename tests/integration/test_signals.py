"""Signals in the running product: an app that starts to decline pages with that name, a quiet stretch sends no page."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random

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

{rules}

[[notifiers]]
kind = "webhook"
url = "{hook}"
"""
RULES = """
[[alerts.rules]]
metric = "abstained"
slo = 0.2

[[alerts.rules]]
metric = "truncated"
slo = 0.2

[[alerts.rules]]
metric = "tool_invalid"
slo = 0.2
"""
ANSWERS = (
    "You can return the parcel within thirty days, and the refund takes five working days.",
    "Print the label from your account and put it on the box.",
    "The courier tries to deliver twice. After that the parcel waits in the shop for ten days.",
)
DECLINES = (
    "I'm sorry, but the provided documents do not mention this.",
    "I don't know.",
    "Unfortunately, I could not find any information about that. Please contact our support team.",
)
PASSAGES = ("Parcels may be returned within thirty days.", "Refunds take five working days.")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "track",
            "parameters": {"type": "object", "properties": {"parcel": {"type": "integer"}}, "required": ["parcel"]},
        },
    }
]


class Model:
    """A model of which a share of the answers declines, is cut off, or calls a tool with the wrong arguments."""

    def __init__(self):
        self.declines, self.cut, self.wrong = 0.02, 0.01, 0.0
        self._draw = random.Random(3)

    async def __call__(self, scope, receive, send):
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        said = json.dumps(self.answer(json.loads(raw))).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": said})

    def answer(self, body):
        draw, cut = self._draw, self._draw.random() < self.cut
        text = draw.choice(DECLINES if draw.random() < self.declines else ANSWERS)
        message = {"role": "assistant", "content": text[: len(text) // 2] if cut else text}
        reason = "length" if cut else "stop"
        if body.get("tools"):
            arguments = '{"parcel": "seven"}' if draw.random() < self.wrong else '{"parcel": 7}'
            call = {"id": "call_1", "type": "function", "function": {"name": "track", "arguments": arguments}}
            message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        usage = {"prompt_tokens": 90, "completion_tokens": 20, "total_tokens": 110}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


class App:
    """Asks questions through the gateway, with passages and their retrieval scores."""

    def __init__(self, running, name):
        self.running, self.name = running, name
        self.numbers = itertools.count()
        self.draw = random.Random(name)

    def ask(self, count, *, tools=False):
        asyncio.run(self._ask(count, tools=tools))

    async def _ask(self, count, *, tools):
        places = asyncio.Semaphore(8)
        async with httpx.AsyncClient(base_url=self.running.base_url, timeout=60) as client:

            async def one():
                number = next(self.numbers)
                contexts = [{"text": text, "score": round(self.draw.uniform(0.7, 0.9), 3)} for text in PASSAGES]
                question = f"How do I return parcel {number} that was delivered to me yesterday?"
                body = {"model": "m", "messages": [{"role": "user", "content": question}]}
                body["gaugeway"] = {"app": self.name, "contexts": contexts}
                body |= {"tools": TOOLS} if tools else {}
                async with places:
                    response = await client.post("/chat/completions", json=body)
                assert response.status_code == 200, response.text

            await asyncio.gather(*(one() for _ in range(count)))

    def signal(self, name, of="mean"):
        return self.running.value(self.running.monitors, f"gaugeway_signal_{of}", app=self.name, signal=name)


def fired(hook, **labels):
    every = [alert for body in list(hook.bodies) for alert in body["alerts"]]
    return [one for one in every if all(one["labels"].get(name) == value for name, value in labels.items())]


def until_fired(app, hook, *, tools=False, **labels):
    for _ in range(40):
        app.ask(20, tools=tools)
        with contextlib.suppress(AssertionError):
            app.running.until(lambda: bool(fired(hook, **labels)), 1.0, what="the alert")
            return fired(hook, **labels)[0]
    raise AssertionError(f"no alert with {labels}: {app.running.get('/api/alerts')}")


def test_waves_page_with_their_names_and_a_quiet_stretch_pages_nobody(tmp_path):
    model = Model()
    with in_thread(model) as url, contextlib.closing(Webhook()) as hook:
        config = CONFIG.format(url=url, hook=hook.url, rules=RULES)
        with product(tmp_path, config) as running:
            shop, agent = App(running, "shop"), App(running, "agent")
            shop.ask(300)
            agent.ask(60, tools=True)
            running.until(lambda: shop.signal("abstained", "n_eff") >= 100, 60, what="the answers are stored")
            running.until(lambda: agent.signal("tool_invalid", "n_eff") >= 10, 60, what="the tool calls are stored")
            assert hook.bodies == []
            assert 0.0 < shop.signal("abstained") < 0.1
            assert agent.signal("abstained", "n_eff") == 0  # tool calls are no answers

            model.declines = 0.7
            alert = until_fired(shop, hook, signal="abstained")
            assert (alert["labels"]["app"], alert["labels"]["rule"]) == ("shop", "abstained-above-0.2")
            assert "share of answers that decline to answer (abstained) of shop" in alert["annotations"]["summary"]
            worst = alert["annotations"]["worst_exchanges"].split(",")[0]
            found = running.get(f"/api/exchanges/{worst}")
            assert found["sample"]["response"] in DECLINES

            model.declines, model.wrong = 0.02, 0.9
            alert = until_fired(agent, hook, tools=True, signal="tool_invalid")
            assert (alert["labels"]["app"], alert["labels"]["metric"]) == ("agent", "tool_invalid")

            model.cut = 0.8
            assert until_fired(shop, hook, signal="truncated")["labels"]["app"] == "shop"

            page = httpx.get(f"{running.monitors}/", timeout=60).text
            assert "abstained" in page
            assert "hare of responses cut off at the token limit" in page


def rules(running):
    return {(one["metric"], one["rule"]) for one in running.get("/api/status")["rules"]}


def test_with_the_default_rules_every_signal_is_watched_and_a_quiet_stretch_pages_nobody(tmp_path):
    model = Model()
    with in_thread(model) as url, contextlib.closing(Webhook()) as hook:
        config = CONFIG.format(url=url, hook=hook.url, rules="[signals]\noff = ['expensive']")
        with product(tmp_path, config) as running:
            shop = App(running, "shop")
            shop.ask(400)
            running.until(lambda: shop.signal("retriever_score", "n_eff") > 0, 60, what="scores are ranked")
            wanted = {"abstained-rise", "retriever_score-drop", "retriever_score-rise", "slow-rise"}
            running.until(lambda: wanted <= {rule for _, rule in rules(running)}, 30, what="the rules have streams")
            watched = rules(running)
            assert not [name for name, _ in watched if name == "expensive"]
            assert hook.bodies == []
