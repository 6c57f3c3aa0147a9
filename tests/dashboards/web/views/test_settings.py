"""Settings: the configuration without its secrets and where it comes from; a test of each notifier; the ways to run."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from dashboards.web.site import TEXTS
from dashboards.web.views.settings import SET, explained, rows_of, shown, without_address
from gaugeway.settings.loading import load, sources_of
from gaugeway.settings.shared import Config
from monitors.alerting.notifiers import NotDeliveredError, Notifier
from monitors.alerting.notifiers.factory import NotifierTests, TooSoonError
from tests.deploy.reading import ROOT
from tests.support.alerting import People
from tests.support.pages import EVIL, JUDGED, world
from tests.support.product import Webhook

TOML = """
[[upstreams]]
base_url = "https://me:SECRET@llm.example/v1"
api_key = "SECRET"

[gateway]
admin_token = "SECRET"

[monitors]
token = "SECRET-of-sixteen-letters"
window_s = 1800.0

[judge]
base_url = "https://judge.example/v1"
model = "${THE_MODEL}"
api_key = "${THE_KEY}"

[capture]
salt = "SECRET"

[store]
url = "postgresql://me:SECRET@db/quality?password=SECRET"

[metrics.faithfulness]
rate = 0.5

[telemetry]
otlp_endpoint = "http://127.0.0.1:4318"
otlp_headers = { authorization = "SECRET" }

[[notifiers]]
kind = "slack"
name = "chat"
url = "https://hooks.example/SECRET"

[[notifiers]]
kind = "email"
host = "mail.example"
username = "SECRET"
password = "SECRET"
sender = "a@b.example"
recipients = ["SECRET@b.example"]

[[sinks]]
kind = "langfuse"
url = "https://SECRET.example"
public_key = "SECRET"
secret_key = "SECRET"
"""


@pytest.fixture
def configured(tmp_path, monkeypatch):
    monkeypatch.setenv("THE_MODEL", "SECRET-model")
    monkeypatch.setenv("THE_KEY", "SECRET-key")
    path = tmp_path / "gaugeway.toml"
    path.write_text(TOML)
    return load(path), sources_of(path, {"monitors.port": 1234, "judge.model": None})


def test_no_secret_is_shown_and_each_value_has_its_source(configured):
    config, origins = configured
    rows = {row.key: row for row in rows_of(config, origins)}
    assert "SECRET" not in msgspec.json.encode([msgspec.to_builtins(row) for row in rows.values()]).decode()
    assert (rows["judge.model"].value, rows["judge.model"].source) == (SET, "${THE_MODEL}")
    assert (rows["judge.base_url"].value, rows["judge.base_url"].source) == ("https://judge.example/v1", "file")
    assert (rows["monitors.window_s"].value, rows["monitors.window_s"].source) == ("1800", "file")
    assert rows["monitors.port"].source == "option or environment"
    assert (rows["judge.timeout_s"].value, rows["judge.timeout_s"].source) == ("60", "default")
    assert rows["upstreams[0].base_url"].value == "https://llm.example/v1"
    assert rows["store.url"].value == "postgresql://db/quality"
    assert rows["metrics.faithfulness.rate"].source == "file"
    assert rows["notifiers[0].url"].value == SET
    assert rows["notifiers[0].kind"].value == "slack"


def test_a_value_of_the_environment_without_a_placeholder_says_so():
    config = msgspec.structs.replace(Config(), monitors=msgspec.structs.replace(Config().monitors, token="x" * 20))
    rows = {row.key: row for row in rows_of(config, {})}
    assert (rows["monitors.token"].value, rows["monitors.token"].source) == (SET, "environment")
    assert rows["judge.model"].source == "default"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("a.b", None, "none"),
        ("a.b", True, "true"),
        ("a.b", 0.5, "0.5"),
        ("a.b", ("x", "y"), "x, y"),
        ("a.api_key", "x", SET),
        ("telemetry.otlp_headers.authorization", "x", SET),
        ("limits.tokens_per_min", 100, "100"),
        ("sinks[0].url", "https://x", SET),
        ("a.b", "x" * 300, "x" * 200 + " …"),
    ],
)
def test_values_as_text(key, value, text):
    assert shown(key, value) == text


def test_a_file_that_cannot_be_read_has_no_sources(tmp_path):
    assert sources_of(tmp_path / "none.toml", {"a.b": 1}) == {"a.b": "option or environment"}


async def test_the_page_shows_it_and_setup_leads_there(tmp_path, configured):
    config, origins = configured

    async with world(tmp_path, config=config) as w:
        w.site.origins = origins
        moved = await w.client.get("/setup", headers={"authorization": "Bearer SECRET-of-sixteen-letters"})
        page = await w.page("/settings", authorization="Bearer SECRET-of-sixteen-letters")
    assert moved.status_code in (303, 200)
    assert "judge.model" in page.words
    assert "SECRET" not in page.text
    assert "credentials_file" in page.text


async def test_a_test_is_sent_marked_and_its_result_is_shown(tmp_path):
    async with world(tmp_path) as w:
        before = await w.page("/settings")
        answer = await w.send("/settings", "/settings/test")
        to, after, alerts = answer.headers["location"], await w.page("/settings"), w.people.alerts
    assert "not tested since the start" in before.words
    assert to == "/settings#notifiers"
    assert "Delivered" in after.words
    (alert,) = alerts
    assert (alert.rule, alert.state, alert.severity) == ("notifier_test", "firing", "info")


async def test_an_error_is_shown_in_words_and_the_next_test_waits(tmp_path):
    async with world(tmp_path) as w:
        w.people.failures = 1
        await w.send("/settings", "/settings/test")
        await w.send("/settings", "/settings/test", status=429)
        page = await w.page("/settings")
    assert "Not delivered" in page.words
    assert "OSError: nobody at home" in page.words


async def test_only_the_pages_own_form_sends_one(tmp_path):
    async with world(tmp_path) as w:
        await w.post("/settings/test", {"notifier": "people"}, status=403)
        await w.send("/settings", "/settings/test", status=404, notifier=EVIL)
        assert w.people.calls == 0


def test_a_receiver_that_opens_incidents_gets_the_end_too_in_alertmanagers_format():
    from monitors.alerting.notifiers.webhook import WebhookNotifier

    hook = Webhook()
    try:
        tests = NotifierTests({"hook": WebhookNotifier(hook.url)}, lambda: 1_760_000_000.0)
        assert asyncio.run(tests.send("hook")).error == ""
    finally:
        hook.close()
    assert [body["status"] for body in hook.bodies] == ["firing", "resolved"]
    (first,) = hook.bodies[0]["alerts"]
    assert first["labels"]["alertname"] == "GaugewayTest"
    assert first["annotations"]["summary"].startswith("TEST of this notifier")
    assert first["fingerprint"] == hook.bodies[1]["alerts"][0]["fingerprint"]


def test_a_refused_connection_is_explained():
    from gaugeway.demo.servers import free_ports
    from monitors.alerting.notifiers.webhook import WebhookNotifier

    (port,) = free_ports(1)
    tests = NotifierTests({"hook": WebhookNotifier(f"http://127.0.0.1:{port}/SECRET")}, lambda: 0.0)
    error = asyncio.run(tests.send("hook")).error
    assert "SECRET" not in error
    assert explained(error) == "Nothing accepts connections at this address, or its name is unknown."


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("http://no-such-host.invalid/: ConnectError", "ConnectError"),
        ("https://hooks.example:8443: answered 302", "answered 302"),
        ("http://[::1]:9: the response is larger than 64 KiB", "the response is larger than 64 KiB"),
        ("mail.example:587: SMTPAuthenticationError 535", "SMTPAuthenticationError 535"),
        ("OSError: cannot connect to mail.example:25 now", "OSError: cannot connect to  now"),
        ("no answer within 30 s", "no answer within 30 s"),
    ],
)
def test_a_failed_test_names_no_address(error, shown):
    assert without_address(error) == shown


async def test_the_caption_holds_for_a_failed_test(tmp_path):
    async with world(tmp_path) as w:

        async def failed(name):
            raise NotDeliveredError("http://no-such-host.invalid:8443: answered 302")

        w.people.notify = failed
        await w.send("/settings", "/settings/test")
        page = await w.page("/settings")
    assert "Addresses and keys are not shown" in page.words
    assert "no-such-host" not in page.text
    assert "8443" not in page.text
    assert "answered 302" in page.words
    assert "The receiver redirects to another address, which is not followed: enter the final one." in page.words


async def test_one_test_at_a_time_for_each_notifier():
    now = 100.0
    tests = NotifierTests({"a": People(), "b": People()}, lambda: now)

    await tests.send("a")
    await tests.send("b")
    with pytest.raises(TooSoonError, match="may be sent in 30 s"):
        await tests.send("a")
    with pytest.raises(KeyError):
        await tests.send("c")
    assert not Notifier.opens_incidents


def test_the_readme_has_the_same_ways():
    typed = [
        line.removeprefix("$ ")
        for line in (ROOT / "README.md").read_text("utf-8").splitlines()
        if line.startswith("$ ")
    ]
    for way in TEXTS["ways"]:
        commands = way["commands"].splitlines()
        start = typed.index(commands[0])
        assert typed[start : start + len(commands)] == commands, way["name"]


async def test_the_page_has_the_ways(tmp_path):
    async with world(tmp_path) as w:
        page = await w.page("/settings")
    for way in TEXTS["ways"]:
        assert way["commands"] in page.text


async def test_the_judge_shows_how_far_its_scores_of_the_same_answer_differ(tmp_path):
    async with world(tmp_path, config=JUDGED) as w:
        assert "judged twice" not in (await w.page("/settings")).words
        w.judged_twice(120)
        said = "same answer, judged twice: ± 0.20 (sd 0.100, 0.082 to 0.170); 50 % flip across the threshold"
        assert f"faithfulness by j, version 1: {said} (41 to 59 %); n = 120 pairs" in (await w.page("/settings")).words
        w.judged_twice(29)
        shown = (await w.page("/settings")).words
        assert "same answer, judged twice: (sd" in shown
        assert "n = 29 pairs" in shown
