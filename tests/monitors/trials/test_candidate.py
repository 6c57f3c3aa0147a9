"""What a candidate is asked, what that can cost at most, and what becomes of each kind of answer."""

import asyncio
import json
import time
from email.utils import formatdate

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.exchange import Response
from gaugeway.prompts.changed_request import NotExactError
from gaugeway.records import Context, Sample, Usage
from gaugeway.settings.shared import Price, PriceTable
from gaugeway.storage.trials import Arm, Kept
from monitors.trials import candidate as module
from monitors.trials.candidate import BusyError, CallError, Prepared, ask, cost, prepared, why_no_answer
from tests.gaugeway.storage.test_trials import trial
from tests.support.llm_server import LLMServer, Reply

CHAT = {"model": "live", "messages": [{"role": "user", "content": "Why?"}]}
BODIES = {
    "chat_completions": CHAT,
    "completions": {"model": "live", "prompt": "Why?"},
    "responses": {"model": "live", "input": "Why?"},
    "messages": {"model": "live", "max_tokens": 7, "messages": CHAT["messages"]},
}
ANSWERS = {
    "chat_completions": {
        "choices": [{"message": {"content": "So."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    },
    "completions": {"choices": [{"text": "So."}], "usage": {"prompt_tokens": 100, "completion_tokens": 10}},
    "responses": {
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "So."}]}],
        "usage": {"input_tokens": 100, "output_tokens": 10},
    },
    "messages": {
        "content": [{"type": "text", "text": "So."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 40, "output_tokens": 10, "cache_read_input_tokens": 60},
    },
}
KEY = "sk-candidate-4711"


def arm(**more):
    given = {"base_url": "http://127.0.0.1:9/v1", "api_key": "${KEY}", "price": Price(input=1.0, output=2.0)}
    return Arm(**given | more)


def live(**more):
    return Sample(id="x", started_at=1.0, duration_s=1.0, **more)


def ready(body=CHAT, route="chat_completions", changes=None, sample=None, **about):
    kept = Kept(route=route, body="")
    return prepared(
        trial(**about), changes or arm(), kept, text=json.dumps(body), sample=sample or live(), prices=PriceTable({})
    )


def made(where, body):
    return Prepared(body=body, contexts=(), price=where.price, usd=1.0)


async def asked(server, route="chat_completions", body=None, headers=None, timeout_s=30.0, **changes):
    kept = Kept(route=route, body="", headers=headers or {})
    async with httpx.AsyncClient(follow_redirects=False) as client:
        where = arm(base_url=server.url, **changes)
        return await ask(client, where, kept, made(where, body or BODIES[route]), key=KEY, timeout_s=timeout_s)


@pytest.mark.parametrize("route", BODIES)
async def test_every_api_is_asked_in_its_own_way(route):
    with LLMServer(Reply(body=json.dumps(ANSWERS[route]).encode())) as server:
        response, usd = await asked(server, route)
        (request,) = server.requests
    paths = {"chat_completions": "/chat/completions", "completions": "/completions", "responses": "/responses"}
    assert request.path == "/v1" + paths.get(route, "/messages")
    own = "x-api-key" if route == "messages" else "authorization"
    assert request.headers[own] == (KEY if route == "messages" else f"Bearer {KEY}")
    assert ("authorization" in request.headers) == (route != "messages")
    assert request.headers.get("anthropic-version") == ("2023-06-01" if route == "messages" else None)
    assert (request.body, response.text, why_no_answer(response)) == (BODIES[route], "So.", None)
    assert usd == pytest.approx((100 * 1.0 + 10 * 2.0) / 1e6)


async def test_headers_that_say_how_to_read_the_request_are_the_clients():
    with LLMServer(Reply(body=json.dumps(ANSWERS["messages"]).encode())) as server:
        await asked(server, "messages", headers={"anthropic-version": "2030-01-01", "anthropic-beta": "x"})
        (request,) = server.requests
    assert (request.headers["anthropic-version"], request.headers["anthropic-beta"]) == ("2030-01-01", "x")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_a_failure_and_carries_the_key_nowhere(status):
    with LLMServer(Reply(body=json.dumps(ANSWERS["chat_completions"]).encode())) as elsewhere:
        body = json.dumps(ANSWERS["chat_completions"]).encode()
        there = Reply(status=status, headers={"location": f"{elsewhere.url}/chat/completions"}, body=body)
        with LLMServer(there) as server:
            with pytest.raises(CallError, match=f"http_{status}") as failed:
                await asked(server)
            assert not failed.value.charged
        assert elsewhere.requests == []


@pytest.mark.parametrize("status", [408, 429, 502, 503, 529])
async def test_who_is_busy_did_not_charge(status):
    reply = Reply(status=status, headers={"retry-after": "7"})
    with LLMServer(reply) as server, pytest.raises(BusyError, match=str(status)) as busy:
        await asked(server)
    assert busy.value.after_s == 7.0


async def test_a_date_to_come_back_at_is_a_time_from_now():
    reply = Reply(status=429, headers={"retry-after": formatdate(time.time() + 100, usegmt=True)})
    with LLMServer(reply) as server, pytest.raises(BusyError) as busy:
        await asked(server)
    assert 80 < busy.value.after_s <= 101


async def test_who_cannot_be_reached_did_not_charge():
    with LLMServer() as server:
        pass
    with pytest.raises(BusyError) as busy:
        await asked(server)
    assert busy.value.after_s is None


@pytest.mark.parametrize(
    ("reply", "reason", "charged"),
    [
        (Reply(status=400), "http_400", False),
        (Reply(status=401), "http_401", False),
        (Reply(status=500), "http_500", False),
        (Reply(status=504), "http_504", True),
        (Reply(body=b"<html>"), "unreadable", True),
        (Reply(body=b"\xff"), "unreadable", True),
        (Reply(body=b"[" * 100_000), "unreadable", True),
        (Reply(content="x" * (module.MAX_RESPONSE_BYTES + 1)), "too_large", True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_failure_has_a_reason_and_says_whether_it_may_cost(reply, reason, charged):
    with LLMServer(reply) as server, pytest.raises(CallError, match=rf"^{reason}$") as failed:
        await asked(server)
    assert failed.value.charged == charged


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"choices":[{"message":{"content":"So."}}]}',
        b'{"choices":[{"message":{"content":"So."}}],"usage":{}}',
        b'{"choices":[],"usage":{"prompt_tokens":"9","completion_tokens":-1}}',
        b'{"choices":[{"message":{"content":"So."}}],"usage":{"prompt_tokens":0,"completion_tokens":0}}',
    ],
)
async def test_an_answer_whose_cost_is_not_said_costs_what_was_reserved(body):
    with LLMServer(Reply(body=body)) as server:
        response, usd = await asked(server)
    assert (response.text, usd) == ("So." if b"So." in body else "", 1.0)


async def test_a_call_that_takes_too_long_may_cost():
    with LLMServer(Reply(delay_s=30.0)) as server, pytest.raises(CallError, match=r"^timeout$") as failed:
        await asked(server, timeout_s=0.2)
    assert failed.value.charged


async def test_an_answer_that_drips_takes_no_longer_than_the_call_may():
    async def drip():
        while True:
            yield b" "
            await asyncio.sleep(0.05)

    class Dripping(httpx.AsyncBaseTransport):
        async def handle_async_request(self, _):
            return httpx.Response(200, content=drip())

    async with httpx.AsyncClient(transport=Dripping()) as client:
        with pytest.raises(CallError, match=r"^timeout$"):
            await ask(client, arm(), Kept(route="chat_completions", body=""), made(arm(), CHAT), key=KEY, timeout_s=0.3)


@pytest.mark.parametrize(
    ("route", "body", "why"),
    [
        ("chat_completions", {"choices": [{"message": {"refusal": "No."}}]}, "refusal"),
        (
            "chat_completions",
            {"choices": [{"message": {"content": "So"}, "finish_reason": "length"}]},
            "truncated_response",
        ),
        ("chat_completions", {"choices": [{"message": {"tool_calls": [{"id": "c"}]}}]}, "tool_call"),
        ("chat_completions", {"choices": []}, "empty_response"),
        ("chat_completions", {"choices": [{"message": {"content": " "}}]}, "empty_response"),
        ("chat_completions", {"error": {"message": "no"}}, "error_response"),
        ("responses", {"output": [], "incomplete_details": {"reason": "max_output_tokens"}}, "truncated_response"),
        ("responses", {"output": [{"type": "function_call"}]}, "tool_call"),
        ("messages", {"content": [{"type": "tool_use"}], "stop_reason": "tool_use"}, "tool_call"),
        ("messages", {"content": [], "stop_reason": "refusal"}, "refusal"),
        ("messages", {"content": [{"type": "text", "text": "S"}], "stop_reason": "max_tokens"}, "truncated_response"),
    ],
)
async def test_what_is_no_answer_is_named(route, body, why):
    usage = {"usage": {"input_tokens": 1, "output_tokens": 1, "prompt_tokens": 1, "completion_tokens": 1}}
    with LLMServer(Reply(body=json.dumps(body | usage).encode())) as server:
        response, _ = await asked(server, route)
    assert why_no_answer(response) == why


def test_an_answer_is_one():
    assert why_no_answer(Response(status=200, body={}, text="So.", tool_calls=1)) is None


def test_the_request_is_not_streamed_and_goes_to_the_other_model():
    body = CHAT | {"stream": True, "stream_options": {"include_usage": True}, "top_p": 0.5, "max_tokens": 9}
    changes = arm(model="other", params={"temperature": 0, "top_p": None})
    made = ready(body, changes=changes)
    assert made.body == CHAT | {"model": "other", "temperature": 0, "max_tokens": 9}
    assert body["stream"]


@pytest.mark.parametrize("route", BODIES)
def test_an_answer_has_a_longest_length(route):
    body = {name: value for name, value in BODIES[route].items() if name != "max_tokens"}
    made = ready(body, route, max_output_tokens=77).body
    assert [value for name, value in made.items() if "max" in name] == [77]
    assert made.get("store") is (False if route == "responses" else None)


@pytest.mark.parametrize("given", [-1, 0, True, None, "9", 1.5])
def test_a_length_that_is_no_bound_is_replaced(given):
    made = ready(CHAT | {"max_tokens": given}, max_output_tokens=50)
    assert (made.body["max_completion_tokens"], "max_tokens" in made.body) == (50, False)
    assert made.usd >= 50 * 2.0 / 1e6


def test_of_two_lengths_the_longer_one_bounds_the_cost():
    assert ready(CHAT | {"max_completion_tokens": 5, "max_tokens": 90_000}).usd >= 90_000 * 2.0 / 1e6


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"previous_response_id": "r"}, "server_state"),
        ({"conversation": {"id": "c"}}, "server_state"),
        ({"background": True}, "server_state"),
        ({"prompt": {"id": "pmpt_1"}}, "server_state"),
        ({"web_search_options": {"search_context_size": "low"}}, "server_state"),
        ({"mcp_servers": [{"url": "https://a"}]}, "server_state"),
        ({"tools": [{"type": "web_search_preview"}]}, "provider_tools"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "provider_tools"),
        ({"n": 2}, "several_choices"),
        ({"best_of": 3}, "several_choices"),
        ({"messages": [{"content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}]}, "remote_media"),
        ({"input": [{"content": [{"type": "input_image", "image_url": "https://a/b.png"}]}]}, "remote_media"),
        ({"input": [{"content": [{"type": "input_file", "file_id": "f"}]}]}, "remote_media"),
        (
            {"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": "https://a"}}]}]},
            "remote_media",
        ),
    ],
)
def test_what_cannot_be_asked_again_alike_is_refused(more, why):
    with pytest.raises(NotExactError, match=why):
        ready(CHAT | more)


def test_tools_of_the_client_and_media_in_the_request_are_sent():
    tools = [{"type": "function", "function": {"name": "f"}}, {"name": "g", "input_schema": {}}, {"type": "custom"}]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = CHAT | {"tools": tools, "messages": [{"role": "user", "content": [image]}], "background": False, "n": 1}
    assert ready(body).body["tools"] == tools


def with_passages(*sources):
    contexts = tuple(Context(text=f"The {name} stands at the old gate.", source=name) for name in sources)
    listed = "\n".join(f"[{n}] {context.text}" for n, context in enumerate(contexts, 1))
    content = f"Answer from these.\n\nSources:\n{listed}\n\nQuestion: Why?"
    return {"messages": [{"role": "user", "content": content}]}, live(question="Why?", contexts=contexts)


def test_passages_are_left_out_by_number_and_by_source():
    body, sample = with_passages("tower", "lamp", "tower", "winch")
    fewer = ready(body, changes=arm(max_contexts=3, drop_source="lamp"), sample=sample)
    wanted, _ = with_passages("tower", "tower")
    assert fewer.body["messages"] == wanted["messages"]
    assert [context.source for context in fewer.contexts] == ["tower", "tower"]


def test_other_instructions_get_the_passages_that_are_left():
    body, sample = with_passages("tower", "lamp", "winch")
    changes = arm(max_contexts=2, system_prompt="Briefly.\n{context}\nAsked: {question}")
    made = ready(body, changes=changes, sample=sample)
    (message,) = made.body["messages"]
    assert message["content"] == (
        "Briefly.\n[1] The tower stands at the old gate.\n[2] The lamp stands at the old gate.\nAsked: Why?"
    )


PRICES = st.builds(
    Price,
    input=st.floats(0, 1000),
    output=st.floats(0, 1000),
    cached=st.none() | st.floats(0, 1000),
    per=st.sampled_from([1000, 1_000_000]),
)


@given(
    price=PRICES,
    texts=st.lists(st.text(max_size=40), min_size=1, max_size=5),
    length=st.none() | st.integers(1, 5000),
    route=st.sampled_from(sorted(BODIES)),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_most_it_can_cost_is_never_less_than_what_it_costs(*, price, texts, length, route, shares):
    share, cached = shares
    body = dict(BODIES[route])
    if "messages" in body:
        body["messages"] = [{"role": "user", "content": text} for text in texts]
    body |= {} if length is None else {module._OUTPUT_KEYS[route][-1]: length}  # noqa: SLF001 - the names of the API
    where = arm(price=price)
    made = ready(body, route, where)
    # no tokenizer makes more tokens than bytes; providers add a few for each message, and answers fill their length
    given_ = len("".join(texts).encode()) + 10 * len(texts)
    most = max(made.body.get(name) or 0 for name in module._OUTPUT_KEYS[route])  # noqa: SLF001 - same
    read = int(given_ * cached)
    usage = Usage(
        input_tokens=given_ - read if route == "messages" else given_,
        output_tokens=int(most * share),
        cached_tokens=read,
    )
    assert cost(where.price, route, usage) <= made.usd * (1 + 1e-9)


@pytest.mark.parametrize(
    ("route", "usage", "usd"),
    [
        ("chat_completions", Usage(input_tokens=100, output_tokens=10, cached_tokens=40), 60 * 1 + 40 * 0.5 + 10 * 2),
        (
            "messages",
            Usage(input_tokens=60, output_tokens=10, cached_tokens=40, cache_write_tokens=5),
            65 * 1 + 40 * 0.5 + 10 * 2,
        ),
    ],
)
def test_cached_tokens_have_their_price_however_an_api_counts_them(route, usage, usd):
    where = arm(price=Price(input=1.0, output=2.0, cached=0.5))
    assert cost(where.price, route, usage) == pytest.approx(usd / 1e6)
