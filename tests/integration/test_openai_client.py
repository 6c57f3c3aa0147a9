"""A real `openai` client gets through Gaugeway exactly what it gets directly."""

import asyncio
import gzip
import json
from pathlib import Path

import httpx
import openai
import pytest

from gaugeway.demo.servers import body
from tests.support.in_thread import in_thread
from tests.support.product import product

RECORDED = [json.loads(line) for line in Path("tests/corpora/openai.jsonl").read_text("utf-8").splitlines()]
"""What a provider answers, by path and by what the request asks for."""
HEADERS = [
    (b"date", b"Thu, 01 Jan 2026 00:00:00 GMT"),
    (b"x-request-id", b"req_1"),
    (b"openai-processing-ms", b"174"),
    (b"openai-version", b"2020-10-01"),
    (b"x-ratelimit-remaining-requests", b"9999"),
    (b"set-cookie", b"__cf_bm=a; path=/; HttpOnly"),
    (b"set-cookie", b"_cfuvid=b; path=/; HttpOnly"),
]

MESSAGES = [{"role": "user", "content": "What is the largest planet?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the handbook.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
OURS = "x-gaugeway-exchange-id"
# Hop-by-hop headers belong to each connection; the others may differ because each is about one request or one moment.
PER_CONNECTION = {"connection", "keep-alive", "transfer-encoding"}
PER_REQUEST = {"x-request-id", "openai-processing-ms", "x-ratelimit-remaining-requests", "date"}


async def provider(scope, receive, send):
    """Answer as recorded, in gzip if asked for."""
    sent = json.loads(await body(receive) or b"{}")
    asks = {
        "stream": bool(sent.get("stream")),
        "usage": "stream_options" in sent,
        "tools": "tools" in sent,
        "choices": sent.get("n", 1),
    }
    answer = next(
        (known for known in RECORDED if (known["path"], known["asks"]) == (scope["path"], asks)), RECORDED[-1]
    )
    headers = [*HEADERS, (b"content-type", answer["type"].encode())]
    content = answer["body"].encode()
    if (b"x-demo-gzip", b"1") in scope["headers"]:
        content = gzip.compress(content, mtime=0)
        headers.append((b"content-encoding", b"gzip"))
    if not asks["stream"]:
        headers.append((b"content-length", b"%d" % len(content)))
    await send({"type": "http.response.start", "status": answer["status"], "headers": headers})
    await send({"type": "http.response.body", "body": content[:100], "more_body": True})
    await send({"type": "http.response.body", "body": content[100:]})


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    """(direct, through Gaugeway)"""
    with in_thread(provider) as address:
        upstream = f"{address}/v1"
        config = f'[[upstreams]]\nbase_url = "{upstream}"\n'
        with product(tmp_path_factory.mktemp("gateway"), config, command="gateway") as gateway:
            yield upstream, gateway.base_url


def wire(call):
    """What one call of the client put on and took from the wire: raw bytes and headers, as httpx saw them."""
    seen = []

    class Recording(httpx.HTTPTransport):
        def handle_request(self, request):
            response = super().handle_request(request)
            raw = b"".join(response.stream)
            response.close()
            seen.append((response.status_code, raw, response.headers))
            return httpx.Response(response.status_code, headers=response.headers.raw, stream=httpx.ByteStream(raw))

    def at(url):
        seen.clear()
        http_client = httpx.Client(transport=Recording())
        with openai.OpenAI(base_url=url, api_key="test", http_client=http_client, max_retries=0) as client:
            result = call(client)
        return result, seen[-1]

    return at


CALLS = {
    "chat": lambda client: client.chat.completions.create(model="m", messages=MESSAGES).model_dump(),
    "chat stream": lambda client: [
        chunk.model_dump() for chunk in client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    ],
    "chat stream with usage": lambda client: [
        chunk.model_dump()
        for chunk in client.chat.completions.create(
            model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
    ],
    "tools": lambda client: client.chat.completions.create(
        model="m", messages=MESSAGES, tools=[TOOL], tool_choice="required"
    ).model_dump(),
    "tools stream": lambda client: [
        chunk.model_dump()
        for chunk in client.chat.completions.create(
            model="m", messages=MESSAGES, tools=[TOOL], tool_choice="required", stream=True
        )
    ],
    "several choices": lambda client: client.chat.completions.create(model="m", messages=MESSAGES, n=2).model_dump(),
    "completions": lambda client: client.completions.create(model="m", prompt="Say hi").model_dump(),
    "responses": lambda client: client.responses.create(model="m", input="What is a comet?").model_dump(),
    "responses stream": lambda client: [
        event.model_dump() for event in client.responses.create(model="m", input="What is a comet?", stream=True)
    ],
    "embeddings": lambda client: client.embeddings.create(model="e", input=["a", "b"]).model_dump(),
    "models": lambda client: [model.model_dump() for model in client.models.list()],
    "gzip": lambda client: client.chat.completions.create(
        model="m", messages=MESSAGES, extra_headers={"x-demo-gzip": "1"}
    ).model_dump(),
    "raw response": lambda client: (
        client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES).parse().model_dump()
    ),
    "not found": lambda client: _error(lambda: client.get("/nowhere", cast_to=object)),
}


def _error(call):
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    return type(caught.value).__name__, caught.value.status_code, caught.value.body


@pytest.mark.parametrize("name", CALLS)
def test_the_client_gets_the_same_object_the_same_bytes_and_the_same_headers(urls, name):
    direct, through = map(wire(CALLS[name]), urls)
    assert direct[0] == through[0]
    (status, body, headers), (other_status, other_body, other_headers) = direct[1], through[1]
    assert status == other_status
    assert OURS in other_headers
    del other_headers[OURS]
    shown = {key: value for key, value in headers.items() if key not in PER_CONNECTION | PER_REQUEST}
    assert shown == {key: value for key, value in other_headers.items() if key not in PER_CONNECTION | PER_REQUEST}
    assert set(headers) - PER_CONNECTION == set(other_headers) - PER_CONNECTION
    assert body == other_body


@pytest.mark.parametrize("stream", [False, True])
def test_the_async_client_gets_the_same(urls, stream):
    async def at(url):
        async with openai.AsyncOpenAI(base_url=url, api_key="test", max_retries=0) as client:
            made = await client.chat.completions.create(model="m", messages=MESSAGES, stream=stream)
            if not stream:
                return made.model_dump()
            return [chunk.model_dump() async for chunk in made]

    direct, through = (asyncio.run(at(url)) for url in urls)
    assert direct == through


def test_raw_responses_keep_the_headers_clients_read(urls):
    with openai.OpenAI(base_url=urls[1], api_key="test", max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
        assert raw.headers["x-request-id"]
        assert raw.headers["x-ratelimit-remaining-requests"]
        assert len(raw.headers[OURS]) == 32
