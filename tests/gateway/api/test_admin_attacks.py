"""Attacks on the gateway's admin port, one list: each is sent for real and refused."""

import asyncio

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from gateway.api.health import admin_app
from gaugeway.runtime.auth import ATTEMPTS
from tests.support.running import serving

TOKEN = "correct horse battery staple"


def run(scenario, token=TOKEN):
    async def main():
        registry = CollectorRegistry()
        Counter("canary", "Only who may read it sees it.", registry=registry)
        async with (
            serving(admin_app(registry, "127.0.0.1", token)) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client,
            asyncio.timeout(60),
        ):
            await scenario(client, port)

    asyncio.run(main())


async def raw(port, request):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(60):
            return await reader.read(1 << 20)
    finally:
        writer.close()


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_the_token_is_the_only_way_in():
    async def scenario(client, port):
        for given in ("", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN.upper()}"):
            answer = await client.get("/metrics", headers={"authorization": given})
            assert answer.status_code == 401
            assert "canary" not in answer.text
        for path in ("/metrics?token=" + TOKEN, "//metrics", "/metrics/", "/METRICS", "/x/../metrics", "/%6detrics"):
            head = f"GET {path.replace(' ', '%20')} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            answer = await raw(port, head.encode())
            assert answer.split(b" ")[1] in (b"401", b"404"), path
            assert b"canary" not in answer
        assert "canary" in (await client.get("/metrics", headers=bearer(TOKEN))).text

    run(scenario)


def test_guesses_are_slowed_down_whatever_address_a_header_claims():
    async def scenario(client, _):
        for number in range(ATTEMPTS):
            assert (await client.get("/metrics", headers=bearer(f"guess {number}"))).status_code == 401
        for claimed in ("192.0.2.7", "203.0.113.9"):
            headers = bearer("guess") | {"x-forwarded-for": claimed, "forwarded": f"for={claimed}"}
            answer = await client.get("/metrics", headers=headers)
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) > 60
            assert "canary" not in answer.text

    run(scenario)


def test_the_right_token_passes_while_somebody_at_the_same_address_guesses():
    async def scenario(client, _):
        for _ in range(4 * ATTEMPTS):
            assert (await client.get("/metrics", headers=bearer("guess"))).status_code in (401, 429)
            assert (await client.get("/metrics", headers=bearer(TOKEN))).status_code == 200

    run(scenario)


def test_a_short_token_passes_once_its_check_is_due():
    async def scenario(client, _):
        for _ in range(ATTEMPTS + 1):
            await client.get("/metrics", headers=bearer("guess"))
        assert (await client.get("/metrics", headers=bearer("hunter2"))).status_code == 200

    run(scenario, token="hunter2")


@pytest.mark.parametrize(
    "name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9464", "a@127.0.0.1"]
)
def test_a_name_that_was_made_to_point_here_is_refused(name):
    async def scenario(client, _):
        assert (await client.get("/metrics", headers={"host": name})).status_code in (400, 403)

    run(scenario, token=None)


def test_no_page_of_another_origin_may_read():
    async def scenario(client, _):
        headers = {"origin": "http://evil.example", "access-control-request-method": "GET"}
        for method in ("GET", "OPTIONS"):
            answer = await client.request(method, "/metrics", headers=headers)
            assert not [name for name in answer.headers if name.startswith("access-control-")]
        answer = await client.get("/metrics")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"

    run(scenario, token=None)


@pytest.mark.parametrize("verb", ["POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "HEAD"])
def test_a_verb_that_nobody_serves_opens_no_door(verb):
    async def scenario(_, port):
        head = (
            f"{verb} /metrics HTTP/1.1\r\nHost: localhost\r\nX-HTTP-Method-Override: GET\r\nConnection: close\r\n\r\n"
        )
        answer = await raw(port, head.encode())
        assert int(answer.split(b" ")[1]) in (400, 401, 405)
        assert b"canary" not in answer

    run(scenario)


SMUGGLED = {
    "both framings": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 40\r\n\r\n",
    "a length with a sign": b"Content-Length: +0\r\n\r\n",
    "an encoding that is none": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("kind", SMUGGLED)
def test_no_request_hides_in_another_one(kind):
    async def scenario(_, port):
        hidden = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answer = await raw(port, b"POST /x HTTP/1.1\r\nHost: localhost\r\n" + SMUGGLED[kind] + hidden)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"canary" not in answer

    run(scenario, token=None)


def test_a_body_that_nobody_asked_for_is_not_kept():
    async def scenario(client, port):
        answer = await raw(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nx")
        assert answer.split(b" ")[1] == b"200"
        assert (await client.post("/metrics", content=b"[" * 5_000_000)).status_code == 405
        assert (await client.get("/metrics")).status_code == 200

    run(scenario, token=None)


def test_what_does_not_exist_says_nothing_of_what_does():
    async def scenario(client, _):
        for path in (
            "/",
            "/../../etc/passwd",
            "/%2e%2e/gaugeway.toml",
            "/schema",
            "/openapi.json",
            "/debug",
            "/x%0d%0ay",
        ):
            answer = await client.get(path)
            assert answer.status_code == 404
            for told in ("Traceback", "root:", "canary", ".py"):
                assert told not in answer.text

    run(scenario, token=None)
