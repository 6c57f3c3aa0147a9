"""Upstream, judge and receiver of alerts, in a process of their own that counts what it was asked.

    python benchmarks/faults/scripted.py PORT

`/NAME/v1/chat/completions` answers as the upstream NAME, `/judge/v1/…` judges, `POST /hook` takes alerts. `POST /_set`
changes what it does (`means`, `status`, `retry_after`, `delay`), `GET /_told` says what was answered, judged and told.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import uvicorn

sys.path.insert(0, str(Path(__file__).parents[2]))

from gaugeway.demo.model_judge import fenced
from tests.support.scenario import Script

_NUMBER = re.compile(r"\d+")
_ASKED = re.compile(r"Question: (.*) \n")
ANSWER_S = 0.02


class Scripted:
    """The ASGI app. The number in a question tells requests apart: each is asked once."""

    def __init__(self) -> None:
        self._script = Script()
        self._status, self._retry_after, self._delay = 200, "", ANSWER_S
        self._answered: dict[str, Counter[int]] = {}
        self._judged: Counter[str] = Counter()
        self._refused = 0
        self._alerts: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        if message["type"] == "http.disconnect":
            return
        name = scope["path"].split("/")[1]
        status, said = await self._say(name, json.loads(raw or b"{}"))
        raw = json.dumps(said).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(raw))]
        if status == 429 and self._retry_after:
            headers.append((b"retry-after", self._retry_after.encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": raw})

    async def _say(self, name: str, body: Any) -> tuple[int, Any]:
        if name == "hook":
            self._alerts += [one | {"at": time.time()} for one in body["alerts"]]
        elif name == "_set":
            self._script.means |= body.get("means", {})
            self._status = body.get("status", self._status)
            self._retry_after = body.get("retry_after", self._retry_after)
            self._delay = body.get("delay", self._delay)
        elif name == "_told":
            return 200, {
                "answered": {one: dict(counts) for one, counts in self._answered.items()},
                "judged": dict(self._judged),
                "refused": self._refused,
                "alerts": self._alerts,
            }
        elif self._status != 200:
            self._refused += 1
            error = {"message": "Too many requests", "type": "rate_limit_error", "param": None, "code": None}
            return self._status, {"error": error}
        else:
            return 200, await self._complete(name, body)
        return 200, {}

    async def _complete(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(self._delay)
        if name == "judge":
            task = body["messages"][0]["content"].partition("\n")[0]
            self._judged[f"{task} {_number(_judged(body))}"] += 1
            said = json.dumps(self._script.judge(body))
        else:
            asked = _ASKED.search(body["messages"][1]["content"])[1]
            self._answered.setdefault(name, Counter())[_number(asked)] += 1
            said = self._script.answer(body)
        message = {"role": "assistant", "content": said, "refusal": None}
        return {
            "id": "scripted",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }


def _judged(body: dict[str, Any]) -> str:
    return next(one.text for one in fenced(body["messages"][1]["content"]) if one.name == "question")


def _number(question: str) -> int:
    return int(_NUMBER.search(question)[0])


if __name__ == "__main__":
    uvicorn.run(Scripted(), host="0.0.0.0", port=int(sys.argv[1]), log_level="error", access_log=False, lifespan="off")
