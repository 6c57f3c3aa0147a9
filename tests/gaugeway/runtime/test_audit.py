"""What people do on the admin port is written down: who, what, from where; and no secret with it."""

import json
import logging
import stat

import pytest
from litestar import Litestar

from gaugeway.runtime import audit
from monitors.api.alerts import rule_handlers
from tests.monitors.api.test_alerts import MATCHERS, alert, alerts_api
from tests.support.running import serving


@pytest.fixture
def lines(tmp_path):
    handler = audit.open_file(tmp_path, clock=lambda: 12.3456)
    yield lambda: [json.loads(line) for line in (tmp_path / audit.FILE).read_text().splitlines()]
    audit.close_file(handler)


def test_a_deed_is_a_line_that_only_its_owner_may_read(lines, tmp_path):
    audit.tell("login", outcome="failed", address="192.0.2.1", by=None)
    audit.tell("silence", by="mo\nre", note="x" * 500)
    first, second = lines()
    assert first == {"time": 12.346, "action": "login", "outcome": "failed", "address": "192.0.2.1"}
    assert second["by"] == "mo\nre", "one line all the same"
    assert len(second["note"]) == 200
    assert stat.S_IMODE((tmp_path / audit.FILE).stat().st_mode) == 0o600


def test_a_file_moved_away_is_begun_anew_and_a_link_is_not_followed(lines, tmp_path, capsys):
    audit.tell("a")
    (tmp_path / audit.FILE).rename(tmp_path / "audit.1")
    audit.tell("b")
    assert [one["action"] for one in lines()] == ["b"]
    (tmp_path / audit.FILE).unlink()
    (tmp_path / audit.FILE).symlink_to(tmp_path / "elsewhere")
    audit.tell("c")
    assert not (tmp_path / "elsewhere").exists()
    assert "OSError" in capsys.readouterr().err


def test_the_logger_gets_it_too(caplog, lines):
    with caplog.at_level(logging.INFO, logger="gaugeway.audit"):
        audit.tell("ack", by="O'Brien Ö", alert="f")
        audit.tell("ack", by='x" alert="g\n\u202e')
    assert [record.getMessage() for record in caplog.records] == [
        """ack ok by="O'Brien Ö" alert="f\"""",
        r'ack ok by="x\" alert=\"g\n\u202e"',
    ]
    assert caplog.records[0].audit == {"action": "ack", "outcome": "ok", "by": "O'Brien Ö", "alert": "f"}


async def test_silences_and_acknowledgements_are_told_with_who_and_from_where(tmp_path, lines):
    async with alerts_api(tmp_path) as made:
        body = {"matchers": MATCHERS, "duration_s": 60, "by": "ops", "comment": "not for the audit"}
        silence = await made.ask("POST", "/api/silences", body, 201)
        await made.ask("DELETE", f"/api/silences/{silence['id']}", status=204)
        await made.tick(alert(fingerprint="f1"))
        await made.ask("POST", "/api/alerts/f1/ack", {"by": "ops"})
        await made.ask("DELETE", "/api/alerts/f1/ack", status=204)
        await made.ask("DELETE", "/api/alerts/none/ack", status=404)
        await made.refused("POST", "/api/silences", body, 403, origin="http://evil.example")
    told = lines()
    assert [(one["action"], one["outcome"]) for one in told] == [
        ("silence", "ok"),
        ("unsilence", "ok"),
        ("ack", "ok"),
        ("unack", "ok"),
        ("change", "refused"),
    ]
    assert {one["address"] for one in told} == {"127.0.0.1"}
    assert told[0]["by"] == told[2]["by"] == "ops"
    assert told[2]["alert"] == "f1"
    assert "not for the audit" not in json.dumps(told)


async def test_a_rebaseline_is_told(lines):
    class Rules:
        versions = None

        def rebaseline(self, rule, app=None):
            return {"known": 3}[rule]

    import httpx

    async with serving(Litestar(rule_handlers(Rules()))) as port, httpx.AsyncClient() as client:
        for rule, status in (("known", 200), ("other", 404)):
            url = f"http://127.0.0.1:{port}/api/rules/{rule}/rebaseline"
            assert (await client.post(url, params={"app": "shop"})).status_code == status
    (told,) = lines()
    assert told["action"] == "rebaseline"
    assert (told["rule"], told["app"], told["streams"]) == ("known", "shop", 3)
