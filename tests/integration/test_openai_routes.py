"""Every route of the `openai` package through the gateway, asked with its client; decisions as traffic."""

import asyncio
import json
import time

import httpx2
import openai
import pytest

from gateway.config import Config, Keys, Limits, Price, Upstream
from gaugeway.records import Skipped
from gaugeway.settings.shared import Metric
from gaugeway.signals import SIGNALS
from gaugeway.storage.keys import Quota, open_keys
from monitors.evaluation.evaluator import evaluate
from monitors.metrics.registry import build
from monitors.signals.compute import SignalComputer
from tests.support.openai_routes import BESIDE, WEBSOCKET, requested, routes, treatment
from tests.support.running import running_gateway, serving

pytestmark = pytest.mark.full

ADMITTED = {"metered", "free"}
ANSWERS = [
    {"type": "predicate", "name": "complains", "probability": 0.92},
    {"type": "refusal", "name": "insults"},
    {
        "type": "score",
        "score": 2.4,
        "confidence": 0.7,
        "probabilities": [{"label": "calm", "value": 1, "probability": 1}],
    },
]
USAGE = {
    "input_tokens": 400_000,
    "input_tokens_details": {"cached_tokens": 300_000, "cache_write_tokens": 0},
    "output_tokens": 500_000,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 900_000,
}
QUESTIONS = [
    {"type": "predicate", "name": "complains", "instructions": "The customer complains about a charge."},
    {"type": "predicate", "name": "insults", "instructions": "The customer insults somebody."},
]
STATE = "Answer from the context.\n\nContext:\nRefunds take five days.\n\nQuestion: When do I get my money back?"
PRICES = {"gpt-6-luna": Price(input=1.0, cached=0.1), "jev-*": Price(input=2.0)}


class Provider:
    """Answers every request with JSON, and remembers what it was asked for."""

    def __init__(self, answers=None):
        self.asked, self.answers = [], answers or {}

    async def __call__(self, scope, receive, send):
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        self.asked.append((scope["method"], scope["raw_path"].decode(), body))
        content = json.dumps(self.answers.get(scope["path"], {"id": "x", "data": []})).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def through_gateway(scenario, tmp_path, provider, *, key=None, **tables):
    """Run `scenario(gateway, client)` with a gateway before `provider`; `key` are the fields of the client's key."""

    async def main():
        secret = "sk-provider"
        if key is not None:
            store = open_keys(None, tmp_path)
            secret = (await store.create(app="shop", now=time.time(), **key)).secret
            await store.aclose()
        async with serving(provider) as port:
            upstreams = (Upstream(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-provider" if key else None),)
            config = Config(upstreams=upstreams, keys=Keys(enabled=key is not None), **tables)
            async with running_gateway("", config=config, keys_file=tmp_path / "keys.db") as gateway:
                base_url = f"http://127.0.0.1:{gateway.port}/v1"
                async with openai.AsyncOpenAI(base_url=base_url, api_key=secret, max_retries=0) as client:
                    async with asyncio.timeout(120):
                        await scenario(gateway, client)

    asyncio.run(main())


async def status_of(client, method, path, body):
    """The status that the client gets."""
    options = {"json_data": body} if body is not None else {}
    try:
        request = openai._models.FinalRequestOptions.construct(method=method, url=path, **options)  # noqa: SLF001 - as its resources do
        await client.request(cast_to=httpx2.Response, options=request)
    except openai.APIStatusError as error:
        return error.status_code, error.code
    return 200, None


HTTP = sorted(route for route in {*routes(), *BESIDE} if route[0] != WEBSOCKET)


def test_every_route_passes_unchanged_and_a_budget_admits_what_the_reference_says(tmp_path):
    limited, free = Provider(), Provider()
    body = {"model": "m", "input": "x"}

    async def asks(gateway, client):
        for method, path in HTTP:
            sent = body if method == "POST" else None
            got = await status_of(client, method.lower(), requested(path).removeprefix("/v1"), sent)
            admitted = gateway.limited and treatment(method, path).budget not in ADMITTED
            assert got == ((403, "route_not_allowed") if admitted else (200, None)), (method, path)

    async def under_a_budget(gateway, client):
        gateway.limited = True
        await asks(gateway, client)

    async def without(gateway, client):
        gateway.limited = False
        await asks(gateway, client)
        await gateway.until(lambda: gateway.total("gaugeway_requests_total") == len(HTTP))
        captured = sum(treatment(*route).captured != "no" for route in HTTP)
        await gateway.until(lambda: gateway.total("gaugeway_exchanges_total") == captured)

    through_gateway(under_a_budget, tmp_path, limited, limits=Limits(usd_per_day=1e6), prices=PRICES)
    through_gateway(without, tmp_path, free)
    arrived = [(method, requested(path)) for method, path in HTTP]
    assert [(method, path) for method, path, _ in free.asked] == arrived
    assert {json.dumps(json.loads(sent)) for method, _, sent in free.asked if method == "POST"} == {json.dumps(body)}
    admitted = [route for route, listed in zip(arrived, HTTP, strict=True) if treatment(*listed).budget in ADMITTED]
    assert [(method, path) for method, path, _ in limited.asked] == admitted


def test_a_key_for_certain_models_reaches_the_routes_that_the_reference_says(tmp_path):
    async def scenario(_, client):
        for method, path in HTTP:
            where = method.lower(), requested(path).removeprefix("/v1")
            allowed = treatment(method, path).restricted_key
            for model in ("cheap", "expensive"):
                got = await status_of(client, *where, {"model": model} if method == "POST" else None)
                passes = allowed == "yes" or (allowed == "by its model" and model == "cheap")
                assert got == ((200, None) if passes else (403, "model_not_allowed")), (method, path, model)

    through_gateway(scenario, tmp_path, Provider(), key={"models": ("cheap",)})


def decided(path, answers):
    return {"/v1/" + path: {"model": "gpt-6-luna", "answers": answers, "usage": USAGE}}


def test_a_decision_is_metered_priced_and_captured_as_no_answer(tmp_path):
    provider = Provider(decided("decisions", ANSWERS))

    async def scenario(gateway, client):
        decision = await client.decisions.create(
            model="gpt-6-luna",
            input=[{"role": "user", "content": STATE}],
            questions=QUESTIONS,
            extra_body={"gaugeway": {"session": "s-1"}},
        )
        assert [answer.type for answer in decision.answers] == ["predicate", "refusal", "score"]
        assert decision.usage.input_tokens_details.cached_tokens == 300_000
        assert b"gaugeway" not in provider.asked[0][2]
        (sample,) = await gateway.samples(1)
        assert (sample.skip_reason, sample.tags["auxiliary"]) == ("auxiliary", "decision")
        assert (sample.question, sample.contexts, sample.context_source) == (None, (), "none")
        assert json.loads(sample.response) == ANSWERS
        assert SignalComputer(SIGNALS).compute(sample) == {}
        metrics = build({"lexical_groundedness": Metric()}, None, None).by_name.values()
        scored = [await evaluate(metric, sample, rate=1.0, clock=time.monotonic) for metric in metrics]
        assert [evaluation.outcome for evaluation in scored] == [Skipped("auxiliary")]
        assert (sample.model, sample.session) == ("gpt-6-luna", "s-1")
        assert sample.cost_usd == pytest.approx(0.1 * 1.0 + 0.3 * 0.1)  # a price without `output`: output is free
        counted = {
            kind: gateway.total("gaugeway_tokens_total", model="gpt-6-luna", type=kind)
            for kind in ("input", "cached", "output")
        }
        assert counted == {"input": 400_000, "cached": 300_000, "output": 500_000}
        assert gateway.total("gaugeway_cost_usd_total", app="default") == pytest.approx(0.13)
        assert gateway.total("gaugeway_captured_total", kind="auxiliary") == 1
        assert gateway.total("gaugeway_requests_total", route="decisions", model="gpt-6-luna") == 1

    through_gateway(scenario, tmp_path, provider, prices=PRICES)


def test_decisions_of_a_key_spend_its_budget_and_its_models_hold(tmp_path):
    provider = Provider(decided("decisions", ANSWERS))
    key = {"models": ("gpt-6-luna",), "quota": Quota(usd_per_day=0.2)}

    async def scenario(_, client):
        async def ask(model):
            return await status_of(
                client, "post", "/decisions", {"model": model, "input": STATE, "questions": QUESTIONS}
            )

        assert await ask("gpt-6") == (403, "model_not_allowed")
        assert [await ask("gpt-6-luna") for _ in range(2)] == [(200, None)] * 2  # 0.13 USD each
        status, _ = await ask("gpt-6-luna")
        assert status == 429

    through_gateway(scenario, tmp_path, provider, key=key, prices=PRICES)


def test_a_server_of_typed_questions_with_names_is_read_too(tmp_path):
    answers = {"complains": {"type": "noul", "noul": 0.92}}
    provider = Provider(decided("systemone", answers))

    async def scenario(gateway, client):
        body = {"model": "jev-latest", "state": STATE, "questions": {"complains": {"type": "noul", "question": "?"}}}
        assert await status_of(client, "post", "/systemone", body) == (200, None)
        (sample,) = await gateway.samples(1)
        assert (sample.tags["auxiliary"], sample.question, sample.contexts) == ("decision", None, ())
        assert json.loads(sample.response) == answers
        assert sample.cost_usd == pytest.approx(0.8)

    through_gateway(scenario, tmp_path, provider, prices=PRICES)


def test_a_refused_decision_is_an_error_and_costs_nothing(tmp_path):
    async def scenario(gateway, client):
        assert (await status_of(client, "post", "/decisions", None))[0] == 400  # no body
        assert gateway.total("gaugeway_cost_usd_total") == 0

    through_gateway(scenario, tmp_path, Provider(), prices=PRICES)
