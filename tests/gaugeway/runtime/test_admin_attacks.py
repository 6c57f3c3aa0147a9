"""Attacks on the monitors' admin port, one list: each is sent for real and refused."""

import asyncio
import contextlib
import json
import re
import socket
import time

import pytest

from dashboards.web.site import COOKIE
from gaugeway.runtime import audit
from gaugeway.runtime.auth import ATTEMPTS
from tests.support.pages import world

pytestmark = pytest.mark.full

TOKEN = "correct horse battery staple"
CHANGES = (
    ("POST", "/api/silences"),
    ("DELETE", "/api/silences/x"),
    ("POST", "/api/alerts/x/ack"),
    ("DELETE", "/api/alerts/x/ack"),
    ("POST", "/api/rules/answers/rebaseline"),
    ("POST", "/api/templates/x/reject?app=shop"),
    ("POST", "/api/templates/x/confirm?app=shop"),
)
ORIGINS = (
    "http://evil.example",
    "https://127.0.0.1.evil.example",
    "http://127.0.0.1",
    "null",
    "file://",
    "http://evil.example:9465",
)


@contextlib.asynccontextmanager
async def bounded_world(path, **options):
    async with world(path, **options) as made, asyncio.timeout(60):
        yield made


def port_of(w):
    return w.client.base_url.port


async def raw(port, request):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(60):
            return await reader.read(1 << 20)
    finally:
        writer.close()


async def log_in(w, token=TOKEN, to="/"):
    form = (await w.page("/login")).form("/login")
    return await w.client.post("/login", data=form | {"token": token, "next": to})


@pytest.mark.parametrize("origin", ORIGINS)
async def test_a_page_of_another_origin_changes_nothing(tmp_path, origin):
    async with bounded_world(tmp_path) as w:
        for method, path in CHANGES:
            for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
                headers = {"origin": origin, "content-type": kind}
                answer = await w.client.request(method, path, headers=headers, content=b"{}")
                assert answer.status_code == 403, (method, path, kind)
                assert "access-control-allow-origin" not in answer.headers


async def test_no_page_of_another_origin_is_allowed_to_read_or_to_ask_whether_it_may(tmp_path):
    async with bounded_world(tmp_path) as w:
        for path in ("/api/status", "/api/exchanges", "/metrics", "/"):
            headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
            for method in ("GET", "OPTIONS"):
                answer = await w.client.request(method, path, headers=headers)
                assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    "path", ["/", "/login", "/alerts", "/api/status", "/api/exchanges", "/metrics", "/static/page.css"]
)
async def test_a_name_that_was_made_to_point_here_is_refused(tmp_path, path):
    async with bounded_world(tmp_path) as w:
        for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9465", "evil.example@127.0.0.1"):
            assert (await w.client.get(path, headers={"host": name})).status_code in (400, 403), name


@pytest.mark.parametrize("header", ["x-http-method-override", "x-method-override", "x-http-method"])
async def test_a_header_does_not_turn_one_verb_into_another(tmp_path, header):
    async with bounded_world(tmp_path) as w:
        before = (await w.client.get("/api/silences")).json()
        for method, path in CHANGES:
            answer = await w.client.get(path, headers={header: method})
            assert answer.status_code in (200, 404, 405), path
        assert (await w.client.get("/api/silences")).json() == before


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "TRACE", "PROPFIND", "CONNECT", "POST", "DELETE", "HEAD"])
async def test_a_verb_that_nobody_serves_opens_no_door(tmp_path, verb):
    async with bounded_world(tmp_path, token=TOKEN) as w:
        for path in ("/api/status", "/api/exchanges", "/metrics"):
            answer = await raw(
                port_of(w), f"{verb} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            status = int(answer.split(b" ")[1])
            assert status in (400, 401, 405), (verb, path, status)
            assert b"Authorization" not in answer


async def test_without_the_token_nothing_but_the_login_and_the_health_answers(tmp_path):
    async with bounded_world(tmp_path, token=TOKEN) as w:
        for given in ("", "Bearer", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}"):
            for path in ("/api/status", "/metrics"):
                head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {given}\r\nConnection: close\r\n\r\n"
                answer = await raw(port_of(w), head.encode("latin-1"))
                assert answer.split(b" ")[1] == b"401", (given, path)
        for path in ("/api/status?token=" + TOKEN.replace(" ", "%20"), "//api/status", "/api//status", "/API/status"):
            answer = await w.client.get(path)
            assert answer.status_code in (401, 404), path


TRAVERSALS = (
    "/static/../login.py",
    "/static/..%2flogin.py",
    "/static/%2e%2e/%2e%2e/templates/frame.html",
    "/static/..%5c..%5clogin.py",
    "/static/....//login.py",
    "/static//etc/passwd",
    "/static/%2fetc%2fpasswd",
    "/static/page.css%00.html",
    "/static/page.css/..",
    "/static/",
    "/static",
)


@pytest.mark.parametrize("path", TRAVERSALS)
async def test_no_path_leads_out_of_the_static_files(tmp_path, path):
    async with bounded_world(tmp_path) as w:
        answer = await raw(port_of(w), f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert answer.split(b" ")[1] in (b"400", b"404"), answer[:200]
        for told in (b"root:", b"import ", b"{%", b"Traceback"):
            assert told not in answer


INJECTIONS = (
    "%0d%0aset-cookie:%20a=b",
    "%0d%0a%0d%0a<script>",
    "%0aLocation:%20http://evil",
    "%E5%98%8D%E5%98%8Aset-cookie:a=b",
)


@pytest.mark.parametrize("injected", INJECTIONS)
async def test_a_line_break_in_an_address_begins_no_header(tmp_path, injected):
    async with bounded_world(tmp_path, token=TOKEN) as w:
        paths = (
            f"/login?next=/{injected}",
            f"/{injected}",
            f"/static/{injected}",
            f"/alerts/{injected}",
            f"/api/exchanges/{injected}",
        )
        for path in paths:
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nConnection: close\r\n\r\n"
            answer = await raw(port_of(w), head.encode())
            headers = answer.split(b"\r\n\r\n")[0].lower()
            assert b"\nset-cookie: a=b" not in headers
            assert b"\nlocation: http://evil" not in headers
            if b"\ncontent-type: text/html" in headers:
                assert b"<script>" not in answer.split(b"\r\n\r\n", 1)[1]


@pytest.mark.parametrize(
    "to",
    [
        *("http://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example", "https:evil.example"),
        *("/\t/evil.example", "/%09/evil.example", "javascript:alert(1)", "///evil.example", "", " //evil.example"),
    ],
)
async def test_the_login_leads_to_no_other_host(tmp_path, to):
    async with bounded_world(tmp_path, token=TOKEN) as w:
        answer = await log_in(w, to=to)
        assert answer.status_code == 303
        location = answer.headers["location"]
        assert re.match(r"/(?![/\\\t])", location), location
        again = await w.client.get("/login", params={"next": to})
        assert re.match(r"/(?![/\\\t])", again.headers["location"])


async def test_guesses_at_the_form_are_slowed_down_whatever_address_a_header_claims(tmp_path):
    async with bounded_world(tmp_path, token=TOKEN) as w:
        for number in range(ATTEMPTS):
            assert (await log_in(w, f"guess {number}")).status_code == 401
        form = (await w.page("/login")).form("/login")
        for claimed in ("192.0.2.7", "203.0.113.9"):
            headers = {"x-forwarded-for": claimed, "x-real-ip": claimed, "forwarded": f"for={claimed}"}
            answer = await w.client.post("/login", data=form | {"token": "guess", "next": "/"}, headers=headers)
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) > 60
            assert "set-cookie" not in answer.headers
        answer = await log_in(w)
        assert answer.status_code == 303, "the right token passes"
        assert "set-cookie" in answer.headers


@pytest.mark.parametrize("path", ["/", "/login", "/alerts", "/no-such-page"])
async def test_no_other_page_may_frame_this_one(tmp_path, path):
    async with bounded_world(tmp_path) as w:
        answer = await w.client.get(path, headers={"accept": "text/html"})
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy
        assert "unsafe-eval" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_body_without_end_is_refused(tmp_path):
    async with bounded_world(tmp_path) as w:
        body = b'{"by":"' + b"x" * 20_000_000 + b'"}'
        for method, path in (CHANGES[0], CHANGES[2]):
            answer = await w.client.request(method, path, content=body)
            assert answer.status_code in (400, 404, 413), path
        for nested in (b"[" * 1_000_000, b'{"matchers":' + b"[" * 1_000_000, b'{"x":' * 200_000):
            assert (await w.client.post("/api/silences", content=nested)).status_code == 400
        assert (await w.client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "query", ["limit=999999999", "limit=-1", "since_s=-1", "since_s=nan", "order=drop", "app=" + "x" * 9000]
)
async def test_a_query_that_asks_for_too_much_is_refused_or_harmless(tmp_path, query):
    async with bounded_world(tmp_path) as w:
        answer = await w.client.get(f"/api/exchanges?{query}")
        assert answer.status_code in (200, 400)
        assert "Traceback" not in answer.text


async def test_many_connections_that_say_nothing_keep_nobody_out(tmp_path):
    async with bounded_world(tmp_path) as w:
        silent = [socket.create_connection(("127.0.0.1", port_of(w))) for _ in range(200)]
        for one in silent[::2]:
            one.send(b"GET /api/status HTTP/1.1\r\nHost: loc")
        assert (await w.client.get("/healthz")).status_code == 200
        for one in silent:
            one.close()


async def test_guesses_are_slowed_down_at_every_path_of_the_port(tmp_path):
    async with bounded_world(tmp_path, token=TOKEN) as w:
        wrong, right = {"authorization": "Bearer guess"}, {"authorization": f"Bearer {TOKEN}"}
        for path in ("/api/status", "/", "/metrics", "/alerts", "/login")[:ATTEMPTS]:
            assert (await w.client.get(path, headers=wrong)).status_code in (200, 401)
        for path in ("/api/status", "/metrics", "/", "/login", "/static/page.css"):
            for accept in ("application/json", "text/html"):
                for claimed in ("192.0.2.7", "203.0.113.9"):
                    headers = {"accept": accept, "x-forwarded-for": claimed}
                    refused = await w.client.get(path, headers=headers | wrong)
                    assert refused.status_code == 429, path
                    assert int(refused.headers["retry-after"]) > 60
                    assert (await w.client.get(path, headers=headers | right)).status_code in (200, 303), path
        assert (await w.client.get("/healthz", headers=wrong)).status_code == 200
        assert (await log_in(w)).status_code == 303, "the form counts apart"


async def test_a_session_that_somebody_else_chose_is_worth_nothing(tmp_path):
    async with bounded_world(tmp_path, token=TOKEN) as w:
        chosen = f"chosen.{int(time.time()) + 3600}.{'0' * 64}"
        w.client.cookies.set(COOKIE, chosen)
        assert (await w.client.get("/api/status")).status_code == 401
        answer = await log_in(w)
        given = answer.headers["set-cookie"]
        assert chosen not in given
        for attribute in ("HttpOnly", "SameSite=strict", "Path=/"):
            assert attribute in given
        w.client.cookies.clear()
        w.client.cookies.set(COOKIE, chosen)
        assert (await w.client.get("/api/status")).status_code == 401


GET = b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
SMUGGLED = {
    "both framings": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET,
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(GET) + GET,
    "a length with a sign": b"Content-Length: +0\r\n\r\n" + GET,
    "an encoding that is none": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + GET,
    "a tab in the name": b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n" + GET,
    "a folded header": b"Content-Length: 0\r\n Transfer-Encoding: chunked\r\n\r\n" + GET,
}


@pytest.mark.parametrize("kind", SMUGGLED)
async def test_no_request_hides_in_another_one(tmp_path, kind):
    async with bounded_world(tmp_path) as w:
        head = b"POST /api/silences HTTP/1.1\r\nHost: localhost\r\n"
        answer = await raw(port_of(w), head + SMUGGLED[kind])
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize("extra", ["id", "state", "admin", "__class__", "starts_at", "by_token"])
async def test_a_field_that_nobody_asked_for_is_refused(tmp_path, extra):
    async with bounded_world(tmp_path) as w:
        silence = {"matchers": [{"name": "app", "value": "shop"}], "duration_s": 60, "by": "ops"}
        for body in (silence | {extra: "x"}, silence | {"matchers": [{"name": "app", "value": "shop", extra: "x"}]}):
            answer = await w.client.post("/api/silences", json=body)
            assert answer.status_code == 400
            assert extra in answer.text
        assert (await w.client.post("/api/alerts/x/ack", json={"by": "ops", extra: "x"})).status_code == 400
        assert (await w.client.get("/api/silences")).json() == []


async def test_a_name_with_line_breaks_writes_no_line_of_its_own(tmp_path, caplog):
    evil = 'ops.example\r\n{"action":"login","outcome":"ok"}\n2026-01-01 INFO gaugeway forged\x1b[2J'
    told = audit.open_file(tmp_path)

    try:
        async with bounded_world(tmp_path) as w:
            await w.look()
            silence = {"matchers": [{"name": "app", "value": evil}], "duration_s": 60, "by": evil, "comment": evil}
            assert (await w.client.post("/api/silences", json=silence)).status_code == 400
            silence["by"] = "ops.example\u2028forged\u202e"
            assert (await w.client.post("/api/silences", json=silence)).status_code == 201
            await w.client.delete("/api/silences/x%0d%0aforged")
            await w.client.post("/api/silences", headers={"origin": f"http://{evil.splitlines()[0]}"}, json=silence)
    finally:
        audit.close_file(told)
    lines = (tmp_path / audit.FILE).read_bytes().splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["silence", "change"]
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("gaugeway")]
    assert not [line for line in ours if line.startswith("2026") or not line.isprintable()]


QUERIES = (
    "app=' OR '1'='1",
    "app=shop'; DROP TABLE samples; --",
    "metric=%25",
    'app=shop" UNION SELECT * FROM states --',
    "app=shop\x00",
    "app={{7777*3}}${7777*3}",
)


@pytest.mark.parametrize("query", QUERIES)
async def test_a_query_is_a_value_and_never_a_statement(tmp_path, query):
    async with bounded_world(tmp_path) as w:
        await w.add(0.5)
        name, _, value = query.partition("=")
        for path in ("/api/exchanges", "/explore", "/compare"):
            answer = await w.client.get(path, params={name: value}, headers={"accept": "text/html"})
            assert answer.status_code in (200, 400, 404), path
            assert "23331" not in answer.text
        assert (await w.client.get("/api/exchanges", params={name: value})).json() == []
        assert len((await w.client.get("/api/exchanges")).json()) == 1


async def test_of_two_values_for_one_name_none_gets_round_the_check(tmp_path):
    async with bounded_world(tmp_path) as w:
        for number in range(3):
            await w.add(0.5, id=f"x{number}")
        for query in ("limit=1&limit=999999", "limit=999999&limit=1", "order=newest&order=x", "order=x&order=newest"):
            answer = await w.client.get(f"/api/exchanges?{query}")
            assert answer.status_code == 400 or len(answer.json()) <= 3
            assert "Traceback" not in answer.text


async def test_a_failure_inside_tells_nothing_of_the_inside(tmp_path, monkeypatch):
    async def broken(*_):
        raise RuntimeError("the password is canary-4711")

    async with bounded_world(tmp_path) as w:
        monkeypatch.setattr(w.store, "series", broken)
        monkeypatch.setattr(w.store, "sample", broken)
        for path in ("/api/exchanges", "/api/exchanges/x", "/exchanges/x", "/explore"):
            for accept in ("application/json", "text/html"):
                answer = await w.client.get(path, headers={"accept": accept})
                assert answer.status_code == 500, path
                for told in ("canary", "Traceback", "RuntimeError", str(tmp_path), ".py"):
                    assert told not in answer.text


async def test_no_address_that_a_visitor_names_is_asked(tmp_path):
    async with bounded_world(tmp_path) as w:
        visits = []

        async def note(_, writer):
            visits.append(1)
            writer.close()

        listener = await asyncio.start_server(note, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        for path in ("/", "/explore", "/compare", "/pipeline", "/settings", "/api/exchanges", "/api/status", "/login"):
            for name in ("url", "gateway", "gateways", "next", "target", "host", "callback", "app"):
                await w.client.get(path, params={name: url}, headers={"referer": url, "x-forwarded-host": url})
        head = f"GET {url} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        await raw(port_of(w), head.encode())
        listener.close()
        assert visits == []


async def test_what_was_captured_is_in_no_cache(tmp_path):
    async with bounded_world(tmp_path) as w:
        await w.add(0.5, id="x")
        for path in ("/api/exchanges", "/api/exchanges/x", "/api/status", "/metrics", "/exchanges/x", "/api/nothing"):
            assert (await w.client.get(path)).headers["cache-control"] == "no-store", path
