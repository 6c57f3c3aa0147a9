"""Scripted conversations: the request and response bodies that apps of many kinds send, with the truth about them.

Pure: the same seed gives the same conversations.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gaugeway.exchange import Recording, Trace

_TEXT = """
account address answer battery box cable care charge claim colour contract cost customer damage date
day delivery device display document drill engine exchange express fee filter form guide handle heat
home hour invoice item key lamp letter limit line list machine manual model month motor number offer
office order package page part payment person phone piece place plan plate plug point policy post
power price product proof purchase question receipt refund region repair report request return rule
seal season serial service shipment shop sign size space store switch system table tank team term
test time tool total track unit value version voucher warranty water week year
"""
_WORDS = tuple(_TEXT.split())
CANNED = ("I don't know.", "Sorry, I can only answer questions about our products. Please contact support for others.")
OPENINGS = ("Hello", "What is your return policy?", "How long is the warranty?", "Where is my order?")
GREETING = "Hello! How can I help you today?"
EXAMPLES = (("Do you ship abroad?", "Yes, to all countries of the European Union."), ("Is it sturdy?", "Yes, it is."))
Body = dict[str, Any]


@dataclass(slots=True)
class Call:
    """One exchange: bodies, what it belongs to, and when it happens. `turn` and `hop` are as the user sees them."""

    conversation: str
    kind: str
    turn: int
    hop: int
    request: Body
    response: Body
    route: str = "chat_completions"
    at: float = 0.0
    seconds: float = 0.5
    trace: str | None = None
    first: bool = False
    inner: bool = False

    def recording(self, name: str) -> Recording:
        """What the gateway records of it."""
        path = {"chat_completions": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
        json_headers = [(b"content-type", b"application/json")]
        return Recording(
            id=name,
            method="POST",
            path=path[self.route],
            route=self.route,
            started_at=self.at,
            duration_s=self.seconds,
            status=200,
            request_headers=json_headers,
            request_body=json.dumps(self.request).encode(),
            response_headers=json_headers,
            chunks=[json.dumps(self.response).encode()],
            trace=None if self.trace is None else Trace(self.trace, "b" * 16),
        )


@dataclass(slots=True)
class Script:
    """Draws what is said in one conversation."""

    draw: random.Random
    name: str
    canned: float = 0.1
    user: str | None = None
    now: float = 0.0
    calls: list[Call] = field(default_factory=list)

    def text(self, least: int, most: int) -> str:
        words = self.draw.choices(_WORDS, k=self.draw.randint(least, most))
        return " ".join(words).capitalize() + "."

    def question(self, turn: int) -> str:
        if turn == 1 and self.draw.random() < 0.3:
            return self.draw.choice(OPENINGS)
        return self.text(4, 14)[:-1] + "?"

    def answer(self) -> str:
        return self.draw.choice(CANNED) if self.draw.random() < self.canned else self.text(6, 120)

    def passages(self) -> str:
        return "\n\n".join(f"[{n}] {self.text(20, 60)}" for n in range(1, 4))

    def identity(self) -> str:
        return "call_" + "".join(self.draw.choices("abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789", k=24))

    def add(self, kind: str, turn: int, hop: int, request: Body, response: Body, **more: Any) -> None:
        seconds = self.draw.uniform(0.3, 4.0)
        extra = {} if self.user is None else {"user": self.user}
        body = {"model": "m", **extra, **request}
        self.calls.append(
            Call(self.name, kind, turn, hop, body, response, at=self.now, seconds=seconds, first=not self.calls, **more)
        )
        self.now += seconds + self.draw.uniform(0.01, 0.2)

    def think(self) -> None:
        self.now += self.draw.uniform(2.0, 90.0)


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def model(text: str) -> Body:
    return {"role": "assistant", "content": text}


def system(text: str) -> Body:
    return {"role": "system", "content": text}


def chat(text: str | None, *calls: Body) -> Body:
    message = {"role": "assistant", "content": text} | ({"tool_calls": list(calls)} if calls else {})
    return {
        "id": "chatcmpl",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
    }


def _prompt(script: Script, question: str) -> Body:
    return user(f"Answer from the context only.\n\nContext:\n{script.passages()}\n\nQuestion: {question}")


def plain(script: Script, turns: int) -> None:
    """The whole history, as it was."""
    history = [system("You are a helpful assistant.")]
    for turn in range(1, turns + 1):
        history.append(user(script.question(turn)))
        answer = script.answer()
        script.add("plain", turn, 1, {"messages": list(history)}, chat(answer))
        history.append(model(answer))
        script.think()


def trimmed(script: Script, turns: int) -> None:
    """The last messages only."""
    kept = script.draw.choice((2, 3, 4, 6))
    history: list[Body] = []
    for turn in range(1, turns + 1):
        history.append(user(script.question(turn)))
        answer = script.answer()
        script.add("trimmed", turn, 1, {"messages": [system("Be brief."), *history[-kept - 1 :]]}, chat(answer))
        history.append(model(answer))
        script.think()


def summarised(script: Script, turns: int) -> None:
    """A summary in place of all but the last exchanges."""
    role = script.draw.choice(("system", "user", "assistant"))
    history: list[Body] = []
    for turn in range(1, turns + 1):
        history.append(user(script.question(turn)))
        answer = script.answer()
        messages = [system("Be brief."), *history]
        if len(history) > 5:
            kept = script.draw.choice((3, 5))
            messages = [
                system("Be brief."),
                {"role": role, "content": "So far: " + script.text(20, 60)},
                *history[-kept:],
            ]
        script.add("summarised", turn, 1, {"messages": messages}, chat(answer))
        history.append(model(answer))
        script.think()


def rewritten(script: Script, turns: int) -> None:
    """Questions are rewritten into a prompt with passages; the history has the user's own words, or the rewritten."""
    keeps = script.draw.random() < 0.5
    history: list[Body] = []
    for turn in range(1, turns + 1):
        asked = script.question(turn)
        standalone = asked if turn == 1 else script.text(8, 16)[:-1] + "?"
        answer = script.answer()
        script.add("rewritten", turn, 1, {"messages": [*history, _prompt(script, standalone)]}, chat(answer))
        history += [user(standalone if keeps else asked), model(answer)]
        script.think()


def _function(script: Script) -> Body:
    arguments = json.dumps({"query": script.text(3, 8)})
    return {"id": script.identity(), "type": "function", "function": {"name": "search", "arguments": arguments}}


def tools(script: Script, turns: int) -> None:
    """Tool loops of up to three hops, sometimes with two calls at once; earlier loops stay in the history or go."""
    keeps = script.draw.random() < 0.5
    history: list[Body] = []
    for turn in range(1, turns + 1):
        history.append(user(script.question(turn)))
        loop: list[Body] = []
        hop = 1
        for _ in range(script.draw.randint(0, 3)):
            made = [_function(script) for _ in range(script.draw.choice((1, 1, 2)))]
            script.add("tools", turn, hop, {"messages": [*history, *loop]}, chat(None, *made))
            loop.append({"role": "assistant", "content": None, "tool_calls": made})
            loop += [{"role": "tool", "tool_call_id": one["id"], "content": script.passages()} for one in made]
            hop += 1
        answer = script.answer()
        script.add("tools", turn, hop, {"messages": [*history, *loop]}, chat(answer))
        history += [*(loop if keeps else []), model(answer)]
        script.think()


def _output(script: Script, *, calls: int = 0, text: str | None = None) -> Body:
    output: list[Body] = [
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": script.identity(),
            "name": "search",
            "arguments": '{"query": "x"}',
        }
        for _ in range(calls)
    ]
    if text is not None:
        output.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
    return {"id": "resp_" + script.identity(), "object": "response", "output": output}


def stored(script: Script, turns: int) -> None:
    """The Responses API: each request has only what is new, and the id of the response before."""
    before: Body = {}
    for turn in range(1, turns + 1):
        new: list[Body] = [user(script.question(turn))]
        hop = 1
        for _ in range(script.draw.randint(0, 2)):
            response = _output(script, calls=1)
            script.add("stored", turn, hop, {"input": new, **before}, response, route="responses")
            before = {"previous_response_id": response["id"]}
            call = response["output"][0]["call_id"]
            new = [{"type": "function_call_output", "call_id": call, "output": script.passages()}]
            hop += 1
        response = _output(script, text=script.answer())
        script.add("stored", turn, hop, {"input": new, **before}, response, route="responses")
        before = {"previous_response_id": response["id"]}
        script.think()


def items(script: Script, turns: int) -> None:
    """The Responses API with all items handed back, as the Agents SDK does."""
    history: list[Body] = []
    for turn in range(1, turns + 1):
        history.append(user(script.question(turn)))
        hop = 1
        for _ in range(script.draw.randint(0, 2)):
            response = _output(script, calls=script.draw.choice((1, 2)))
            script.add("items", turn, hop, {"input": list(history)}, response, route="responses")
            history += response["output"]
            for call in response["output"]:
                history.append(
                    {"type": "function_call_output", "call_id": call["call_id"], "output": script.passages()}
                )
            hop += 1
        response = _output(script, text=script.answer())
        script.add("items", turn, hop, {"input": list(history)}, response, route="responses")
        history += response["output"]
        script.think()


def blocks(script: Script, turns: int) -> None:
    """Anthropic's messages."""
    history: list[Body] = []
    for turn in range(1, turns + 1):
        history.append(user(script.question(turn)))
        hop = 1
        for _ in range(script.draw.randint(0, 2)):
            name = "toolu_" + script.identity()
            content = [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": name, "name": "search", "input": {"query": "x"}},
            ]
            response = {"content": content, "stop_reason": "tool_use"}
            script.add("blocks", turn, hop, {"messages": list(history)}, response, route="messages")
            back = {"type": "tool_result", "tool_use_id": name, "content": script.passages()}
            history += [model(content), {"role": "user", "content": [back]}]  # type: ignore[arg-type]
            hop += 1
        text = script.answer()
        response = {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
        script.add("blocks", turn, hop, {"messages": list(history)}, response, route="messages")
        history.append(model(text))
        script.think()


def agents(script: Script, turns: int) -> None:
    """An agent that asks a sub-agent, in the call's words or others, which searches; one trace for each turn."""
    history = [system("You are the main agent. Delegate.")]
    for turn in range(1, turns + 1):
        trace = f"{script.draw.getrandbits(128):032x}"
        history.append(user(script.question(turn)))
        task = script.text(6, 14)
        asked = task if script.draw.random() < 0.5 else f"Task from the main agent: {task}"
        delegate = _function(script)
        delegate["function"] = {"name": "research", "arguments": json.dumps({"input": task})}
        script.add("agents", turn, 1, {"messages": list(history)}, chat(None, delegate), trace=trace)
        inner = [system("You are a researcher. Search, then answer."), user(asked)]
        call = _function(script)
        script.add("agents", turn, 2, {"messages": list(inner)}, chat(None, call), trace=trace, inner=True)
        inner += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        inner.append({"role": "tool", "tool_call_id": call["id"], "content": script.passages()})
        found = script.text(20, 60)
        script.add("agents", turn, 3, {"messages": list(inner)}, chat(found), trace=trace, inner=True)
        history += [{"role": "assistant", "content": None, "tool_calls": [delegate]}]
        history.append({"role": "tool", "tool_call_id": delegate["id"], "content": found})
        answer = script.answer()
        script.add("agents", turn, 4, {"messages": list(history)}, chat(answer), trace=trace)
        history.append(model(answer))
        script.think()


def greeted(script: Script, turns: int) -> None:
    """The app writes the first message; the model greets in the same words when it is greeted."""
    history: list[Body] = [model(GREETING)]
    for turn in range(1, turns + 1):
        asked = script.question(turn)
        history.append(user(asked))
        answer = GREETING if asked == "Hello" else script.answer()
        script.add("greeted", turn, 1, {"messages": list(history)}, chat(answer))
        history.append(model(answer))
        script.think()


def examples(script: Script, turns: int) -> None:
    """The prompt has examples, and the model answers like them now and then; the app keeps the last exchange only."""
    shots = [message for asked, answer in EXAMPLES for message in (user(asked), model(answer))]
    history: list[Body] = []
    for turn in range(1, turns + 1):
        history.append(user(script.question(turn)))
        answer = script.draw.choice(EXAMPLES)[1] if script.draw.random() < 0.1 else script.answer()
        script.add("examples", turn, 1, {"messages": [system("Be brief."), *shots, *history[-3:]]}, chat(answer))
        history.append(model(answer))
        script.think()


KINDS: tuple[Callable[[Script, int], None], ...] = (
    *(plain, trimmed, summarised, rewritten, tools, stored, items, blocks, agents, greeted, examples),
)


def conversations(
    n: int, seed: int, *, canned: float = 0.1, spread_s: float = 7_200.0, users: float = 0.5
) -> Iterator[Call]:
    """Yield the exchanges of `n` conversations of 1 to 12 turns in the order in which they began.

    They begin within `spread_s` seconds; a share `users` of them names the end user; `canned` is the share of canned
    answers.
    """
    draw = random.Random(seed)
    calls: list[Call] = []
    for number in range(n):
        name = f"c{number}"
        script = Script(draw, name, canned, user=name if draw.random() < users else None)
        script.now = 1_000_000.0 + draw.uniform(0.0, spread_s)
        KINDS[number % len(KINDS)](script, draw.randint(1, 12))
        calls += script.calls
    yield from sorted(calls, key=lambda call: call.at)
