"""A key for certain models: no spelling of a request gets at another one."""

import asyncio
import gzip
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.access.operations import operation_of
from gateway.access.restrictions import MOST_TOKENS, Asked, check_message, check_request, is_ambiguous
from gateway.config import Config, Keys, Upstream
from gateway.http.errors import Rejection
from gaugeway.storage.keys import VirtualKey, open_keys
from tests.gateway.proxy.test_passthrough import ScriptedUpstream, exchange, post, reply
from tests.support.running import running_gateway, tcp_server

CHAT = "/v1/chat/completions"
OK = '{"model":"cheap","messages":[]}'
KEY = VirtualKey(id="k", digest=b"", app="a", created_at=0.0, models=("cheap*",))
JSON = [(b"content-type", b"application/json")]

STANDARD = (
    "messages input instructions modalities audio response_format metadata tool_choice parallel_tool_calls"
    " functions function_call temperature top_p top_k top_logprobs logprobs logit_bias n stop stop_sequences stream"
    " stream_options store seed service_tier prediction reasoning reasoning_effort verbosity web_search_options user"
    " safety_identifier prompt prompt_cache_key prompt_cache_retention previous_response_id conversation include"
    " truncation text background max_tokens max_completion_tokens max_output_tokens max_tool_calls max_prompt_tokens"
    " presence_penalty frequency_penalty encoding_format dimensions system thinking container context_management"
    " mcp_servers output_config betas suffix echo best_of voice speed size quality style moderation partial_images"
    " output_format output_compression input_fidelity mask image documents query top_n"
)
"""Members that OpenAI, Anthropic and rerankers document."""

REFUSED = [
    (CHAT, '{"model":"cheap","Model":"expensive"}'),
    (CHAT, '{"model":"cheap","MODEL":"expensive"}'),
    (CHAT, '{"Model":"cheap"}'),
    (CHAT, '{"model":"cheap","model":"expensive"}'),
    (CHAT, '{"model":"expensive","model":"cheap"}'),
    (CHAT, '{"model":"cheap","model":"cheap"}'),
    (CHAT, '{"model":"cheap","mod\\u0065l":"expensive"}'),
    (CHAT, '{"mod\\u0065l":"expensive","model":"cheap"}'),
    (CHAT, '{"mod\\u0065l":"expensive"}'),
    (CHAT, '{"model":"cheap","models":["expensive"]}'),
    (CHAT, '{"model":"cheap","model\\u017f":["expensive"]}'),
    (CHAT, '{"model":"cheap","fallbacks":["expensive"]}'),
    (CHAT, '{"model":"cheap","route":"fallback"}'),
    (CHAT, '{"model":"cheap","extra_body":{"model":"expensive"}}'),
    (CHAT, '{"model":"cheap,expensive"}'),
    (CHAT, '{"model":"cheap/../expensive"}'),
    (CHAT, '{"model":["cheap"]}'),
    (CHAT, '{"messages":[]}'),
    (CHAT, '[{"model":"cheap"}]'),
    (CHAT, "\ufeff" + OK),
    (CHAT, OK[:-1] + ',"x":NaN}'),
    (CHAT, OK + OK),
    ("/v1/responses", '{"model":"cheap","tools":[{"type":"image_generation","model":"expensive"}]}'),
    (
        "/v1/responses",
        '{"model":"cheap","tools":[{"type":"image_generation","model":"expensive","model":"cheap"}]}',
    ),
    ("/v1/responses", '{"model":"cheap","tools":[{"type":"image_generation","fallback_model":"expensive"}]}'),
    *(
        (CHAT, f'{{"model":"cheap","{name}":"expensive"}}')
        for name in (
            "user_config",
            "context_window_fallback_dict",
            "litellm_params",
            "fallback_models",
            "fallbackModels",
            "override_params",
            "x-target",
            "Base-URL",
            "config",
            "provider",
            "draft_model",
            "lora_request",
        )
    ),
    (CHAT + "?fallback_model=expensive", OK),
    (CHAT + "?model=expensive", OK),
    (CHAT + "?Model=expensive", OK),
    (CHAT + "?mod%65l=expensive", OK),
    (CHAT + "?model=cheap&model=expensive", OK),
    (CHAT + "?engine=expensive", OK),
    ("/openai/Deployments/expensive/chat/completions", OK),
    ("/openai/deployments/expensive/chat/completions", OK),
    ("/openai/deployments/expensive;x/chat/completions", OK),
    ("/openai/deployments/expensive%20/chat/completions", OK),
    ("/openai/v1/deployments/expensive/chat/completions", OK),
    ("/openai/deployments\\expensive\\chat\\completions", OK),
    ("/v1/deployments/expensive/chat/completions", OK),
    ("/v1/engines/expensive/completions", OK),
    ("/v1/models/expensive:generateContent", OK),
    ("/v1/models/expensive", OK),
    ("/v1//chat/completions", OK),
    ("/v1/Chat/Completions", OK),
    ("/v1/chat%2Fcompletions", OK),
    ("/v1/chat/completions;model=expensive", OK),
    ("/v1/batches", OK),
    ("/v1/files", OK),
]
AMBIGUOUS = [body for _, body in REFUSED[:14] if '"cheap"' in body and "," in body]
ALLOWED = [
    (CHAT, OK),
    (CHAT + "/", OK),
    (CHAT + "?model=cheap", OK),
    ("/v1/embeddings", OK),
    ("/v1/messages", OK),
    ("/v1/images/generations", OK),
    ("/openai/v1/responses", OK),
    ("/openai/deployments/cheap-1/chat/completions?api-version=2024-06-01", '{"messages":[]}'),
    ("/openai/deployments/cheap/chat/completions", OK),
    (CHAT, '{ "messages":[{"role":"user","content":"\\"model\\": \\"x\\" \\u00e9","model":"n"}], "model" : "cheap" }'),
    (CHAT, '{"model":"cheap","response_format":{"schema":{"properties":{"model":{},"models":{}}}}}'),
    ("/v1/responses", '{"model":"cheap","tools":[{"type":"function","parameters":{"properties":{"model":{}}}}]}'),
    (
        "/v1/responses",
        '{"model":"cheap","tools":[{"type":"mcp","server_url":"http://m","headers":{"X-Provider":"p"}}]}',
    ),
    (
        "/v1/responses",
        '{"model":"cheap","tools":[{"type":"image_generation","model":"cheap-2","input_fidelity":"low"}]}',
    ),
    (CHAT, json.dumps({"model": "cheap"} | dict.fromkeys(STANDARD.split()))),
]


def keyed(scenario, tmp_path, handler, *, models=("cheap*",)):
    async def main():
        store = open_keys(None, tmp_path)
        secret = (await store.create(app="a", now=time.time(), models=models)).secret
        await store.aclose()
        async with handler as port:
            upstreams = (Upstream(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-provider"),)
            config = Config(keys=Keys(enabled=True), upstreams=upstreams)
            async with running_gateway("", config=config, keys_file=tmp_path / "keys.db") as gateway:
                async with asyncio.timeout(60):
                    await scenario(gateway, secret)

    asyncio.run(main())


def test_no_spelling_of_a_request_gets_at_another_model(tmp_path):
    upstream = ScriptedUpstream(*[reply() for _ in range(len(ALLOWED))])

    async def scenario(gateway, secret):
        async def status(path, body, *headers):
            raw = post(body.encode(), path, f"Authorization: Bearer {secret}", *headers)
            head, _, answer = await exchange(gateway.port, raw)
            return int(head.split()[1]), json.loads(answer)

        for path, body in REFUSED:
            code, answer = await status(path, body)
            assert code in (400, 403), (path, body)
            assert answer["error"]["code"] in ("model_not_allowed", "ambiguous_model"), (path, body)
            assert answer["error"]["message"]
        assert upstream.requests == []
        for path, body in ALLOWED:
            assert (await status(path, body))[0] == 200, (path, body)
        assert len(upstream.requests) == len(ALLOWED)

    keyed(scenario, tmp_path, tcp_server(upstream))


def test_what_is_refused_counts_for_the_app_of_the_key(tmp_path):
    async def scenario(gateway, secret):
        own = f"Authorization: Bearer {secret}"
        cases = [
            (403, post(b'{"model":"expensive"}', CHAT, own, "x-gaugeway-app: other")),
            (403, post(OK.encode(), "/v1/files", own)),
            (400, post(b"", CHAT, own)),
            (400, post(OK.encode(), CHAT, own, "x-gaugeway-contexts: {")),
        ]
        for code, raw in cases:
            assert int((await exchange(gateway.port, raw))[0].split()[1]) == code
        headers = {"authorization": f"Bearer {secret}"}
        with pytest.raises(InvalidStatus):
            await connect(f"ws://127.0.0.1:{gateway.port}/v1/realtime?model=expensive", additional_headers=headers)
        await gateway.until(lambda: gateway.total("gaugeway_requests_total") == len(cases) + 1)
        assert gateway.total("gaugeway_requests_total", app="a") == len(cases) + 1

    keyed(scenario, tmp_path, tcp_server(ScriptedUpstream()))


def test_a_key_for_all_models_may_use_any_path_and_body(tmp_path):
    upstream = ScriptedUpstream(*[reply() for _ in range(len(REFUSED + ALLOWED))])

    async def scenario(gateway, secret):
        for path, body in REFUSED + ALLOWED:
            raw = post(body.encode(), path, f"Authorization: Bearer {secret}")
            assert (await exchange(gateway.port, raw))[0].split()[1] == b"200", (path, body)

    keyed(scenario, tmp_path, tcp_server(upstream), models=("*",))


def refused(**changed):
    asked = Asked("POST", CHAT.encode(), b"", JSON, OK.encode())._replace(**changed)
    with pytest.raises(Rejection) as caught:
        check_request(KEY, asked)
    return caught.value.status


@pytest.mark.parametrize(
    "header",
    [
        (b"content-type", b"application/x-www-form-urlencoded"),
        (b"content-type", b"multipart/form-data; boundary=b"),
        (b"content-type", b"application/json; charset=utf-16"),
        (b"content-encoding", b"gzip"),
        (b"x-portkey-config", b"{}"),
        (b"x-http-method-override", b"PUT"),
        (b"x-http-method", b"PUT"),
        (b"azureml-model-deployment", b"expensive"),
        (b"x-litellm-api-base", b"http://other"),
        (b"x-gateway-model-name", b"expensive"),
        (b"x-gateway-destination-endpoint", b"10.0.0.1"),
        (b"x_model", b"expensive"),
        (b"x-portkey-provider", b"p"),
        (b"helicone-target-url", b"http://other"),
        (b"helicone-fallbacks", b"[]"),
        (b"x-rewrite-url", b"/v1/other"),
    ],
)
def test_headers_that_let_the_upstream_read_another_model_are_refused(header):
    assert refused(headers=[header]) == 403
    check_request(
        KEY, Asked("POST", CHAT.encode(), b"", [(b"content-type", b"application/json; charset=UTF-8")], OK.encode())
    )


@pytest.mark.parametrize(
    ("changed", "message", "param"),
    [
        ({"body": b'{"model":"cheap","fallbacks":["m"]}'}, "This key may not use 'fallbacks'.", "fallbacks"),
        ({"body": b'{"model":"cheap","Route_To":"m"}'}, "This key may not use 'Route_To'.", "Route_To"),
        (
            {"body": b'{"model":"cheap","model":"cheap"}'},
            "This key is restricted to certain models: send 'model' exactly once, in lower case.",
            "model",
        ),
        (
            {"body": b"{}"},
            "This key is restricted to certain models, and the request has no readable 'model'.",
            "model",
        ),
        ({"query": b"fallback=m"}, "This key may not use the query parameter 'fallback'.", "fallback"),
        ({"headers": [(b"x-model", b"m")]}, "This key may not use the header 'x-model'.", "x-model"),
        ({"raw_path": b"/v1/other"}, "This key may not use this path.", None),
    ],
)
def test_a_refusal_names_what_the_key_may_not_use(changed, message, param):
    asked = Asked("POST", CHAT.encode(), b"", JSON, OK.encode())._replace(**changed)
    with pytest.raises(Rejection) as caught:
        check_request(KEY, asked)
    assert (caught.value.message, caught.value.param) == (message, param)


def test_headers_that_clients_send_are_open_to_a_restricted_key():
    names = (
        "host user-agent accept accept-encoding content-length connection openai-organization openai-project openai-"
        " beta anthropic-version anthropic-beta anthropic-dangerous-direct-browser-access x-stainless-arch x-stainless-"
        " lang x-stainless-os x-stainless-package-version x-stainless-runtime x-stainless-retry-count x-stainless-read-"
        " timeout x-stainless-helper-method x-request-id x-client-request-id x-ms-client-request-id idempotency-key"
        " traceparent tracestate baggage x-forwarded-for x-forwarded-host x-forwarded-proto x-real-ip sec-ch-ua-model"
        " referer origin x-gaugeway-app x-gaugeway-upstream authorization x-api-key api-key cookie te via"
    )
    headers = JSON + [(name.encode(), b"x") for name in names.split()]
    check_request(KEY, Asked("POST", CHAT.encode(), b"", headers, OK.encode()))


def test_reading_is_open_to_a_restricted_key_on_known_paths_and_without_a_body():
    for path in (
        b"/v1/models",
        b"/v1/models/org%2Fm",
        b"/v1/files/f-1/content",
        b"/openai/v1/batches/b",
        b"/v1/responses/r",
    ):
        check_request(KEY, Asked("GET", path, b"", [], b""))
    assert refused(method="GET", raw_path=b"/v1/prompt/expensive") == 403
    assert refused(method="GET") == 403
    assert refused(method="DELETE", raw_path=b"/v1/models/m", body=b"") == 403


def test_the_search_for_models_is_bounded():
    assert refused(body=b'{"model":"cheap","x":[' + b"[]," * MOST_TOKENS + b"[]]}") == 413
    assert refused(query=b"&".join(b"a=%d" % number for number in range(1000))) == 400


names = st.sampled_from(["model", "Model", "models", "x", "messages", "m\u00f6del", "tools"])


@given(st.lists(st.tuples(names, st.sampled_from(["cheap", "expensive", 1, ["a", {"model": "b"}]])), max_size=5))
def test_a_body_is_accepted_only_if_every_reader_finds_the_same_allowed_model(members):
    body = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members) + "}"
    try:
        check_request(KEY, Asked("POST", CHAT.encode(), b"", JSON, body.encode()))
    except Rejection:
        return
    assert [value for name, value in members if name.lower() in ("model", "models")] == ["cheap"]
    assert not is_ambiguous(body.encode())


@pytest.mark.parametrize("body", AMBIGUOUS)
def test_what_is_refused_to_a_restricted_key_is_ambiguous_for_a_price(body):
    assert is_ambiguous(body.encode())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/openai/deployments/d/chat/completions", "/v1/embeddings/"])
def test_known_operations_are_metered_and_their_other_spellings_unknown(path):
    assert operation_of("POST", path.encode()).kind == "metered"
    for other in (path.upper(), path.replace("/", "//"), path.replace("e", "%65"), path + ";x", "/x" + path):
        assert operation_of("POST", other.encode()).kind == "unknown"


async def echo(socket):
    async for message in socket:
        await socket.send(message)


def realtime(scenario, tmp_path):
    class Server:
        async def __aenter__(self):
            self.server = await serve(echo, "127.0.0.1", 0)
            return self.server.sockets[0].getsockname()[1]

        async def __aexit__(self, *_):
            self.server.close()

    async def main(gateway, secret):
        headers = {"authorization": f"Bearer {secret}"}
        await scenario(lambda path: connect(f"ws://127.0.0.1:{gateway.port}{path}", additional_headers=headers))

    keyed(main, tmp_path, Server())


def test_a_realtime_connection_of_a_restricted_key_names_its_model_once_and_keeps_it(tmp_path):
    async def scenario(opened):
        for path in (
            "/v1/realtime?model=expensive",
            "/v1/realtime?model=cheap&model=expensive",
            "/v1/realtime?model=cheap&Model=expensive",
            "/v1/realtime?model=cheap;deployment=expensive",
            "/v1/realtime",
            "/v1/Realtime?model=cheap",
            "/v1/other?model=cheap",
        ):
            with pytest.raises(InvalidStatus) as caught:
                await opened(path)
            assert caught.value.response.status_code in (400, 403), path
        async with opened("/v1/realtime?model=cheap") as client:
            for fine in ('{"type":"response.create"}', '{"session":{"model":"cheap-2"}}'):
                await client.send(fine)
                assert await client.recv() == fine
            await client.send('{"type":"session.update","session":{"mod\\u0065l":"expensive"}}')
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd.code == 1008
            assert "expensive" in closed.value.rcvd.reason

    realtime(scenario, tmp_path)


SECOND = '{"type":"session.update","session":{"model":"expensive"}}'


@pytest.mark.parametrize(
    "message",
    [
        '{"session":{"model":"expensive","model":"cheap"}}',
        '{"session":{"model":"expensive"},"session":{"model":"cheap"}}',
        '{"session":{"fallback_model":"expensive"}}',
        b"\x00\x01",
        b"\xef\xbb\xbf" + SECOND.encode(),
        SECOND.encode("utf-16"),
        SECOND.encode("utf-32"),
        gzip.compress(SECOND.encode()),
    ],
)
def test_a_message_that_upstreams_may_read_otherwise_closes_the_connection(tmp_path, message):
    async def scenario(opened):
        async with opened("/v1/realtime?model=cheap") as client:
            await client.send(message)
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd.code == 1008

    realtime(scenario, tmp_path)


def test_a_message_of_realtime_clients_is_open_to_a_restricted_key():
    session = {
        "model": "cheap",
        "modalities": ["text"],
        "output_modalities": ["audio"],
        "input_audio_format": "pcm16",
        "input_audio_transcription": {"model": "cheap-whisper"},
        "turn_detection": {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300},
        "tools": [{"type": "function", "name": "f", "parameters": {"properties": {"model": {}, "provider": {}}}}],
        "tracing": {"workflow_name": "w", "metadata": {"model": "m"}},
    }
    check_message(KEY, json.dumps({"type": "session.update", "event_id": "e", "session": session}))
    check_message(KEY, json.dumps({"type": "input_audio_buffer.append", "audio": "A" * 10_000}))
    with pytest.raises(Rejection):
        check_message(KEY, "[" + "[]," * MOST_TOKENS + "[]]")


def test_a_message_nested_without_end_or_no_json_is_refused():
    for message in ("{", '{"a":' * 50 + "1" + "}" * 50, '[{"Model":["expensive"]}]'):
        with pytest.raises(Rejection):
            check_message(KEY, message)
