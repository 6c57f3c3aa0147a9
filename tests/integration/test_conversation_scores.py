"""Whole conversations through the product: over after a silence, judged once, on the page, in metrics, forgotten."""

import contextlib
import json
import re
import subprocess
import sys

import httpx

from tests.support.in_thread import in_thread
from tests.support.product import product
from tests.support.scenario import completion

CONFIG = """
[[upstreams]]
base_url = "{url}/app/v1"

[capture]
sample_by = "conversation"
redact = ["phone"]

[monitors]
conversation_silence_s = 8

[judge]
base_url = "{url}/judge/v1"
model = "judge-1"
{metrics}
[alerts]
rules = []
"""
ENABLED = "".join(
    f"[metrics.{name}]\nrate = 1.0\n" for name in ("goal_met", "gave_up", "turns_to_resolution", "asked_again")
)
DISABLED = "".join(
    f"[metrics.{name}]\nenabled = false\n"
    for name in ("faithfulness", "hallucination", "answer_relevancy", "context_relevancy")
)
PHONE = "+49 30 901820123"


class Shop:
    """An app's model that helps with orders and not with invoices, and a judge that reads the transcript."""

    def __init__(self):
        self.transcripts = []

    async def __call__(self, scope, receive, send):
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        body = json.loads(raw)
        text = json.dumps(self.judge(body)) if scope["path"].startswith("/judge") else self.answer(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(completion(body, text)).encode()})

    def answer(self, body):
        asked = body["messages"][-1]["content"]
        turn = sum(one["role"] == "user" for one in body["messages"])
        if "order" in asked and turn > 1:
            return f"Order {asked.split()[-1]} was sent on Monday, and it arrives on Thursday at your address. [{turn}]"
        return f"I am looking into {asked.split()[-1]} for you, please tell me more about what you need. [{turn}]"

    def judge(self, body):
        user = body["messages"][-1]["content"]
        said = re.findall(r'name="(\w+)" id="(\d+)">\n(.*?)\n</data', user, re.DOTALL)
        self.transcripts.append(said)
        turn = next((int(turn) for role, turn, text in said if role == "assistant" and "was sent" in text), 0)
        return {
            "goal": said[0][2],
            "outcome": "met" if turn else "not_met",
            "met_in_turn": turn,
            "gave_up": not turn,
            "reason": f"turn {turn}" if turn else "never helped",
        }


def converse(client, about, number, turns=3):
    messages = []
    for turn in range(turns):
        question = f"Where is my {about}? My phone is {PHONE}. Number {turn} of {number}"
        messages.append({"role": "user", "content": question})
        response = client.post("/chat/completions", json={"model": "m", "messages": messages})
        assert response.status_code == 200, response.text
        messages.append(response.json()["choices"][0]["message"])


def test_conversations_are_scored_after_a_silence(tmp_path):
    shop = Shop()
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(in_thread(shop))
        running = stack.enter_context(product(tmp_path, CONFIG.format(url=url, metrics=ENABLED + DISABLED)))
        headers = {"x-gaugeway-app": "shop"}
        with httpx.Client(base_url=running.base_url, headers=headers, timeout=30) as client:
            for number in range(6):
                converse(client, "order" if number % 2 else "invoice", f"{number:06}")

        def scored(metric):
            found = running.get(f"/api/exchanges?app=shop&metric={metric}&limit=100")
            return [one["value"] for one in found if one["outcome"] == "score"]

        running.until(lambda: len(scored("gave_up")) == 6, 60, what="six conversations are scored")
        assert sorted(scored("goal_met")) == [0.0] * 3 + [1.0] * 3
        assert sorted(scored("gave_up")) == [0.0] * 3 + [1.0] * 3
        assert scored("turns_to_resolution") == [0.5] * 3
        assert len(shop.transcripts) == 6
        assert {tuple(role for role, _, _ in one) for one in shop.transcripts} == {("user", "assistant") * 3}
        assert not any(PHONE in text for one in shop.transcripts for _, _, text in one)
        running.until(
            lambda: (
                running.value(running.monitors, "gaugeway_evaluations_total", metric="goal_met", outcome="score") == 6
            ),
            30,
            what="the scores are counted",
        )
        answers = running.value(running.monitors, "gaugeway_answers_total", app="shop")
        assert answers == 18
        page = httpx.get(f"{running.monitors}/conversations", timeout=60).text
        (first, *_) = links = re.findall(r'href="(/conversations/conversation-[0-9a-f]+)"', page)
        assert len(links) == 6
        transcript = httpx.get(running.monitors + first, timeout=60).text
        assert transcript.count("bubble user") == 3
        assert len(re.findall(r'href="/exchanges/', transcript)) >= 3
        moved = httpx.get(running.monitors + first.replace("conversations", "exchanges"), timeout=60)
        assert moved.headers["location"] == first
        config = ["--config", tmp_path / "gaugeway.toml", "--data-dir", running.data]
        command = [sys.executable, "-m", "gaugeway", "export", "-", *config, "--since", "1h"]
        exported = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
        assert len(exported.splitlines()) == 18
