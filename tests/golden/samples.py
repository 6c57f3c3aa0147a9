"""The sample of every request of the corpora, and of an app whose prompt is learned."""

from __future__ import annotations

import json

import msgspec

from gateway.capture.factory import capture_of
from gateway.capture.result import capture_all
from gateway.config import Capture
from gaugeway.exchange import Explicit
from tests.gateway.capture.test_exchange_reader import answer, recording
from tests.golden.record import NOW, ROOT, brief
from tests.support.prompts import prompt

PATHS = {"responses": "/v1/responses", "completions": "/v1/completions", "messages": "/v1/messages"}
ANSWER = "It is as the passages say, and I have nothing to add to that."
LEARNED = 40
OTHERS = {"id", "started_at", "duration_s", "app", "rate", "contexts", "context_source"}
"""Fields that are the same in all samples of a corpus, or that are shown in another way."""
USUAL = {"model": "m", "response": ANSWER, "response_id": "chatcmpl-1"}
CORPORA = ("apps", "auxiliary", "demanded_output", "instructions", "ordinary")


def responded(route, text=ANSWER, finish="stop"):
    """What an upstream answers on a route."""
    if route == "responses":
        said = {"type": "message", "content": [{"type": "output_text", "text": text}]}
        return {"id": "r", "status": "completed", "model": "m", "output": [said]}
    if route == "completions":
        return {"id": "c", "model": "m", "choices": [{"index": 0, "text": text, "finish_reason": finish}]}
    if route == "messages":
        return {"id": "a", "model": "m", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    calls = [{"id": "t", "type": "function", "function": {"name": "search", "arguments": "{}"}}]
    return answer(text, finish, **({"tool_calls": calls} if finish == "tool_calls" else {}))


def captured(number, app, body, response, route):
    """The recording of one exchange."""
    made = recording(body, response, route=route, explicit=Explicit(app=app))
    made.id, made.started_at, made.path = f"{number:032x}", NOW + number, PATHS.get(route, made.path)
    return made


def samples(recordings):
    """What the product makes of recordings, with templates that it learns meanwhile."""
    decoder = capture_of(Capture(rate=1.0, salt="golden"), "golden", report=lambda event: None)
    return [result.sample or result.error for result in capture_all(decoder, recordings)]


def row(sample):
    """The fields of a sample that are set; of an exchange that cannot be read the error."""
    if isinstance(sample, str):
        return {"error": sample}
    fields = msgspec.to_builtins(sample).items()
    found = {name: brief(value) for name, value in fields if value and name not in OTHERS and USUAL.get(name) != value}
    if sample.contexts:
        found |= {"passages": [brief(passage.text) for passage in sample.contexts], "contexts": brief(sample.contexts)}
    return found | {"source": sample.context_source}


def request_of(line):
    """Body, response and route of a line of a corpus: a whole body, a system's and a user's text, or a text alone."""
    route = line.get("route") or "chat_completions"
    response = responded(route, line.get("answer") or line.get("response") or ANSWER, line.get("finish") or "stop")
    if "body" in line:
        return line["body"], response, route
    turns = [(role, line[role]) for role in ("system", "user") if line.get(role)]
    if "text" in line:
        turns = [(line["role"], line["text"]), ("user", "How loud is it?")][: 1 + (line["role"] == "system")]
    messages = [{"role": role, "content": text} for role, text in turns]
    if route == "responses":
        return {"model": "m", "input": messages, "text": {"format": line["text_format"]}}, response, route
    return {"model": "m", "messages": messages, "response_format": line.get("response_format")}, response, route


def fresh():
    lines = {
        name: [json.loads(line) for line in (ROOT / f"tests/corpora/{name}.jsonl").read_text("utf-8").splitlines()]
        for name in CORPORA
    }
    lines["learned"] = [{"role": "user", "text": prompt(number)} for number in range(LEARNED)]
    found = {}
    for corpus, some in lines.items():
        made = samples([captured(number, corpus, *request_of(line)) for number, line in enumerate(some)])
        found |= {f"{corpus} {number}": row(sample) for number, sample in enumerate(made)}
    return found
