"""A web page in the operator's browser must not spend the operator's key; programs and listed pages go on working."""

import asyncio
import contextlib

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import InvalidStatus

from gateway import config as configuration
from gateway.config import Config, Keys, Upstream
from gateway.config import Gateway as GatewayTable
from gateway.http.errors import Rejection
from gateway.http.headers import inspect
from gateway.http.origins import OriginPolicy
from gaugeway.settings import ConfigError
from tests.support.llm_server import LLMServer
from tests.support.running import running_gateway, toml

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "Q"}]}'
FEEDBACK = b'{"exchange_id": "e", "rating": 1}'
PATHS = [False, True]
PAGE = "https://app.example.com"
ROUTES = ["/v1/chat/completions", "/openai/deployments/d/chat/completions", "/v1/files", "/gaugeway/v1/feedback"]
FOREIGN = {
    "another site": {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "another site, an older browser": {"origin": "https://evil.example"},
    "another port of this machine": {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"},
    "a sandboxed frame": {"origin": "null", "sec-fetch-site": "cross-site"},
    "no origin": {"sec-fetch-site": "cross-site"},
    "no origin, same site": {"sec-fetch-site": "same-site"},
    "a rebound name": {
        "host": "evil.example:8080",
        "origin": "http://evil.example:8080",
        "sec-fetch-site": "same-origin",
    },
    "a rebound name, a GET's headers": {"host": "evil.example", "sec-fetch-site": "same-origin"},
    "a forged host alone": {"host": "127.0.0.1.evil.example"},
}
PROGRAMS = {
    "a program": {},
    "by localhost": {"host": "localhost:8080"},
    "by address": {"host": "127.0.0.1"},
    "by IPv6": {"host": "[::1]:8080"},
    "a subdomain of localhost": {"host": "gw.localhost:1"},
    "a container on this machine": {"host": "host.docker.internal:8080"},
    "a compose service": {"host": "gaugeway:8080"},
    "another address of this machine": {"host": "192.168.0.5:8080"},
    "typed into the address bar": {"sec-fetch-site": "none"},
    "a page of the gateway's own origin": {
        "host": "localhost:8080",
        "origin": "http://localhost:8080",
        "sec-fetch-site": "same-origin",
    },
}


@contextlib.asynccontextmanager
async def bench(fast_path=True, api_key="sk-owner", keys=False, **settings):
    with LLMServer() as model:
        config = Config(
            gateway=GatewayTable(**settings),
            upstreams=(Upstream(base_url=model.url, api_key=api_key),),
            keys=Keys(enabled=keys),
        )
        async with running_gateway("", config=config, fast_path=fast_path) as running:
            url = f"http://127.0.0.1:{running.port}"
            async with httpx.AsyncClient(trust_env=False, base_url=url) as client, asyncio.timeout(60):
                yield model, running, client


async def ask(client, route="/v1/chat/completions", **headers):
    body = FEEDBACK if route.endswith("feedback") else BODY
    return await client.post(route, content=body, headers={"content-type": "text/plain"} | headers)


@pytest.mark.full
@pytest.mark.parametrize("fast_path", PATHS)
@pytest.mark.parametrize("route", ROUTES)
def test_a_page_of_another_site_spends_nothing_and_rates_nothing(fast_path, route):
    async def main():
        async with bench(fast_path) as (model, running, client):
            for _ in range(2):  # the second time with an idle upstream connection
                before = len(model.requests)
                for name, headers in FOREIGN.items():
                    answer = await ask(client, route, **headers)
                    assert answer.status_code == 403, name
                    assert answer.json()["error"]["code"] in ("origin_not_allowed", "host_not_allowed")
                    assert "gateway.allowed_" in answer.json()["error"]["message"]
                    assert "access-control-allow-origin" not in answer.headers
                assert len(model.requests) == before
                await ask(client)
            if route.startswith("/v1"):
                refused = 2 * len(FOREIGN)
                await running.until(lambda: running.total("gaugeway_requests_total", ending="rejected") == refused)

    asyncio.run(main())


@pytest.mark.full
@pytest.mark.parametrize("fast_path", PATHS)
@pytest.mark.parametrize("route", ROUTES)
def test_programs_are_served_under_every_name_that_is_not_in_public_dns(fast_path, route):
    async def main():
        async with bench(fast_path) as (_, _, client):
            for name, headers in PROGRAMS.items():
                assert (await ask(client, route, **headers)).status_code in (200, 202), name

    asyncio.run(main())


@pytest.mark.parametrize("fast_path", PATHS)
def test_what_no_page_can_pay_for_is_nobodys_to_refuse(fast_path):
    """Without a key of the gateway's own, or with keys to ask for, a page needs a key itself."""

    async def main():
        async with bench(fast_path, api_key=None) as (_, _, client):
            for headers in FOREIGN.values():
                assert (await ask(client, **headers)).status_code == 200
            assert (await ask(client, "/gaugeway/v1/feedback", **FOREIGN["another site"])).status_code == 403
            rebound = FOREIGN["a forged host alone"]
            assert (await ask(client, "/gaugeway/v1/feedback", **rebound)).status_code == 202
        async with bench(fast_path, keys=True) as (_, _, client):
            for headers in FOREIGN.values():
                assert (await ask(client, **headers)).status_code in (401, 503)

    asyncio.run(main())


@pytest.mark.parametrize("fast_path", PATHS)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("allowed", [PAGE, PAGE + "/", "*"])
def test_a_page_that_is_listed_may_ask_and_read(fast_path, route, allowed):
    async def main():
        async with bench(fast_path, allowed_origins=(allowed,)) as (_, _, client):
            asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-a"}
            page = {"origin": PAGE, "sec-fetch-site": "cross-site"}
            preflight = await client.options(route, headers=page | asked)
            assert preflight.status_code == 200
            assert preflight.headers["access-control-allow-origin"] == PAGE
            assert preflight.headers["access-control-allow-methods"] == "POST"
            assert preflight.headers["access-control-allow-headers"] == "content-type,x-a"
            answer = await ask(client, route, **page)
            assert answer.status_code in (200, 202)
            assert answer.headers.get_list("access-control-allow-origin") == [PAGE]
            other = {"origin": "https://app.example.com.evil.example", "sec-fetch-site": "cross-site"}
            for refused in (await client.options(route, headers=other | asked), await ask(client, route, **other)):
                assert (refused.status_code == 403) == (allowed != "*")
                assert ("access-control-allow-origin" in refused.headers) == (allowed == "*")
            rebound = {"host": "evil.example", "origin": PAGE}
            assert (await ask(client, route, **rebound)).status_code == 403

    asyncio.run(main())


def test_a_preflight_of_a_page_that_is_not_listed_is_not_passed_on():
    async def main():
        async with bench() as (model, _, client):
            headers = {"origin": PAGE, "access-control-request-method": "POST"}
            for route in ROUTES:
                assert (await client.options(route, headers=headers)).status_code == 403
            assert not model.requests

    asyncio.run(main())


@pytest.mark.parametrize(
    ("host", "allowed", "served", "refused"),
    [
        ("0.0.0.0", (), ["gaugeway.default.svc.cluster.local", "llm.example.com", "10.0.0.1"], []),
        (
            "127.0.0.1",
            ("llm.example.com",),
            ["llm.example.com:443", "LLM.example.com.", "localhost"],
            ["x.example.com"],
        ),
        ("0.0.0.0", ("*.svc.cluster.local",), ["gw.default.svc.cluster.local:80", "gw"], ["svc.cluster.local", "a.b"]),
        ("127.0.0.1", ("*",), ["anything.example"], []),
        ("::1", (), ["[::1]:8080", "localhost"], ["evil.example"]),
    ],
)
def test_which_hosts_are_known(host, allowed, served, refused):
    async def main():
        async with bench(host=host, allowed_hosts=allowed) as (_, _, client):
            for name in served:
                assert (await ask(client, host=name)).status_code == 200, name
            for name in refused:
                assert (await ask(client, host=name)).status_code == 403, name

    asyncio.run(main())


def test_a_second_host_or_origin_hides_nothing():
    policy = OriginPolicy(enforced=True, origins=[PAGE], hosts=["127.0.0.1"])
    for name, good, bad in (
        (b"host", b"localhost", b"evil.example"),
        (b"origin", PAGE.encode(), b"https://evil.example"),
    ):
        for values in ((good, bad), (bad, good)):
            headers = [(name, value) for value in values]
            assert not policy.is_plain(inspect(headers))
            with pytest.raises(Rejection):
                policy.check(headers)


def test_a_websocket_of_another_site_is_refused_and_one_of_a_listed_page_is_not():
    async def echo(socket):
        async for message in socket:
            await socket.send(message)

    async def main():
        async with serve(echo, "127.0.0.1", 0) as upstream, asyncio.timeout(60):
            base_url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/v1"
            config = Config(
                gateway=GatewayTable(allowed_origins=(PAGE,)),
                upstreams=(Upstream(base_url=base_url, api_key="sk-owner"),),
            )
            async with running_gateway("", config=config) as running:
                url = f"ws://127.0.0.1:{running.port}/v1/realtime?model=m"
                for origin in (None, PAGE):
                    async with connect(url, origin=origin, proxy=None) as client:
                        await client.send("a")
                        assert await client.recv() == "a"
                with pytest.raises(InvalidStatus) as refused:
                    await connect(url, origin="https://evil.example", proxy=None)
                assert refused.value.response.status_code == 403

    asyncio.run(main())


def test_a_reload_applies_the_lists():
    async def main():
        async with bench() as (model, running, client):
            assert (await ask(client, origin=PAGE)).status_code == 403
            settings = GatewayTable(allowed_origins=(PAGE,))
            upstreams = (Upstream(base_url=model.url, api_key="sk-owner"),)
            running.gateway.apply(Config(gateway=settings, upstreams=upstreams))
            assert (await ask(client, origin=PAGE)).status_code == 200
            assert (await ask(client, "/gaugeway/v1/feedback", origin=PAGE)).status_code == 202

    asyncio.run(main())


@pytest.mark.parametrize("entry", ["app.example.com", "https://", "https://a.example/path", "https://a b"])
def test_what_is_no_origin_is_a_mistake_in_the_configuration(tmp_path, entry):
    text = f'[gateway]\nallowed_origins = ["{entry}"]\n[[upstreams]]\nbase_url = "http://u/v1"\n'
    with pytest.raises(ConfigError, match=r"allowed_origins\[0\]"):
        configuration.load(toml(tmp_path / "gaugeway.toml", text))


@pytest.mark.parametrize("entry", ["http://a.example", "a.example:80", "a.*.example", ""])
def test_what_is_no_host_is_a_mistake_in_the_configuration(tmp_path, entry):
    text = f'[gateway]\nallowed_hosts = ["{entry}"]\n[[upstreams]]\nbase_url = "http://u/v1"\n'
    with pytest.raises(ConfigError, match=r"allowed_hosts\[0\]"):
        configuration.load(toml(tmp_path / "gaugeway.toml", text))
