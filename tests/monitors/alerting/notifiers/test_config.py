"""From the configuration to notifiers: each kind takes its own keys, and what is wrong is named."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import datetime

import pytest

from gaugeway import settings
from gaugeway.extensions import registered
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Config
from monitors.alerting.notifiers import PluginNotifier, Route
from monitors.alerting.notifiers.factory import LogNotifier, open_notifiers, runbook_url
from tests.support.receivers import alert, receiver

MAIL = {"sender": "a@x.example", "recipients": ["b@x.example"]}
GOOD = {
    "log": {},
    "webhook": {"url": "http://h.example/x", "secret": "s3cret"},
    "slack": {"url": "https://hooks.slack.example/x"},
    "teams": {"url": "https://workflows.example/invoke?sig=x"},
    "alertmanager": {"urls": ["http://a.example", "http://b.example"], "resend_s": 30, "token": "s3cret"},
    "pagerduty": {"routing_key": "s3cret"},
    "email": {"host": "mail.example", "sender": "a@x.example", "recipients": ["b@x.example"], "tls": "ssl"},
}


class Own:
    """A notifier of one's own."""

    def __init__(self, room, colour="red", *, url=None, timeout_s=0.0, public_url=None):
        if room == "none":
            raise ValueError("room: there is no such room")
        self.arguments = (room, colour, url, timeout_s, public_url)

    async def notify(self, alert):
        """Nobody listens."""


class Mute:
    """No notifier at all."""


def config(*notifiers, **tables):
    return settings.convert({"notifiers": [*notifiers], **tables}, Config)


def problems(*notifiers, **tables):
    with pytest.raises(ConfigError) as raised:
        open_notifiers(config(*notifiers, **tables))
    return raised.value.problems


@pytest.mark.parametrize("kind", registered("notifiers"))
def test_every_kind_is_built_with_the_keys_it_takes(kind):
    opened = open_notifiers(config({"kind": kind, **GOOD[kind]}))
    assert list(opened) == list(dict.fromkeys([f"{kind}-0", "log-0"]))
    built = opened[f"{kind}-0"]
    assert built.route == Route()
    assert "s3cret" not in repr(built)


def test_a_plug_in_needs_only_notify_and_its_other_methods_are_used():
    class Pager:
        resend_s = 30.0
        calls = ()

        async def notify(self, alert):
            self.calls += (("notify", alert),)

        async def notify_all(self, alerts):
            self.calls += (("notify_all", *alerts),)

        async def acknowledge(self, alert):
            self.calls += (("acknowledge", alert),)

    async def use(notifier):
        await notifier.notify("a")
        await notifier.notify_all(["b", "c"])
        await notifier.acknowledge("d")

    full, least = PluginNotifier(Pager()), PluginNotifier(Own("r"))
    assert (full.takes_groups, full.takes_acknowledgements, full.resend_s) == (True, True, 30.0)
    assert (least.takes_groups, least.takes_acknowledgements, least.resend_s) == (False, False, None)
    asyncio.run(use(full))
    assert full.plugin.calls == (("notify", "a"), ("notify_all", "b", "c"), ("acknowledge", "d"))


def test_without_any_alerts_go_to_the_log():
    ((name, built),) = open_notifiers(config()).items()
    assert (name, type(built)) == ("log-0", LogNotifier)


def test_alerts_go_to_the_log_beside_any_other_notifier_unless_one_of_them_is_the_log():
    hook = {"kind": "webhook", **GOOD["webhook"]}
    assert isinstance(open_notifiers(config(hook))["log-0"], LogNotifier)
    assert list(open_notifiers(config(hook, {"kind": "log", "name": "night"}))) == ["webhook-0", "night"]
    assert list(open_notifiers(config({**hook, "name": "log-0"}))) == ["log-0", "log-built-in"]


@pytest.mark.parametrize(
    ("tables", "url"),
    [
        ({}, "http://127.0.0.1:9465/runbook"),
        ({"monitors": {"host": "::1", "port": 8000}}, "http://[::1]:8000/runbook"),
        ({"monitors": {"host": "0.0.0.0", "token": "t"}}, f"http://{socket.gethostname()}:9465/runbook"),
        ({"monitors": {"public_url": "https://quality.example/g/"}}, "https://quality.example/g/runbook"),
        ({"alerts": {"runbook_url": "https://wiki.example/rag"}}, "https://wiki.example/rag"),
    ],
)
def test_the_runbook_has_an_absolute_address(tables, url):
    assert runbook_url(config(**tables)) == url


def test_route_and_name_are_for_every_kind():
    route = {"severities": ["page"], "apps": ["shop*"], "send_resolved": False, "heartbeat": True}
    built = open_notifiers(config({"kind": "log"}, {"kind": "log", "name": "night", **route}))
    assert list(built) == ["log-0", "night"]
    assert built["night"].route == Route(severities=("page",), apps=("shop*",), send_resolved=False, heartbeat=True)


async def test_what_the_whole_configuration_says_reaches_those_who_need_it():
    async with receiver() as (url, received):
        built = open_notifiers(
            config(
                {"kind": "webhook", "url": url},
                {"kind": "alertmanager", "url": url, "resend_s": 30},
                monitors={"public_url": "https://quality.example"},
                alerts={"group_by": ["rule"]},
            )
        )
        for name in ("webhook-0", "alertmanager-1"):
            await built[name].notify(alert())
    webhook, (posted,) = [one.json for one in received]
    for one in (*webhook["alerts"], posted):
        assert one["annotations"]["runbook"].startswith("https://quality.example/runbook")
        assert one["generatorURL"].startswith("https://quality.example/")
    assert webhook["groupLabels"] == {"rule": "answers"}
    lasts_s = datetime.fromisoformat(posted["endsAt"]).timestamp() - time.time()
    assert 180 < lasts_s <= 241  # of the heartbeat, which is longer than the time between two


@pytest.mark.parametrize(
    ("notifier", "said"),
    [
        ({"kind": "webhook"}, "notifiers[0].url: required"),
        (
            {"kind": "webhook", "url": "http://x", "routing_key": "s3cret"},
            "notifiers[0].routing_key: unknown option; known: url, secret, kind,",
        ),
        ({"kind": "webhook", "url": "ftp://s3cret"}, "notifiers[0].url: the url of a webhook must"),
        ({"kind": "log", "url": "http://x"}, "notifiers[0].url: unknown option"),
        ({"kind": "slack"}, "notifiers[0].url: slack needs"),
        ({"kind": "teams"}, "notifiers[0].url: required"),
        ({"kind": "teams", "url": "https://a.webhook.office.com/webhookb2/s3cret"}, "notifiers[0].url: Office 365"),
        ({"kind": "teams", "url": "https://h", "heartbeat": True}, "notifiers[0].heartbeat: not for teams"),
        ({"kind": "slack", "token": "s3cret"}, "notifiers[0].channel: "),
        ({"kind": "alertmanager"}, "notifiers[0].urls: "),
        ({"kind": "pagerduty"}, "notifiers[0].routing_key: "),
        ({"kind": "email", "sender": "a@x", "recipients": ["b@x"]}, "notifiers[0].host: "),
        ({"kind": "email", "host": "h", "sender": "a@x", "recipients": []}, "notifiers[0].recipients: "),
        ({"kind": "slak"}, "notifiers[0].kind: unknown kind 'slak'; use one of alertmanager, email,"),
        ({"kind": "log", "options": {"a": 1}}, "notifiers[0].options.a: unknown option"),
        ({"kind": "pagerduty", "routing_key": "s3cret", "heartbeat": True}, "notifiers[0].heartbeat: "),
        ({"kind": f"{__name__}:Own"}, "notifiers[0].room: "),
        ({"kind": f"{__name__}:Own", "options": {"room": "a", "size": 3}}, "notifiers[0].options.size: unknown option"),
        ({"kind": f"{__name__}:Own", "options": {"room": "a"}, "secret": "s3cret"}, "notifiers[0].secret: "),
        ({"kind": f"{__name__}:Own", "options": {"room": "none"}}, "notifiers[0].room: there is no such room"),
        ({"kind": f"{__name__}:Mute"}, "notifiers[0].kind: "),
        (
            {"kind": "alertmanager", "url": "http://h", "resend_s": 600},
            "notifiers[0].resend_s: Expected `float` <= 55",
        ),
        ({"kind": "email", "host": "h", **MAIL, "tls": "may_be"}, "notifiers[0].tls: Invalid enum value 'may_be'"),
        ({"kind": "email", "host": "h", **MAIL, "tls": "s3cret"}, "notifiers[0].tls: Invalid enum value '***'"),
        ({"kind": "log", "severity": "page"}, "notifiers[0].severity: unknown option; did you mean 'severities'?"),
        ({"kind": "slack", "url": "http://h", "chanel": "#rag"}, "notifiers[0].chanel: unknown option; did you mean"),
    ],
)
def test_what_is_wrong_is_named_with_its_field_and_without_secrets(notifier, said):
    (problem,) = problems(notifier)
    assert problem.startswith(said)
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    ("notifier", "said"),
    [
        ({"kind": "pagerduty", "routing_key": ""}, ["routing_key: missing: it is empty"]),
        ({"kind": "webhook", "url": "http://h", "secret": ""}, ["secret: missing: it is empty"]),
        ({"kind": "email", "host": "999.1.1.1", **MAIL}, ["host: looks like an IP address and is none"]),
        (
            {"kind": "webhook", "url": "ftp://h", "token": "t"},
            ["token: unknown option", "url: the url of a webhook must"],
        ),
        (
            {"kind": "alertmanager", "urls": ["http://a/api/v2/alerts", "http://b", "http://c/am/api/v2/alerts/"]},
            [f"urls[{index}]: must not end in /api/v2/alerts, which is appended" for index in (0, 2)],
        ),
        (
            {"kind": "alertmanager", "url": "ftp://a", "token": "t", "username": "u"},
            ["token: either a token or", "password: a username needs one", "url: "],
        ),
        (
            {"kind": "email", "host": "h", "sender": "a@x", "recipients": [], "username": "u", "tls": "off"},
            ["recipients: ", "password: ", "tls: "],
        ),
    ],
)
def test_all_that_is_wrong_with_one_notifier_is_said_at_once(notifier, said):
    found = problems(notifier)
    assert len(found) == len(said)
    assert all(one.startswith(f"notifiers[0].{start}") for one, start in zip(found, said, strict=True))


def test_an_empty_password_may_be_meant():
    account = {"username": "key", "password": ""}
    assert open_notifiers(config({"kind": "alertmanager", **GOOD["alertmanager"], **account, "token": None}))


def test_all_that_is_wrong_is_said_at_once():
    found = problems(
        {"kind": "webhook"}, {"kind": "pagerduty"}, {"kind": "log", "name": "x"}, {"kind": "log", "name": "x"}
    )
    assert [one.split(":")[0] for one in found] == [
        "notifiers[0].url",
        "notifiers[1].routing_key",
        "notifiers[3].name",
    ]


def test_a_notifier_of_ones_own_gets_its_options_and_the_keys_it_takes():
    own = {"kind": f"{__name__}:Own", "url": "http://x", "options": {"room": "r", "colour": "blue"}}
    built, _ = open_notifiers(config(own, monitors={"public_url": "http://q.example"})).values()
    assert built.plugin.arguments == ("r", "blue", "http://x", 10.0, "http://q.example")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"alerts": {"group_by": ["team"]}}, "alerts.group_by[0]"),
        ({"alerts": {"group_wait_s": -1}}, "alerts.group_wait_s"),
        ({"monitors": {"public_url": "quality.example"}}, "monitors.public_url"),
    ],
)
def test_values_are_checked_when_the_file_is_read(tables, said):
    with pytest.raises(ConfigError) as raised:
        settings.convert(tables, Config)
    assert raised.value.problems[0].startswith(said)


def test_the_table_itself_shows_no_secrets():
    made = config({"kind": "pagerduty", "routing_key": "s3cret"})
    assert "s3cret" not in repr(made)
