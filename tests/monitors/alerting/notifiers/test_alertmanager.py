"""Alerts in a real Alertmanager: they fire, stay while they are sent again, and go."""

from __future__ import annotations

import asyncio
import base64
import time
from datetime import UTC, datetime

import pytest

from monitors.alerting.notifiers import Links, NotDeliveredError
from monitors.alerting.notifiers.alertmanager import LASTS, AlertmanagerNotifier
from monitors.alerting.notifiers.message import watchdog
from tests.support.receivers import alert, alertmanager, receiver


def now(**changes):
    changes.setdefault("since", time.time() - 300.0)
    return alert(**changes)


def until(condition, within_s=60.0):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_alert_fires_in_alertmanager_and_is_gone_when_it_is_resolved(tmp_path):
    with alertmanager(tmp_path) as real:
        notifier = AlertmanagerNotifier(urls=[real.url])
        notifier.links = Links("https://quality.example")
        firing = now(cause_detail="retrieval finds less", slice="model=m1")
        asyncio.run(notifier.notify(firing))
        until(real.alerts)
        (seen,) = real.amtool()
        assert seen["labels"] == {
            "alertname": "GaugewayQualityDrop",
            "app": "shop",
            "metric": "faithfulness",
            "rule": "answers",
            "severity": "page",
            "slice": "model=m1",
        }
        assert seen["annotations"]["cause_detail"] == "retrieval finds less"
        assert "affected_slices" not in seen["annotations"], "what is empty is left out"
        assert seen["generatorURL"] == f"https://quality.example/alerts/{firing.fingerprint}"
        lasts = datetime.fromisoformat(seen["endsAt"]) - datetime.now(UTC)
        assert 170 < lasts.total_seconds() < 181
        asyncio.run(
            notifier.notify(now(state="resolved", since=firing.since, ended_at=time.time() - 1, slice="model=m1"))
        )
        until(lambda: not real.alerts())
        assert real.amtool() == []


def test_an_alert_that_is_not_sent_again_ends_by_itself_and_sending_again_keeps_it(tmp_path):
    with alertmanager(tmp_path) as real:
        notifier = AlertmanagerNotifier(url=real.url, resend_s=3.0)
        one, begin = now(), time.monotonic()
        while time.monotonic() < begin + 1.2 * LASTS * notifier.resend_s:
            asyncio.run(notifier.notify(one))
            assert len(real.alerts()) == 1
            time.sleep(1.0)
        until(lambda: not real.alerts())


def test_a_new_alert_outlives_the_end_of_the_last_one_with_the_same_labels(tmp_path):
    with alertmanager(tmp_path) as real:
        old = now(state="resolved", since=time.time() - 900, ended_at=time.time() - 60)
        asyncio.run(AlertmanagerNotifier(url=real.url).notify_all([now(since=time.time() - 30), old]))
        until(real.alerts)


def test_every_alertmanager_of_a_cluster_gets_the_alert_and_one_may_be_down(tmp_path, caplog):
    with alertmanager(tmp_path) as first, alertmanager(tmp_path, prefix="/am") as second:
        notifier = AlertmanagerNotifier(urls=[first.url, "http://127.0.0.1:1/s3cret", second.url])
        asyncio.run(notifier.notify_all([now(), now(app="bank")]))
        for real in (first, second):
            until(lambda real=real: sorted(one["labels"]["app"] for one in real.alerts()) == ["bank", "shop"])
    assert "one of 3 Alertmanagers" in caplog.text
    assert "s3cret" not in caplog.text


def test_only_when_none_takes_it_the_alert_is_not_delivered():
    notifier = AlertmanagerNotifier(urls=["http://127.0.0.1:1", "http://127.0.0.1:2"])
    with pytest.raises(NotDeliveredError, match="ConnectError"):
        asyncio.run(notifier.notify(now()))


def test_the_watchdog_lasts_until_the_beat_after_the_next_ones(tmp_path):
    with alertmanager(tmp_path) as real:
        asyncio.run(AlertmanagerNotifier(url=real.url, heartbeat_s=600.0).notify(watchdog(time.time())))
        until(real.alerts)
        (seen,) = real.alerts()
        assert seen["labels"]["alertname"] == "GaugewayWatchdog"
        assert seen["labels"]["severity"] == "none"
        lasts = datetime.fromisoformat(seen["endsAt"]) - datetime.now(UTC)
        assert 2390 < lasts.total_seconds() < 2401


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({"token": "s3cret"}, "Bearer s3cret"),
        ({"username": "u", "password": "s3cret"}, "Basic " + base64.b64encode(b"u:s3cret").decode()),
        ({}, None),
    ],
)
async def test_the_way_in_is_a_token_or_a_password(options, header):
    async with receiver() as (origin, received):
        notifier = AlertmanagerNotifier(url=f"{origin}/prefix/", **options)
        await notifier.notify(now())
        assert "s3cret" not in repr(notifier)
        (request,) = received
    assert request.line == "POST /prefix/api/v2/alerts HTTP/1.1"
    assert request.headers.get("authorization") == header


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "urls:"),
        ({"url": "ftp://x"}, "url:"),
        ({"url": "http://x", "username": "u"}, "password:"),
        ({"url": "http://x", "username": "u", "password": "p", "token": "t"}, "token:"),
    ],
)
def test_what_cannot_work_is_refused(options, field):
    with pytest.raises(ValueError, match=f"^{field}"):
        AlertmanagerNotifier(**options)
