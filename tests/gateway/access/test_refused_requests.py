"""What the gateway refuses itself: counted for the app of the key, and never charged to a limit."""

import asyncio
import time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.config import AppLimits, Config, Gateway, Keys, Limits, Routing, Upstream
from gaugeway.storage.keys import open_keys
from tests.gateway.proxy.test_passthrough import CHAT, ScriptedUpstream, exchange, post, reply
from tests.support.running import running_gateway, tcp_server

KEYS = Keys(enabled=True)
LOOP = "gaugeway-via: " + ", ".join([f"{number:016x}" for number in range(8)])


@pytest.fixture
def keys(tmp_path):
    """The secrets of an app's keys: a valid one, a revoked one and one that has expired."""

    async def create():
        store, now = open_keys(None, tmp_path), time.time()
        made = {name: await store.create(app="shop", now=now) for name in ("valid", "revoked")}
        made["expired"] = await store.create(app="shop", now=now - 10, expires_at=now - 5)
        await store.revoke(made["revoked"].key.id, now)
        await store.aclose()
        return {name: one.secret for name, one in made.items()} | {"unknown": "gw-" + "x" * 43}

    return tmp_path / "keys.db", asyncio.run(create())


def run(scenario, *, keys_file=None, fast_path=True, upstream=None, **tables):
    async def main():
        async with tcp_server(upstream or ScriptedUpstream(reply())) as port:
            settings = {"base_url": f"http://127.0.0.1:{port}/v1", "models": ("m",)}
            config = Config(upstreams=(Upstream(**settings),), **tables)
            async with running_gateway("", config=config, keys_file=keys_file, fast_path=fast_path) as gateway:
                async with asyncio.timeout(60):
                    await scenario(gateway)

    asyncio.run(main())


def raw(line, *headers, body=b""):
    return "\r\n".join([line, "Host: gw", "Content-Type: application/json", *headers, "", ""]).encode() + body


CHUNKED = b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n"
CREATE = "POST /v1/chat/completions HTTP/1.1"
# What is refused, with which status; {} is the key's header.
REFUSED = {
    "announced too large": (raw(CREATE, "{}", "Content-Length: 2000", body=b"x" * 2000), 413),
    "chunks too large": (raw(CREATE, "{}", "Transfer-Encoding: chunked", body=CHUNKED), 413),
    "TRACE": (raw("TRACE /v1/models HTTP/1.1", "{}"), 405),
    "dot segments": (raw("GET /v1/%2e%2e/models HTTP/1.1", "{}"), 400),
    "a loop": (raw(CREATE, "{}", LOOP, "Content-Length: 2", body=b"{}"), 508),
    "an unclear framing": (raw(CREATE, "{}", "Content_Length: 3", "Content-Length: 2", body=b"{}"), 400),
    "no body": (raw(CREATE, "{}", "Content-Length: 0"), 400),
    "a model that nobody serves": (raw(CREATE, "{}", "Content-Length: 14", body=b'{"model": "x"}'), 404),
}


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_request_counts_for_the_app_of_its_key(case, fast_path, keys):
    file, secrets = keys
    request, status = REFUSED[case]

    async def scenario(gateway):
        for name, app in (("valid", "shop"), ("unknown", "default")):
            head, _, _ = await exchange(gateway.port, request.replace(b"{}\r\n", bearer(secrets[name]), 1))
            assert int(head.split()[1]) == (status if name == "valid" else seen_before_the_key(case, status))
            await gateway.until(
                lambda app=app: gateway.total("gaugeway_requests_total", ending="rejected", app=app) == 1
            )
        assert gateway.total("gaugeway_requests_total") == 2

    run(scenario, keys_file=file, keys=KEYS, fast_path=fast_path, gateway=Gateway(max_body_bytes=1000, port=8080))


def bearer(secret):
    return f"Authorization: Bearer {secret}\r\n".encode()


def seen_before_the_key(case, status):
    """The status without a valid key: what a head alone shows is refused before the key is looked at."""
    return 401 if case in ("chunks too large", "no body", "a model that nobody serves") else status


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize("name", ["revoked", "expired"])
def test_a_key_that_has_ended_still_says_whose_it_is(name, fast_path, keys):
    file, secrets = keys

    async def scenario(gateway):
        head, _, _ = await exchange(
            gateway.port, post(CHAT, "/v1/chat/completions", f"Authorization: Bearer {secrets[name]}")
        )
        assert head.startswith(b"HTTP/1.1 401")
        with pytest.raises(InvalidStatus):
            await connect(f"ws://127.0.0.1:{gateway.port}/v1/realtime", additional_headers={"api-key": secrets[name]})
        await gateway.until(lambda: gateway.total("gaugeway_requests_total", ending="rejected", app="shop") == 2)
        assert gateway.total("gaugeway_exchanges_total", outcome="rejected", app="shop") == 1
        assert gateway.total("gaugeway_requests_total") == 2

    run(scenario, keys_file=file, keys=KEYS, fast_path=fast_path)


UNCHARGED = {
    **{name: REFUSED[name] for name in ("announced too large", "chunks too large", "TRACE", "a loop", "no body")},
    "a model that nobody serves": REFUSED["a model that nobody serves"],
    "an upstream that nobody has": (
        raw(CREATE, "x-gaugeway-upstream: nobody", f"Content-Length: {len(CHAT)}", body=CHAT),
        400,
    ),
    "our member, wrong": (raw(CREATE, "Content-Length: 17", body=b'{"gaugeway": "x"}'), 400),
}


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize("case", UNCHARGED)
def test_a_request_that_we_refuse_uses_nothing_of_the_limit(case, fast_path):
    request, status = UNCHARGED[case]

    async def scenario(gateway):
        for _ in range(5):
            head, _, _ = await exchange(gateway.port, request.replace(b"{}\r\n", b"", 1))
            assert int(head.split()[1]) == status
        answers = [await exchange(gateway.port, post(CHAT)) for _ in range(3)]
        assert [int(head.split()[1]) for head, _, _ in answers] == [200, 200, 429]

    run(
        scenario,
        fast_path=fast_path,
        upstream=ScriptedUpstream(reply(), reply()),
        limits=Limits(requests_per_min=2),
        routing=Routing(header=True),
        gateway=Gateway(max_body_bytes=1000, port=8080),
    )


def test_a_websocket_in_a_loop_uses_nothing_of_the_limit():
    async def scenario(gateway):
        name, value = LOOP.split(": ")
        for _ in range(3):
            with pytest.raises(InvalidStatus) as caught:
                await connect(f"ws://127.0.0.1:{gateway.port}/v1/realtime", additional_headers={name: value})
            assert caught.value.response.status_code == 508

    run(scenario, limits=Limits(apps={"default": AppLimits(requests_per_min=2)}))


def test_an_unknown_path_is_counted():
    async def scenario(gateway):
        for path in ("/foo", "/v2/chat/completions", "/"):
            head, _, _ = await exchange(gateway.port, raw(f"GET {path} HTTP/1.1"))
            assert head.startswith(b"HTTP/1.1 404")
        head, _, _ = await exchange(gateway.port, raw("GET /healthz HTTP/1.1"))
        assert head.startswith(b"HTTP/1.1 200")
        assert gateway.counter("gaugeway_invalid_requests_total", reason="unknown_path") == 3
        assert gateway.total("gaugeway_invalid_requests_total") == 3

    run(scenario)
