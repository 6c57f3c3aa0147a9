"""Where the gateway and the monitors connect to is written in the configuration; nothing that arrives can change it."""

import asyncio
import logging

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.config import Config, Routing, Upstream
from gateway.config import Gateway as GatewayTable
from gaugeway.runtime import otlp_exporters as telemetry
from monitors.alerting.notifiers import NotDeliveredError
from monitors.alerting.notifiers.http import Address
from monitors.exporters.outbox import Api, RefusedError
from monitors.judges import JudgeError, Prompt
from monitors.judges.openai import OpenAIJudge
from monitors.metrics.embeddings.openai import OpenAIEmbeddings
from tests.support.receivers import receiver
from tests.support.running import read_request, running_gateway, tcp_server

BODY = b'{"model":"m","messages":[{"role":"user","content":"q"}]}'
REDIRECTS = (301, 302, 303, 307, 308)
KEY = "sk-canary-4711"


class Trap:
    """An address that nobody configured: a connection to it is what must not happen."""

    def __init__(self):
        self.connections = 0
        self.port = None

    async def __call__(self, reader, writer):
        self.connections += 1
        writer.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


def trapped(scenario):
    """Run `scenario(trap)`; afterwards nobody has come to the trap."""

    async def main():
        trap = Trap()
        async with tcp_server(trap) as trap.port, asyncio.timeout(60):
            await scenario(trap)
            await asyncio.sleep(0.02)
        assert trap.connections == 0

    asyncio.run(main())


async def raw(port, request):
    """Send bytes, read one response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read(65536)
    writer.close()
    return answer


def redirecting(status, to):
    """An upstream that sends everybody elsewhere."""

    async def handler(reader, writer):
        await read_request(reader)
        head = f"HTTP/1.1 {status} Elsewhere\r\nlocation: {to}\r\nx-served: here\r\ncontent-length: 4\r\n"
        writer.write(head.encode() + b"connection: close\r\n\r\nbody")
        await writer.drain()
        writer.close()

    return handler


ATTEMPTS = {
    "absolute target": ("http://TRAP/v1/chat/completions", "", BODY),
    "absolute target with a user": ("http://up@TRAP/v1/chat/completions", "", BODY),
    "target of two slashes": ("//TRAP/v1/chat/completions", "", BODY),
    "host behind the prefix": ("/v1//TRAP/x", "", BODY),
    "at sign in the path": ("/v1/@TRAP/x", "", BODY),
    "url in the path": ("/v1/http://TRAP/x", "", BODY),
    "dots in the path": ("/v1/../../@TRAP/", "", BODY),
    "encoded slashes": ("/v1/%2f%2fTRAP/x", "", BODY),
    "fragment": ("/v1/chat/completions#@TRAP", "", BODY),
    "query": ("/v1/chat/completions?base_url=http://TRAP&url=http://TRAP", "", BODY),
    "azure path": ("/openai/deployments/@TRAP/chat/completions?api-version=http://TRAP", "", BODY),
    "forwarding headers": (
        "/v1/chat/completions",
        (
            "X-Forwarded-Host: TRAP\r\nX-Forwarded-For: TRAP\r\nForwarded: host=TRAP\r\nX-Host: TRAP\r\n"
            "X-Original-URL: http://TRAP/\r\nX-Rewrite-URL: http://TRAP/\r\nVia: 1.1 TRAP\r\nOrigin: http://TRAP\r\n"
        ),
        BODY,
    ),
    "headers that other gateways read": (
        "/v1/chat/completions",
        (
            "x-base-url: http://TRAP\r\nopenai-api-base: http://TRAP\r\nx-upstream-url: http://TRAP\r\n"
            "x-target-url: http://TRAP\r\nx-portkey-custom-host: http://TRAP\r\nhelicone-target-url: http://TRAP\r\n"
        ),
        BODY,
    ),
    "our own headers": (
        "/v1/chat/completions",
        "x-gaugeway-upstream: http://TRAP\r\nx-gaugeway-base-url: http://TRAP\r\nx-gaugeway-context-key: http://TRAP\r\n",
        BODY,
    ),
    "proxy header": ("/v1/chat/completions", "Proxy: http://TRAP\r\nProxy-Connection: keep-alive\r\n", BODY),
    "h2c upgrade": ("/v1/models", "Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", b""),
    "body fields": (
        "/v1/chat/completions",
        "",
        (
            b'{"model":"http://TRAP/m","api_base":"http://TRAP","base_url":"http://TRAP","custom_llm_provider":"x",'
            b'"endpoint":"http://TRAP","callback":"http://TRAP","messages":[]}'
        ),
    ),
    "our key in the body": (
        "/v1/chat/completions",
        "",
        b'{"model":"m","messages":[],"gaugeway":{"contexts":[{"text":"t","source":"http://TRAP/"}],"app":"http://TRAP"}}',
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize("client", ["native", "httpx"])
@pytest.mark.parametrize("host", ["gateway", "TRAP"])
def test_no_target_header_or_field_leads_anywhere_but_to_the_upstream(client, fast_path, host):
    async def scenario(trap):
        authority = f"127.0.0.1:{trap.port}"
        seen = []

        async def upstream(reader, writer):
            seen.append((await read_request(reader))[0])
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            await writer.drain()
            writer.close()

        async with tcp_server(upstream) as port:
            config = Config(
                gateway=GatewayTable(upstream_client=client),
                upstreams=(Upstream(base_url=f"http://127.0.0.1:{port}/v1"),),
                routing=Routing(header=True),
            )
            async with running_gateway("", config=config, fast_path=fast_path) as gateway:
                for name, (target, headers, template) in ATTEMPTS.items():
                    body = template.replace(b"TRAP", authority.encode())
                    head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n"
                    if name == "h2c upgrade":
                        head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{headers}"
                    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                    before = len(seen)
                    async with asyncio.timeout(60):
                        answer = await raw(gateway.port, head.replace("TRAP", authority).encode() + body)
                    assert answer.startswith(b"HTTP/1.1 "), name
                    for got in seen[before:]:
                        line, *fields = got.decode().split("\r\n")
                        assert line.split(" ")[1].startswith("/"), (name, line)
                        hosts = [field for field in fields if field.lower().startswith("host:")]
                        assert hosts == [f"host: 127.0.0.1:{port}"], (name, hosts)
        assert len(seen) >= len(ATTEMPTS) // 2, "most of them are ordinary requests to the upstream"

    trapped(scenario)


@pytest.mark.parametrize("client", ["native", "httpx"])
@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_of_the_upstream_goes_to_the_client_who_may_follow_it(client, status):
    async def scenario(trap):
        async with tcp_server(redirecting(status, f"{trap.url}/v1/chat/completions")) as port:
            config = Config(
                gateway=GatewayTable(upstream_client=client),
                upstreams=(Upstream(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=2),),
            )
            async with running_gateway("", config=config) as gateway, httpx.AsyncClient() as asking:
                answer = await asking.post(f"http://127.0.0.1:{gateway.port}/v1/chat/completions", content=BODY)
                assert (answer.status_code, answer.content) == (status, b"body")
                assert answer.headers["location"] == f"{trap.url}/v1/chat/completions"
                assert answer.headers["x-served"] == "here"
                assert KEY not in str(answer.headers)

    trapped(scenario)


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_of_a_realtime_handshake_is_not_followed(status):
    async def scenario(trap):
        async with (
            tcp_server(redirecting(status, f"{trap.url}/v1/realtime")) as port,
            running_gateway(f"http://127.0.0.1:{port}/v1") as gateway,
        ):
            with pytest.raises(InvalidStatus) as refused:
                await connect(
                    f"ws://127.0.0.1:{gateway.port}/v1/realtime?model=m",
                    additional_headers={"api-key": KEY},
                    proxy=None,
                )
            assert refused.value.response.status_code in (status, 502)

    trapped(scenario)


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("api_version", [None, "2024-10-21"], ids=["openai", "azure"])
def test_judge_and_embeddings_follow_nobody(status, api_version):
    async def scenario(trap):
        async with tcp_server(redirecting(status, f"{trap.url}/v1/chat/completions")) as port:
            url = f"http://127.0.0.1:{port}/v1"
            judge = OpenAIJudge(url, KEY, "m", max_retries=0, api_version=api_version)
            embeddings = OpenAIEmbeddings(url, KEY, "m", max_retries=0, api_version=api_version)
            with pytest.raises(JudgeError) as asked:
                await judge.ask(Prompt(task="t", version="1", system="s", user="u"), dict[str, str])
            with pytest.raises(JudgeError) as embedded:
                await embeddings.embed(["text"])
            for told in (asked, embedded):
                assert told.value.kind == "bad_request"
                assert KEY not in str(told.value)
            await judge.aclose()
            await embeddings.aclose()

    trapped(scenario)


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_notifier_is_not_sent_on(status):
    async def scenario(trap):
        async with receiver(lambda _: (status, {}), location=trap.url) as (origin, received):
            address = Address(f"{origin}/hook?token={KEY}", what="webhook", timeout_s=5)
            address.sign_in("user", KEY)
            with pytest.raises(NotDeliveredError) as told:
                await address.post({}, {"authorization": f"Bearer {KEY}"})
            assert KEY not in str(told.value)
            assert len(received) == 1

    trapped(scenario)


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_sink_is_not_sent_on(status):
    async def scenario(trap):
        async with receiver(lambda _: (status, {}), location=trap.url) as (origin, received):
            api = Api(origin, headers={"x-api-key": KEY}, timeout_s=5)
            with pytest.raises(RefusedError):
                await api.call("POST", "/v1/scores", {"a": 1})
            await api.aclose()
            assert len(received) == 1

    trapped(scenario)


@pytest.mark.parametrize("status", REDIRECTS)
def test_the_collector_of_spans_cannot_send_them_elsewhere(status):
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    async def scenario(trap):
        async with receiver(lambda _: (status, {}), location=f"{trap.url}/v1/traces") as (origin, received):
            exporter = telemetry.span_exporter(origin, {"x-api-key": KEY})
            provider = TracerProvider(shutdown_on_exit=False)
            provider.add_span_processor(SimpleSpanProcessor(exporter))
            await asyncio.to_thread(lambda: provider.get_tracer("t").start_span("s").end())
            await asyncio.to_thread(provider.shutdown)
            assert received
            assert received[0].headers["x-api-key"] == KEY

    trapped(scenario)
