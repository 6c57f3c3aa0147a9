"""An agent of three tool calls per answer, of which the second begins to retrieve the wrong passages."""

import asyncio
import itertools
import json
import random

import httpx

from tests.integration.test_alert_causes import EASY
from tests.support.scenario import TOPICS, Script, completion, lab, passages

TOOLS = ("search_faq", "search_docs", "search_wiki")
SCHEMAS = [{"type": "function", "function": {"name": one, "parameters": {"type": "object"}}} for one in TOOLS]


class AgentScript(Script):
    """A model that calls three search tools in turn, then answers with a sentence or two from each result.

    What it finds nothing about it makes up.
    """

    async def __call__(self, scope, receive, send):
        if scope["path"].startswith("/judge"):
            await super().__call__(scope, receive, send)
            return
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        said = json.dumps(self.step(json.loads(raw))).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": said})

    def step(self, body):
        question = next(one["content"] for one in body["messages"] if one["role"] == "user")
        results = [one["content"] for one in body["messages"] if one["role"] == "tool"]
        if len(results) < len(TOOLS):
            arguments = json.dumps({"query": question})
            made = completion({**body, "messages": []}, "")
            number = random.Random(f"{question} {len(results)}").randrange(10**16)
            call = {"id": f"call_{number:016}", "type": "function"}
            call["function"] = {"name": TOOLS[len(results)], "arguments": arguments}
            made["choices"][0] |= {"finish_reason": "tool_calls"}
            made["choices"][0]["message"] |= {"content": None, "tool_calls": [call]}
            return made
        topic = next(one for one in TOPICS if one in question)
        draw = random.Random(question)
        said = []
        for result in results:
            known = [one for text in json.loads(result) for one in text.rstrip(".").split(". ") if topic in one]
            for number in range(2):
                good = len(known) > number and draw.random() < 0.95
                said.append(known[number] if good else f"Our {topic} desk keeps {draw.randrange(10**6)} in Bruges")
        return completion({**body, "messages": []}, ". ".join(said) + ".")


async def ask(client, numbers, topic, broken):
    """One question through the agent's loop."""
    number = next(numbers)
    messages = [
        {"role": "system", "content": "You answer for shop. Search before you answer."},
        {"role": "user", "content": TOPICS[topic].format(n=number)},
    ]
    while True:
        body = {"model": "m", "messages": messages, "tools": SCHEMAS}
        response = await client.post("/chat/completions", json=body, headers={"x-gaugeway-app": "shop"})
        assert response.status_code == 200, response.text
        message = response.json()["choices"][0]["message"]
        if not message.get("tool_calls"):
            return
        (call,) = message["tool_calls"]
        name = call["function"]["name"]
        about = next(one for one in TOPICS if one != topic) if broken and name == "search_docs" else topic
        texts = passages(about, 10 * number + TOOLS.index(name)).split("\n\n")
        result = {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(texts)}
        messages += [{key: value for key, value in message.items() if value is not None}, result]


def agent(running, numbers, topics, count, *, broken=False):
    async def several():
        gate = asyncio.Semaphore(6)
        async with httpx.AsyncClient(base_url=running.running.base_url, timeout=60) as client:

            async def one():
                async with gate:
                    await ask(client, numbers, next(topics), broken)

            await asyncio.gather(*(one() for _ in range(count)))

    asyncio.run(several())


def test_the_alert_names_the_hop_and_the_tool_that_retrieve_the_wrong_passages(tmp_path):
    numbers, topics = itertools.count(), itertools.cycle(EASY)
    with lab(tmp_path, rules=[(["shop"], 0.9)], script=AgentScript()) as one:
        agent(one, numbers, topics, 120)
        one.settle()
        assert one.told("shop") == []

        def named():
            return [told for told in one.told("shop") if "hop 2" in told["annotations"]["cause_detail"]]

        def wrong():
            agent(one, numbers, topics, 16, broken=True)
            return []

        one.ask_until(wrong, named)
        annotations = named()[-1]["annotations"]
        assert annotations["likely_cause"] == "retrieval"
        assert "The passages of hop 2, tool search_docs became less relevant" in annotations["cause_detail"]
        (alert,) = one.running.get("/api/alerts")
        assert (alert["cause_hop"], alert["cause_tool"]) == (2, "search_docs")
        newest = next(
            point
            for point in one.running.get("/api/exchanges?app=shop&metric=context_relevancy&limit=50")
            if point["outcome"] == "score"
        )
        found = one.running.get(f"/api/exchanges/{newest['sample_id']}")
        assert {(each["hop"], each["tool"]) for each in found["sample"]["contexts"]} == set(enumerate(TOOLS, 1))
        assert [(each["name"], each["hop"]) for each in found["sample"]["calls"]] == [
            (name, hop) for hop, name in enumerate(TOOLS, 1)
        ]
        print(annotations["cause_detail"])  # noqa: T201
