"""The server as agents reach it: streamable HTTP behind a token, and standard input and output of the command."""

import asyncio
import json
import socket
import sys
from contextlib import asynccontextmanager

import httpx
import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from gaugeway import AsyncClient
from gaugeway.cli.main import main
from gaugeway.mcp.server import build
from gaugeway.mcp.serving import MAX_BODY, MAX_CONNECTIONS, PATH, http_app, http_config
from gaugeway.runtime.http_protocol import ServerProtocol
from tests.gaugeway.mcp.test_server import found_by
from tests.support.incidents import incident
from tests.support.pages import world
from tests.support.running import serving_with

TOKEN = "of-the-page-4711-4711-4711-4711"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@asynccontextmanager
async def over_http(w, token):
    """The port of the server on HTTP, over a world."""
    async with AsyncClient(f"http://127.0.0.1:{w.port}", token=token) as api:
        server = build(api)
        app = http_app(server, host="127.0.0.1", token=token)
        async with serving_with(http_config(app, host="127.0.0.1", port=0)) as port:
            yield port


async def opened(port, *lines, body=b""):
    """A connection on which the beginning of a request was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join(["POST /mcp HTTP/1.1", "host: 127.0.0.1", *lines, ""]).encode() + body)
    await writer.drain()
    return reader, writer


def plain(port):
    """An HTTP client of no protocol."""
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)


@asynccontextmanager
async def connected(port, token):
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        Client(streamable_http_client(f"http://127.0.0.1:{port}{PATH}", http_client=http)) as client,
    ):
        yield client


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_the_cause_is_found_over_http(tmp_path, token):
    async with world(tmp_path, token=token) as w:
        await incident(w)
        async with over_http(w, token) as port, connected(port, token) as client:
            cause, calls = await found_by(client)
            assert (cause["likely"], cause["source"], cause["version"]) == ("retrieval", "faq.md", "42")
            assert calls <= 5


async def test_the_cause_is_found_on_standard_input_and_output(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        await incident(w)
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "gaugeway", "mcp", "--url", f"http://127.0.0.1:{w.port}"],
            env={"GAUGEWAY_MONITORS_TOKEN": TOKEN},
        )
        async with Client(command) as client:
            cause, calls = await found_by(client)
            assert (cause["source"], cause["version"]) == ("faq.md", "42")
            assert calls <= 5
            refused = await client.call_tool("label_answer", {})
            assert "--allow label_answer" in refused.content[0].text


REFUSED = [
    ({}, 401),
    ({"authorization": "Bearer wrong"}, 401),
    ({"authorization": f"Basic {TOKEN}"}, 401),
    ({"authorization": f"Bearer {TOKEN.upper()}"}, 401),
    ({"authorization": f"Bearer {TOKEN}", "origin": "http://evil.example"}, 403),
    ({"authorization": f"Bearer {TOKEN}", "origin": "null"}, 403),
    ({"authorization": f"Bearer {TOKEN}", "origin": "http://[::1"}, 403),
]


@pytest.mark.parametrize(("headers", "status"), REFUSED)
async def test_a_wrong_token_and_a_foreign_origin_are_refused(tmp_path, headers, status):
    async with world(tmp_path, token=TOKEN) as w, over_http(w, TOKEN) as port, plain(port) as http:
        answer = await http.post(PATH, json=CALL, headers={**HEADERS, **headers})
        assert (answer.status_code, TOKEN in answer.text) == (status, False)
        assert answer.json()["error"]


async def test_guessing_is_limited_and_the_right_token_still_passes(tmp_path):
    async with world(tmp_path, token=TOKEN) as w, over_http(w, TOKEN) as port, plain(port) as http:
        wrong = [
            (await http.post(PATH, json=CALL, headers={**HEADERS, "authorization": f"Bearer {n}"})).status_code
            for n in range(8)
        ]
        assert (wrong[0], wrong[-1]) == (401, 429)
        async with connected(port, TOKEN) as client:
            assert not (await client.call_tool("list_alerts", {})).is_error


async def test_without_a_token_only_this_machines_names_are_served(tmp_path):
    async with world(tmp_path) as w, over_http(w, None) as port, plain(port) as http:
        for host in ("evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example"):
            answer = await http.post(PATH, json=CALL, headers={**HEADERS, "host": host})
            assert answer.status_code == 421
        answer = await http.post(PATH, json=CALL, headers={**HEADERS, "origin": f"http://127.0.0.1:{port + 1}"})
        assert answer.status_code == 403


BODIES = [
    b"",
    b"not json",
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"jsonrpc": "2.0", "id": NaN, "method": "tools/list"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "quality", "arguments": {"app": NaN}}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": ["quality"], "arguments": 7}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "gaugeway://docs/../../etc/passwd"}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {}}',
    b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": 5}',
    b"[]",
    b'"\\ud800"',
    b"\xff\xfe\x00",
    b"x" * (MAX_BODY + 1),
]


async def test_bodies_that_are_no_requests_get_an_error_and_the_server_goes_on(tmp_path):
    async with world(tmp_path, token=TOKEN) as w, over_http(w, TOKEN) as port:
        await incident(w)
        async with plain(port) as http:
            for body in BODIES:
                answer = await http.post(PATH, content=body, headers={**HEADERS, "authorization": f"Bearer {TOKEN}"})
                failed = '"error"' in answer.text or '"isError":true' in answer.text or answer.status_code == 413
                assert failed or (answer.status_code, answer.text) == (202, ""), (body[:40], answer.text[:300])
                assert "root:" not in answer.text
                assert TOKEN not in answer.text
                assert "Traceback" not in answer.text
        async with connected(port, TOKEN) as client:
            assert (await found_by(client))[0]["source"] == "faq.md"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_without_a_token_no_address_that_others_reach_is_bound(monkeypatch, host):
    monkeypatch.delenv("GAUGEWAY_MONITORS_TOKEN", raising=False)
    result = CliRunner().invoke(main, ["mcp", "--http", "--host", host])
    assert (result.exit_code, "--host: without GAUGEWAY_MONITORS_TOKEN" in result.output) == (2, True)
    assert "MCP at" not in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--allow", "label_answer,everything"], "--allow: 'everything' is no writing tool"),
        (["--url", "gopher://x"], "url: expected http://HOST:PORT"),
        (["--url", "http://user:secret@127.0.0.1"], "without a user name"),
    ],
)
def test_a_wrong_option_is_named(arguments, says):
    result = CliRunner().invoke(main, ["mcp", *arguments])
    assert (result.exit_code, says in result.output, "secret" in result.output) == (2, True, False)


HALF_A_BODY = ("content-length: 900", "")
AUTHORIZED = f"authorization: Bearer {TOKEN}"


@pytest.mark.parametrize("lines", [(), HALF_A_BODY])
async def test_unfinished_requests_without_a_token_keep_nobody_out(tmp_path, lines):
    async with world(tmp_path, token=TOKEN) as w, over_http(w, TOKEN) as port:
        kept = [await opened(port, *lines) for _ in range(MAX_CONNECTIONS + 50)]
        async with connected(port, TOKEN) as client:
            assert not (await client.call_tool("list_alerts", {})).is_error
        for _, writer in kept:
            writer.close()


@pytest.mark.parametrize("lines", [(), (AUTHORIZED, *HALF_A_BODY)])
async def test_a_head_and_a_body_that_do_not_arrive_get_408(tmp_path, monkeypatch, lines):
    monkeypatch.setattr(ServerProtocol, "head_s", 0.1)
    monkeypatch.setattr(ServerProtocol, "body_s", 0.1)
    async with world(tmp_path, token=TOKEN) as w, over_http(w, TOKEN) as port:
        reader, writer = await opened(port, *lines)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_clients_that_hang_up_in_a_body_log_nothing(tmp_path, caplog):
    async with world(tmp_path, token=TOKEN) as w, over_http(w, TOKEN) as port:
        lines = (AUTHORIZED, *(f"{name}: {value}" for name, value in HEADERS.items()), *HALF_A_BODY)
        for _ in range(3):
            _, writer = await opened(port, *lines, body=b'{"jsonrpc"')
            await asyncio.sleep(0.05)
            writer.close()
        async with connected(port, TOKEN) as client:
            assert not (await client.call_tool("list_alerts", {})).is_error
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_a_websocket_is_not_opened(tmp_path):
    async with world(tmp_path, token=TOKEN) as w, over_http(w, TOKEN) as port:
        offer = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: eA==")
        reader, writer = await opened(port, *offer, "")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()


@pytest.mark.full
async def test_http_is_served_by_the_command_until_it_is_stopped(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        unused_port = taken.getsockname()[1]
    async with world(tmp_path) as w:
        command = ["-m", "gaugeway", "mcp", "--http", "--port", str(unused_port), "--url", f"http://127.0.0.1:{w.port}"]
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
        try:
            first = await process.stderr.readline()
            assert first.decode().startswith(f"gaugeway: MCP at http://127.0.0.1:{unused_port}/mcp")
            async with asyncio.timeout(60):
                while True:
                    try:
                        async with connected(unused_port, None) as client:
                            assert (await client.call_tool("list_alerts", {})).structured_content["alerts"] == []
                            break
                    except (ExceptionGroup, httpx2.HTTPError, ConnectionError):
                        await asyncio.sleep(0.1)
        finally:
            process.terminate()
            await process.wait()


NONSENSE = [b"garbage", b"\xff\xfe", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": NaN}', b"x" * 1_000_000, b"[1]"]


@pytest.mark.full
async def test_nonsense_on_standard_input_is_passed_over_and_nothing_else_is_written():
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    call = {"name": "quality", "arguments": {}}
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "gaugeway", "mcp", "--url", "http://127.0.0.1:1"]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, limit=2**20)
    for line in [*NONSENSE, *(json.dumps(request).encode() for request in requests)]:
        process.stdin.write(line + b"\n")
    answers = [json.loads(await process.stdout.readline()) for _ in range(2)]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert "is Gaugeway running" in answers[1]["result"]["content"][0]["text"]
    process.stdin.close()
    rest, errors = await process.communicate()
    assert (process.returncode, rest, b"Traceback" in errors) == (0, b"", False)
