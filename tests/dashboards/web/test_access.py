"""Who is let in, which forms are taken, and what browsers are told."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from dashboards.web.login import _inside
from dashboards.web.sessions import Sessions
from dashboards.web.site import COOKIE
from gaugeway.runtime.auth import ATTEMPTS
from tests.support.pages import world

TOKEN = "correct horse battery staple"
PAGES = (
    "/",
    "/alerts",
    "/conversations",
    "/sources",
    "/topics",
    "/pipeline",
    "/settings",
    "/welcome",
    "/review",
    "/runbook",
    "/runbooks/GaugewayDown.md",
    "/events",
)


async def log_in(w, token=TOKEN, to="/", status=303):
    form = (await w.page("/login")).form("/login")
    return await w.post("/login", form | {"token": token, "next": to}, status)


async def test_without_a_token_everything_is_open_and_nothing_asks(tmp_path):
    async with world(tmp_path) as w:
        pages = [await w.page(path) for path in PAGES[:-1]]
        login = await w.client.get("/login")
    assert all("Log out" not in page.words for page in pages)
    assert (login.status_code, login.headers["location"]) == (303, "/")


async def test_with_a_token_people_are_sent_to_the_login_and_programs_are_told(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        for path in PAGES:
            browser = await w.client.get(path, headers={"accept": "text/html"})
            assert browser.status_code in (302, 303), path
            assert browser.headers["location"].startswith("/login?next=%2F")
            program = await w.client.get(path)
            assert program.status_code == 401
            assert program.json() == {"status_code": 401, "detail": "log in first"}
            bearer = {"authorization": f"Bearer {TOKEN}"}
            if path != "/events":
                assert (await w.client.get(path, headers=bearer)).status_code == 200
        for path in ("/api/status", "/metrics"):
            assert (await w.client.get(path)).status_code == 401


@pytest.mark.parametrize(
    "path", ["/nope", "/alerts/nope", "/exchanges/nope", "/conversations/nope", "/a/b/c", "/static/x"]
)
async def test_browsers_get_an_error_page_and_programs_get_json(tmp_path, path):
    async with world(tmp_path) as w:
        page = await w.page(path, 404)
        program = await w.client.get(path)
        assert (program.status_code, list(program.json())) == (404, ["status_code", "detail"])
        elsewhere = await w.client.get(path, headers={"accept": "text/html", "host": "evil.example"})
        assert "Pipeline" not in elsewhere.text
        assert elsewhere.status_code == 403
        assert elsewhere.json()["detail"].startswith("Host not allowed: without a token only localhost")
    assert "Not found" in page.words
    assert "/pipeline" in [one.get("href") for one in page.all("a")]


async def test_methods_and_parameters_that_are_wrong_have_their_error_in_both_shapes(tmp_path):
    async with world(tmp_path) as w:
        put = await w.client.put("/alerts", headers={"accept": "text/html"})
        assert put.status_code == 405
        assert "GET" in put.headers["allow"]
        assert "Method not allowed" in put.text
        for headers in ({}, {"accept": "text/html"}):
            for path, status in (("/api/nope", 404), ("/api/exchanges/nope", 404), ("/api", 404), ("/v1/nope", 404)):
                answer = await w.client.get(path, headers=headers)
                assert (answer.status_code, set(answer.json())) == (status, {"status_code", "detail"})
        wrong = await w.client.get("/api/exchanges", params={"limit": 0})
        assert wrong.json() == {"status_code": 400, "detail": "limit: expected a whole number from 1 to 1000"}


async def test_an_unknown_address_tells_nothing_to_those_who_guess_the_token(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        page = await w.page("/nope", 404)
        assert "Pipeline" not in page.words
        for token in (TOKEN, "wrong"):
            answer = await w.client.get("/nope", headers={"accept": "text/html", "authorization": f"Bearer {token}"})
            assert answer.json() == {"status_code": 404, "detail": "Not Found"}


async def test_the_token_opens_a_session_that_is_not_the_token(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        answer = await log_in(w, to="/alerts?x=1")
        assert answer.headers["location"] == "/alerts?x=1"
        cookie = answer.headers["set-cookie"]
        page = await w.page("/")
        api = await w.client.get("/api/status")
        changed = await w.client.post("/api/rules/answers/rebaseline")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert "Max-Age=43200" in cookie
    assert TOKEN not in cookie
    assert "Log out" in page.words
    assert api.status_code == 200
    assert changed.status_code == 401  # the API's changes take the token itself


async def test_behind_https_the_cookie_stays_there_and_on_this_host(tmp_path):
    async with world(tmp_path, token=TOKEN, public_url="https://quality.example") as w:
        answer = await log_in(w)
        name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
        w.client.cookies.clear()
        pages = [await w.client.get("/", headers={"cookie": f"{one}={value}"}) for one in (name, COOKIE)]
        cookie, pages = answer.headers["set-cookie"], [page.status_code for page in pages]
    assert cookie.startswith("__Host-gaugeway_session=")
    assert {"Secure", "Path=/"} <= set(cookie.split("; "))
    assert "domain" not in cookie.lower()
    assert pages == [200, 401]  # a cookie that another host of the domain could have set is none


async def test_who_logs_out_is_out_even_with_the_old_cookie(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        await log_in(w)
        kept = w.client.cookies[COOKIE]
        answer = await w.send("/", "/logout")
        assert answer.headers["location"] == "/login"
        w.client.cookies.clear()
        assert (await w.client.get("/", headers={"cookie": f"{COOKIE}={kept}"})).status_code == 401


async def test_a_session_ends(tmp_path):
    times = [1_800_000_000.0]

    async with world(tmp_path, token=TOKEN, clock=lambda: times[0]) as w:
        await log_in(w)
        before = (await w.client.get("/")).status_code
        times[0] += 13 * 3600.0
        assert (before, (await w.client.get("/")).status_code) == (200, 401)


async def test_wrong_tokens_at_the_form_do_not_lock_out_the_right_one(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        for _ in range(ATTEMPTS):
            await log_in(w, "wrong", status=401)
        late, right = await log_in(w, "wrong", status=429), await log_in(w)
    assert 290 <= int(late.headers["retry-after"]) <= 300
    assert right.headers["location"] == "/"


def test_the_login_leads_nowhere_else():
    for bad in ("//evil.example", "/\\evil.example", "https://evil.example", "", "/a\r\nb", "/\t/evil.example", "x"):
        assert _inside(bad) == "/"
    assert _inside("/alerts/ab?x=1&y=2#z") == "/alerts/ab?x=1&y=2#z"


async def test_a_form_that_is_not_ours_changes_nothing(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        (alert,) = [one for one in w.engine.alerts() if not one.slice]
        where = f"/alerts/{alert.fingerprint}"
        action = f"{where}/acknowledge"
        ours = (await w.page(where)).form(action) | {"by": "me"}
        here = f"http://127.0.0.1:{w.port}"
        await w.post(action, {"by": "me"}, 403)
        await w.post(action, ours | {"csrf": "0" * 64}, 403)
        await w.post(action, ours, 403, origin="https://evil.example")
        await w.post(action, ours, 403, origin="null")
        await w.post(action, ours, 403, **{"sec-fetch-site": "cross-site"})
        await w.post(action, ours, 403, **{"sec-fetch-site": "same-site"})
        assert not w.engine.acknowledgements.acks()
        await w.post(action, ours, 303, origin="null", **{"sec-fetch-site": "same-origin"})
        assert w.engine.acknowledgements.acks()
        await w.post(f"{where}/unacknowledge", ours, 303, origin=here)
        assert not w.engine.acknowledgements.acks()


async def test_a_form_of_one_session_is_worth_nothing_in_another(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        before = (await w.page("/login")).form("/login")
        await log_in(w)
        await w.post("/logout", before, 403)
        assert (await w.client.get("/")).status_code == 200


async def test_a_form_without_end_is_refused(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        assert (
            await w.client.post("/login", data={"token": "x" * 200_000}, headers={"accept": "text/html"})
        ).status_code == 413


@pytest.mark.parametrize("path", ["/", "/login", "/nowhere", "/alerts/none", "/api/status", "/metrics", "/healthz"])
async def test_every_answer_says_what_browsers_may_do(tmp_path, path):
    async with world(tmp_path) as w:
        headers = (await w.client.get(path, headers={"accept": "text/html"})).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


async def test_files_are_kept_by_browsers_until_they_change(tmp_path):
    async with world(tmp_path, token=None) as w:
        page = await w.client.get("/", headers={"accept": "text/html"})
        for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
            kept = await w.client.get(address)
            assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
            plain = await w.client.get(address.split("?")[0])
            assert plain.headers["cache-control"] == "no-cache"
            tag = {"if-none-match": plain.headers["etag"]}
            assert (await w.client.get(address, headers=tag)).status_code == 304
        for missing in ("/static/page.css.bak", "/static/..%2fframe.py", "/static/"):
            assert (await w.client.get(missing)).status_code == 404
        assert len(re.findall(r'"/static/', page.text)) >= 5


async def test_pages_load_nothing_from_elsewhere_and_have_no_style_or_script_in_them(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        pages = [await w.page(path) for path in PAGES[:-1]]
    for page in pages:
        for tag, attributes in page.elements:
            assert tag != "style"
            assert "style" not in attributes
            assert not [name for name in attributes if name.startswith("on")]
            for name in ("src", "href", "action"):
                assert attributes.get(name, "/").startswith(("/", "#"))
        headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
        assert headings[0] == 1
        assert headings.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(headings))
        labelled = {one["for"] for one in page.all("label")}
        fields = [
            one
            for tag in ("input", "select", "textarea")
            for one in page.all(tag)
            if one.get("type") != "hidden" and "hidden" not in one
        ]
        assert {one["id"] for one in fields} <= labelled
        assert len(page.all("caption")) == len(page.all("table"))
        assert all(one.get("scope") in ("col", "row") for one in page.all("th"))
        identities = [one["id"] for _, one in page.elements if "id" in one]
        assert len(set(identities)) == len(identities)


def test_a_session_of_another_token_or_with_another_end_is_none():
    ours, others = Sessions("a"), Sessions("b")
    session = ours.issue(0.0)
    assert ours.valid(session, 1.0)
    assert Sessions("a").valid(session, 1.0)  # a restart is no reason to log in again
    assert not others.valid(session, 1.0)
    name, ends, signature = session.split(".")
    assert not ours.valid(f"{name}.{int(ends) + 1}.{signature}", 1.0)
    for bad in ("", ".", "..", "a.b.c", "é", session + "0"):
        assert not ours.valid(bad, 1.0)


async def test_pages_are_compressed_for_clients_that_accept_it_and_events_are_not(tmp_path):
    async with world(tmp_path) as w:
        plain = await w.client.get("/explore", headers={"accept-encoding": "identity"})
        packed = await w.client.get("/explore", headers={"accept-encoding": "gzip"})
        async with w.client.stream("GET", "/events", headers={"accept-encoding": "gzip"}) as stream:
            events = dict(stream.headers)
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["vary"]
    assert int(packed.headers["content-length"]) < len(plain.content) / 3
    assert "content-encoding" not in events
    for header in ("content-security-policy", "cache-control", "x-content-type-options"):
        assert packed.headers[header] == plain.headers[header]
