"""Gateways behind gateways: a chain works and keeps its exchange ids apart, a circle ends with 508 on every path."""

import asyncio
import contextlib

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway import config as configuration
from gateway.http.errors import Rejection
from gateway.proxy.loops import MAX_HOPS, chain, deployment_id
from gaugeway.settings import ConfigError
from tests.support.llm_server import LLMServer
from tests.support.running import running_gateway, tcp_server, toml

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "Q"}]}'
JSON = {"content-type": "application/json"}
PATHS = [False, True]
ID, OTHER = b"00000000000000aa", b"00000000000000bb"


@contextlib.asynccontextmanager
async def relay():
    """A port whose connections go to `target[0]`, which may be set later: how a circle is closed."""
    target = [0]

    async def pipe(reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def passed_on(reader, writer):
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target[0])
            await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))

    async with tcp_server(passed_on) as port:
        yield port, target


async def ask(port, client, **headers):
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return await client.post(url, content=BODY, headers=JSON | headers)


@pytest.mark.full
@pytest.mark.parametrize("fast_path", PATHS)
@pytest.mark.parametrize("client", ["native", "httpx"])
@pytest.mark.parametrize("gateways", [1, 3])
def test_a_circle_of_gateways_ends_with_508(fast_path, client, gateways):
    async def main():
        async with contextlib.AsyncExitStack() as stack, httpx.AsyncClient(trust_env=False) as http:
            first_port, target = await stack.enter_async_context(relay())
            port, running = first_port, []
            for _ in range(gateways):
                gateway = running_gateway(f"http://127.0.0.1:{port}/v1", fast_path=fast_path, upstream_client=client)
                running.append(await stack.enter_async_context(gateway))
                port = running[-1].port
            target[0] = port
            for _ in range(2):  # the second time over idle connections
                answer = await ask(port, http)
                assert answer.status_code == 508
                assert answer.json()["error"]["code"] == "loop_detected"
                assert "base_url" in answer.json()["error"]["message"]
            for one in running:  # the one that is asked first is also the last
                passed = 4 if one is running[-1] else 2
                await one.until(lambda one=one, passed=passed: one.total("gaugeway_requests_total") == passed)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_websocket_in_a_circle_is_refused():
    async def main():
        async with relay() as (port, target), running_gateway(f"http://127.0.0.1:{port}/v1") as running:
            target[0] = running.port
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"ws://127.0.0.1:{running.port}/v1/realtime?model=m", proxy=None)
            assert refused.value.response.status_code == 508
            await running.until(lambda: running.total("gaugeway_requests_total") == 2)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("fast_path", PATHS)
@pytest.mark.parametrize("gateways", [2, 3])
def test_gateways_in_a_row_work_and_each_has_its_own_exchange_id(fast_path, gateways):
    async def main():
        with LLMServer() as model:
            async with contextlib.AsyncExitStack() as stack, httpx.AsyncClient(trust_env=False) as http:
                url, running = model.url, []
                for _ in range(gateways):
                    running.append(await stack.enter_async_context(running_gateway(url, fast_path=fast_path)))
                    url = f"http://127.0.0.1:{running[-1].port}/v1"
                for _ in range(2):
                    answer = await ask(running[-1].port, http)
                    assert answer.status_code == 200
                    own = answer.headers.get_list("x-gaugeway-exchange-id")
                    behind = answer.headers.get_list("x-gaugeway-upstream-exchange-id")
                    given = [(await one.samples(1))[0].id for one in reversed(running)]
                    assert own == given[:1]
                    assert behind == [", ".join(given[1:])]
                via = model.requests[0].headers["gaugeway-via"].split(", ")
                assert len(set(via)) == gateways

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("fast_path", PATHS)
def test_a_client_may_not_name_more_gateways_than_may_stand_in_a_row(fast_path):
    async def main():
        with LLMServer() as model:
            async with running_gateway(model.url, fast_path=fast_path) as running, httpx.AsyncClient() as http:
                hops = [b"%016x" % number for number in range(MAX_HOPS)]
                most = b", ".join(hops[:-1])
                assert (await ask(running.port, http, **{"gaugeway-via": most})).status_code == 200
                assert model.requests[-1].headers["gaugeway-via"].startswith(most.decode() + ", ")
                for too_many in (b", ".join(hops), b"," * MAX_HOPS, b"a" * 400):
                    assert (await ask(running.port, http, **{"gaugeway-via": too_many})).status_code == 508
                assert (await ask(running.port, http, **{"gaugeway-via": b"what?"})).status_code == 200
                assert "what" not in model.requests[-1].headers["gaugeway-via"]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_the_chain_grows_by_one_id():
    assert chain(None, ID) == ID
    assert chain(OTHER, ID) == OTHER + b", " + ID
    with pytest.raises(Rejection) as refused:
        chain(OTHER + b"," + ID, ID)
    assert refused.value.status == 508


def test_a_deployment_has_one_id_and_a_gateway_before_it_another():
    assert deployment_id("::", 8080, ["http://a/v1"]) == deployment_id("::", 8080, ["http://a/v1"])
    others = {deployment_id("::", 8081, ["http://a/v1"]), deployment_id("::", 8080, ["http://b/v1"])}
    assert len(others | {deployment_id("::", 8080, ["http://a/v1"])}) == 3


@pytest.mark.parametrize(
    ("upstream", "host", "own"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("gw.localhost", "127.0.0.1", True),
        ("::1", "::1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("localhost", "0.0.0.0", True),
        ("localhost", "::", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("127.0.0.1", "10.1.2.3", False),
        ("::1", "0.0.0.0", False),
        ("10.1.2.3", "0.0.0.0", False),
        ("api.example", "0.0.0.0", False),
    ],
)
def test_an_upstream_that_is_the_gateway_itself_is_a_mistake_in_the_configuration(tmp_path, upstream, host, own):
    name = f"[{upstream}]" if ":" in upstream else upstream
    table = f'[gateway]\nhost = "{host}"\n[[upstreams]]\nbase_url = "http://{name}:8080/v1"\n'
    if own:
        with pytest.raises(ConfigError) as refused:
            configuration.load(toml(tmp_path / "gaugeway.toml", table))
        assert "upstreams[0].base_url" in str(refused.value)
        assert "Gaugeway itself (gateway.port)" in str(refused.value)
    else:
        configuration.load(toml(tmp_path / "gaugeway.toml", table))
