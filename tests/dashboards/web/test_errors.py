"""Browsers get a page for every error of every form, with a way back to it."""

from __future__ import annotations

import pytest

from dashboards.web.site import MAX_FORM_BYTES
from gaugeway.storage.engines.failures import Unsupported
from monitors.alerting.acknowledgements import NotLeaderError
from tests.support.pages import Parsed, world

FORMS = {
    "/alerts/f1/silence": "/alerts/f1",
    "/alerts/f1/acknowledge": "/alerts/f1",
    "/alerts/f1/unacknowledge": "/alerts/f1",
    "/alerts/f1/rebaseline": "/alerts/f1",
    "/alerts/f1/assign": "/alerts/f1",
    "/alerts/f1/note": "/alerts/f1",
    "/silences/s1/remove": "/alerts",
    "/dead-letters/d1/retry": "/alerts",
    "/review/label": "/review",
    "/review/undo": "/review",
    "/review/name": "/review",
    "/settings/test": "/settings",
    "/prompts/test": "/prompts",
    "/prompts/confirm": "/prompts",
    "/prompts/reject": "/prompts",
    "/exchanges/x1/feedback": "/exchanges/x1",
    "/datasets": "/explore",
    "/trials": "/trials/new",
    "/trials/t1/stop": "/trials/t1",
    "/login": "/login",
    "/logout": "/login",
}


def posts_of(site):
    from dashboards.web.app import page_handlers

    routers = [one for one in page_handlers(site) if hasattr(one, "routes")]
    return {route.path for router in routers for route in router.routes if "POST" in getattr(route, "methods", ())}


def is_page(answer, *back):
    assert answer.headers["content-type"].startswith("text/html"), answer.text
    links = {one.get("href") for one in Parsed(answer.text).all("a")}
    assert links.issuperset(back), (back, links)
    return Parsed(answer.text).words


async def test_every_form_is_in_the_list(tmp_path):
    async with world(tmp_path) as w:
        found = posts_of(w.site)
    known = {"/" + "/".join(one.split("/")[1:2] + one.split("/")[-1:]) for one in FORMS if one.count("/") > 1}
    shortened = {"/" + "/".join(one.split("/")[1:2] + one.split("/")[-1:]) for one in found if one.count("/") > 1}
    assert shortened == known
    assert {one for one in found if one.count("/") == 1} <= set(FORMS)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
async def test_each_error_of_a_form_is_a_page_with_a_way_back(tmp_path, form):
    async with world(tmp_path) as w:
        csrf = (await w.page("/settings")).form("/settings/test")["csrf"]
        foreign = await w.post(form, {"csrf": "x"}, status=403)
        empty = await w.client.post(form, data={"csrf": csrf}, headers={"accept": "text/html"})
        large = await w.post(form, {"csrf": csrf, "text": "x" * (2 * MAX_FORM_BYTES)}, status=413)
        broken = await w.client.post(
            form, content=b"--x\r\nnothing", headers={"accept": "text/html", "content-type": "multipart/form-data"}
        )
    assert "this form has expired" in is_page(foreign, FORMS[form])
    is_page(large, FORMS[form])
    for one in (empty, broken):
        if one.status_code >= 400:
            is_page(one, *([FORMS[form]] if form != "/login" else []))


async def test_a_second_test_within_the_pause_is_a_page_with_a_way_back(tmp_path):
    async with world(tmp_path) as w:
        await w.send("/settings", "/settings/test")
        answer = await w.send("/settings", "/settings/test", status=429)
    words = is_page(answer, "/settings")
    assert "people: tested a moment ago: the next test may be sent in" in words
    assert int(answer.headers["retry-after"]) > 0


async def test_a_failure_is_a_page_that_shows_no_detail_and_json_for_programs(tmp_path, caplog):
    async with world(tmp_path) as w:

        def broken():
            raise RuntimeError("secret detail")

        csrf = (await w.page("/settings")).form("/settings/test")["csrf"]
        w.engine.notifier_tests.send = lambda name: broken()
        page = await w.post("/settings/test", {"csrf": csrf, "notifier": "people"}, status=500)
        answer = await w.post("/settings/test", {"csrf": csrf, "notifier": "people"}, status=500, accept="*/*")
    words = is_page(page, "/settings", "/")
    assert "An internal error; the log has the details." in words
    assert "secret detail" not in page.text + answer.text
    assert answer.json() == {"status_code": 500, "detail": "An internal error; the log has the details."}
    assert "secret detail" in caplog.text


async def test_what_the_storage_does_not_offer_is_said_on_a_page_and_to_programs(tmp_path, monkeypatch):
    async with world(tmp_path) as w:

        async def addressed(*_):
            raise Unsupported("conversations")

        monkeypatch.setattr(w.store, "addressed", addressed)
        page = await w.client.get("/find?q=nothing", headers={"accept": "text/html"})
        answer = await w.client.get("/find?q=nothing", headers={"accept": "application/json"})
    assert page.status_code == answer.status_code == 501
    words = is_page(page, "/")
    assert "Not offered by this storage" in words
    assert "This storage does not offer conversations." in words
    assert answer.json()["detail"] == "This storage does not offer conversations."


async def test_a_follower_says_on_a_page_that_it_takes_no_changes(tmp_path):
    async with world(tmp_path) as w:

        async def elsewhere(name):
            raise NotLeaderError("another process is the leader")

        w.engine.notifier_tests.send = elsewhere
        assert "another process is the leader" in is_page(
            (await w.send("/settings", "/settings/test", status=503)), "/settings"
        )


async def test_guessing_a_token_in_a_header_still_gets_json(tmp_path):
    async with world(tmp_path, token="x" * 20) as w:
        for _ in range(9):
            answer = await w.client.get("/settings", headers={"accept": "text/html", "authorization": "Bearer no"})
    assert answer.status_code == 429
    assert answer.json()["status_code"] == 429


async def test_a_view_with_wrong_parameters_leads_to_itself_without_them(tmp_path):
    async with world(tmp_path) as w:
        answer = await w.client.get("/explore?since=never", headers={"accept": "text/html"})
    assert answer.status_code == 400
    is_page(answer, "/explore", "/")


@pytest.mark.parametrize("view", ["/apps/shop", "/explore", "/conversations", "/pipeline", "/sources", "/topics"])
async def test_every_view_refuses_an_absurd_time_range_in_words(tmp_path, view):
    async with world(tmp_path) as w:
        await w.add(0.9)
        await w.look()
        ranges = ("since=0001-01-01", "since=99999d", "since=3661d", "until=0001-01-01", "since=1h&until=2h")
        first, second, long, end, empty = [await w.page(f"{view}?app=shop&{one}", status=400) for one in ranges]
    assert "since: '0001-01-01' is before 1970" in first.words
    assert "since: '99999d' is before 1970" in second.words
    assert "since: a time range has at most 3,660 days (10 years)" in long.words
    assert "until: '0001-01-01' is before 1970" in end.words
    assert "The start of the time range must be before its end." in empty.words


async def test_compare_refuses_a_period_that_begins_over_a_year_ago(tmp_path):
    async with world(tmp_path) as w:
        for path in ("?since=0001-01-01", "?since=99999d", "?by=period&a=0001-01-01..2000-01-01&b=7d..now"):
            page = await w.page(f"/compare{path}", status=400)
            assert "since: at most one year ago" in page.words, path
