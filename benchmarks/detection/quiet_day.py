"""A quiet day in the running product, then an incident: does anything page, and is the incident found by its name?

    python benchmarks/detection/quiet_day.py [--exchanges 20000] [--rate 80]

`gaugeway serve` with every signal and `lexical_groundedness` watched by the default rules, four apps, a scripted model
that declines, is cut off, calls tools wrongly and takes varying time at constant rates, in three languages. A day is
compressed: buckets of a second instead of minutes, as many exchanges (a learned baseline needs 2,000 scores: not
fewer than about 8,000). Then one app's share of declined answers rises from 3 to 40 %. Prints the notifications of both
stretches and writes them to results/quiet-day.md. Loopback only; it ends by itself. Exit status 1 if the quiet stretch
paged or the incident did not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import platform
import random
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.in_thread import in_thread
from tests.support.product import Product, Webhook, product

RESULTS = Path(__file__).parent / "results"
APPS = ("shop", "bank", "docs", "agent")
AT_ONCE, WAVE = 32, 4000
CONFIG = """
[[upstreams]]
base_url = "{url}/v1"

[alerts]
bucket_s = 1
watermark_s = 2
group_wait_s = 1
slices = ["app"]

[prices."*"]
input = 1.0
output = 4.0

[[notifiers]]
kind = "webhook"
url = "{hook}"
"""
SUBJECTS = {
    "en": ("parcel", "refund", "invoice", "contract", "password", "delivery", "warranty", "address"),
    "de": ("Paket", "Erstattung", "Rechnung", "Vertrag", "Passwort", "Lieferung", "Garantie", "Adresse"),
    "es": ("paquete", "reembolso", "factura", "contrato", "contraseña", "entrega", "garantía", "dirección"),
}
QUESTIONS = {
    "en": "How long does it take until the {0} number {1} is confirmed, and whom do I ask about it?",
    "de": "Wie lange dauert es, bis {0} Nummer {1} bestätigt ist, und wen frage ich danach?",
    "es": "¿Cuánto tarda en confirmarse el {0} número {1}, y a quién debo preguntar por eso?",
}
FACTS = {
    "en": "The {0} is confirmed within {1} working days. The support team answers questions about the {0} by mail.",
    "de": "{0} wird innerhalb von {1} Arbeitstagen bestätigt. Der Kundendienst beantwortet Fragen zu {0} per E-Mail.",
    "es": "El {0} se confirma en {1} días laborables. El equipo de soporte responde a las preguntas sobre el {0}.",
}
DECLINES = {
    "en": "I'm sorry, but the provided documents do not mention this.",
    "de": "Dazu finde ich in den Dokumenten leider keine Angaben.",
    "es": "Lo siento, los documentos no contienen información sobre eso.",
}
TOOL = {
    "type": "function",
    "function": {
        "name": "track",
        "parameters": {"type": "object", "properties": {"parcel": {"type": "integer"}}, "required": ["parcel"]},
    },
}


class Model:
    """Answers as the request's metadata asks; each thing that may go wrong does so at its own constant rate."""

    def __init__(self, seed: int) -> None:
        self.declines = dict.fromkeys(APPS, 0.03)
        self._draw = random.Random(seed)

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:
        """The ASGI app."""
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        body = json.loads(raw)
        await asyncio.sleep(min(0.5, self._draw.lognormvariate(-4.0, 0.6)))
        said = json.dumps(self.answer(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": said})

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """A completion for the request."""
        draw = self._draw
        app, language, fact = body["user"].split("|", 2)
        message: dict[str, Any] = {"role": "assistant", "content": fact}
        reason = "stop"
        if body.get("tools"):
            arguments = '{"parcel": "seven"}' if draw.random() < 0.02 else f'{{"parcel": {draw.randrange(9999)}}}'
            call = {"id": "call_1", "type": "function", "function": {"name": "track", "arguments": arguments}}
            message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        elif draw.random() < self.declines[app]:
            message["content"] = DECLINES[language if draw.random() > 0.01 else "en"]
        elif draw.random() < 0.01:
            message["content"], reason = fact[: len(fact) // 2], "length"
        elif draw.random() < 0.1:
            message["content"] = fact.rpartition(" ")[0] + " 42."  # a small mistake: scores vary
        tokens = draw.randrange(60, 240)
        usage = {"prompt_tokens": 400, "completion_tokens": tokens, "total_tokens": 400 + tokens}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


class Traffic:
    """Sends requests of all apps at a rate."""

    def __init__(self, url: str, rate: float, seed: int) -> None:
        self._url, self._rate = url, rate
        self._draw = random.Random(seed)
        self.sent = 0

    def body(self) -> dict[str, Any]:
        """One request: the app, its language and what a right answer says are in `user`."""
        draw = self._draw
        app = draw.choices(APPS, (4, 3, 2, 1))[0]
        language = draw.choices(("en", "de", "es"), (6, 3, 1))[0]
        subject, days = draw.choice(SUBJECTS[language]), draw.randrange(2, 9)
        fact = FACTS[language].format(subject, days)
        others = [FACTS[language].format(one, draw.randrange(2, 9)) for one in draw.sample(SUBJECTS[language], 2)]
        found = [] if draw.random() < 0.03 else [fact, *others][: draw.randrange(1, 4)]
        contexts = [{"text": text, "score": round(draw.betavariate(8, 3), 3)} for text in found]
        question = QUESTIONS[language].format(subject, draw.randrange(1000, 9999))
        body: dict[str, Any] = {"model": "m", "user": f"{app}|{language}|{fact}"}
        body["messages"] = [{"role": "user", "content": question}]
        body["gaugeway"] = {"app": app, "contexts": contexts}
        return body | ({"tools": [TOOL]} if app == "agent" else {})

    async def run(self, count: int) -> None:
        """Send `count` requests, evenly."""
        places = asyncio.Semaphore(AT_ONCE)
        began = time.monotonic()
        async with httpx.AsyncClient(base_url=self._url, timeout=60) as client, asyncio.TaskGroup() as group:

            async def one() -> None:
                async with places:
                    (await client.post("/chat/completions", json=self.body())).raise_for_status()

            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / self._rate - time.monotonic()))
                group.create_task(one())
        self.sent += count


def told(hook: Webhook) -> list[str]:
    """Every notification: state, rule and app."""
    alerts = [alert for body in list(hook.bodies) for alert in body["alerts"]]
    return [f"{one['status']} {one['labels'].get('rule', '')} of {one['labels'].get('app', '')}" for one in alerts]


def settled(running: Product) -> None:
    """Wait until everything is evaluated and two more buckets have ended."""
    running.until(lambda: running.value(running.monitors, "gaugeway_queue_depth") == 0, 300, what="the queue is empty")
    time.sleep(6.0)


def until_told(hook: Webhook, traffic: Traffic, before: int) -> tuple[int, list[str]]:
    """Send until something is notified, `WAVE` at the most: exchanges sent, and what was notified."""
    step = 80
    for sent in range(step, WAVE + 1, step):
        asyncio.run(traffic.run(step))
        if len(told(hook)) > before:
            return sent, told(hook)[before:]
    time.sleep(10.0)
    return WAVE, told(hook)[before:]


def main() -> int:
    """Run the day and the incident, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=80.0, help="requests a second")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    model = Model(arguments.seed)
    with (
        tempfile.TemporaryDirectory() as scratch,
        in_thread(model) as url,
        contextlib.closing(Webhook()) as hook,
        product(Path(scratch), CONFIG.format(url=url, hook=hook.url)) as running,
    ):
        traffic = Traffic(running.base_url, arguments.rate, arguments.seed)
        began = time.monotonic()
        asyncio.run(traffic.run(arguments.exchanges))
        settled(running)
        quiet, took_s = told(hook), time.monotonic() - began
        watched = {(one["rule"], one["app"]) for one in running.get("/api/status")["rules"]}
        model.declines["shop"] = 0.4
        needed, found = until_told(hook, traffic, len(quiet))
    command = f"benchmarks/detection/quiet_day.py --exchanges {arguments.exchanges} --rate {arguments.rate:g}"
    lines = [
        "# A quiet day in the running product",
        "",
        f"`python {command}`, {datetime.now(UTC):%Y-%m-%d}; {platform.machine()}, Python {platform.python_version()}.",
        "",
        "| | |",
        "|---|---|",
        f"| exchanges of the quiet stretch | {arguments.exchanges:,} of {len(APPS)} apps in {took_s:.0f} s |",
        f"| streams watched (rule and app) | {len(watched)} |",
        f"| notifications meanwhile | {len(quiet)}{': ' + '; '.join(quiet) if quiet else ''} |",
        "| then | the declined answers of one app rise from 3 to 40 % |",
        f"| first notification | {'; '.join(found) or 'none'} after {needed:,} more exchanges of all apps |",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "quiet-day.md").write_text(text)
    return 0 if not quiet and any("abstained" in one for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
