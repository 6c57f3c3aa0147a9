"""Two apps with a key each behind one gateway: what one says about the other's exchanges changes nothing of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import httpx
import pytest

from gaugeway.storage.keys import open_keys
from tests.support.clickhouse import clickhouse
from tests.support.llm_server import LLMServer, Reply
from tests.support.postgres import postgres
from tests.support.product import product

CONFIG = """
[[upstreams]]
base_url = "{upstream}"
api_key = "sk-provider"
[keys]
enabled = true
[monitors]
join_window_s = 4
[store]
url = "{store}"
"""
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY = {"model": "m", "messages": [{"role": "user", "content": "How many moons has Mars?"}]}
TRUE, FALSE = "Mars has two moons, Phobos and Deimos.", "Mars is made of cheese."


def keys_for(data: Path, *apps: str) -> list[str]:
    """A key for each app, in the key file that the gateway will find."""

    async def make():
        store = open_keys(None, data, busy_timeout_s=5.0)
        try:
            return [(await store.create(app=app, now=time.time())).secret for app in apps]
        finally:
            await store.aclose()

    data.mkdir(parents=True)
    return asyncio.run(make())


class Client:
    """Somebody with a key."""

    def __init__(self, running, secret):
        self._running = running
        self._key = {"authorization": f"Bearer {secret}"}

    def ask(self, **headers):
        """Make an exchange; return its id."""
        url = f"{self._running.base_url}/chat/completions"
        answer = httpx.post(url, json=BODY, headers={**self._key, **headers}, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-gaugeway-exchange-id"]

    def say(self, path, **body):
        """Say something beside an exchange. Whom it would reach is not told."""
        url = f"http://127.0.0.1:{self._running.port}/gaugeway/v1/{path}"
        assert httpx.post(url, json=body, headers=self._key, timeout=30).status_code == 202


def found(running, exchange_id):
    path = f"/api/exchanges/{exchange_id}"
    running.until(lambda: httpx.get(running.monitors + path).status_code == 200, 60, what=f"{exchange_id} is stored")
    return running.get(path)


def falsify(foe, key, exchange_id):
    """Say everything that can be said about somebody else's exchange, under every address."""
    for where in ({"exchange_id": exchange_id}, {"key": key}, {"trace_id": TRACE}):
        foe.say("feedback", **where, contexts=[FALSE], reference=FALSE, comment=FALSE)
        foe.say("feedback", **where, rating=0.0)
        foe.say("feedback", **where, label="fail")
        if "exchange_id" not in where:
            foe.say("contexts", **where, contexts=[FALSE], question=FALSE, reference=FALSE)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql", "clickhouse"])
def test_what_another_key_says_reaches_nothing_of_an_app_and_its_own_does(tmp_path, engine):
    engines = {"postgresql": postgres, "clickhouse": clickhouse}
    store = f"sqlite:///{tmp_path}/s.db" if engine == "sqlite" else engines[engine]().database()
    ours, theirs = keys_for(tmp_path / "data", "shop", "rival")
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(LLMServer(Reply(content="Mars has two moons.")))
        running = stack.enter_context(product(tmp_path, CONFIG.format(upstream=upstream.url, store=store)))
        shop, rival = Client(running, ours), Client(running, theirs)
        falsify(rival, "turn-1", "ex-unknown")  # before the exchange
        keyed = shop.ask(**{"x-gaugeway-context-key": "turn-1"})
        traced = shop.ask(traceparent=f"00-{TRACE}-{SPAN}-01")
        bare = shop.ask()
        for mine, key in ((keyed, "turn-1"), (traced, "-"), (bare, "-")):  # while they wait
            falsify(rival, key, mine)
        shop.say("contexts", key="turn-1", contexts=[TRUE])
        shop.say("contexts", trace_id=TRACE, contexts=[TRUE])
        stored = [found(running, one) for one in (keyed, traced, bare)]
        taken = rival.ask(**{"x-gaugeway-context-key": "turn-1", "traceparent": f"00-{TRACE}-{SPAN}-01"})
        assert found(running, taken)["sample"]["app"] == "rival"
        for mine in (keyed, traced, bare):  # when they are stored
            falsify(rival, "turn-1", mine)
        shop.say("feedback", key="turn-1", rating=1.0)
        shop.say("feedback", trace_id=TRACE, label="pass")
        shop.say("feedback", exchange_id=bare, contexts=[TRUE], rating=1.0)

        def own(exchange_id, count):
            return len(found(running, exchange_id)["supplements"]) >= count

        for exchange_id, count in ((keyed, 2), (traced, 2), (bare, 1)):
            running.until(lambda one=exchange_id, n=count: own(one, n), 60, what="its own supplements are there")
        running.until(lambda: found(running, bare)["sample"]["contexts"], 60, what="feedback completes the sample")
        stored = [found(running, one) for one in (keyed, traced, bare)]
        assert [[one["text"] for one in each["sample"]["contexts"]] for each in stored] == [[TRUE]] * 3
        for each in stored:
            assert {one["app"] for one in each["supplements"]} == {"shop"}
            assert FALSE not in str(each)
        assert {one["app"] for one in found(running, taken)["supplements"]} == {"rival"}
        labels = running.get("/api/labels?app=shop")
        (groundedness,) = [one for one in labels if one["metric"] == "lexical_groundedness"]
        assert groundedness["labels"] == 3, "all three of the shop's own"
        assert "cannot be" not in running.log.read_text()
