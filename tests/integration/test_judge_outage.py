"""A judge that cannot be reached, across restarts of the monitors: one alert, until it answers or is not asked."""

import contextlib
import json
import os
import signal
import sqlite3
import time

import httpx

from gaugeway.demo.servers import free_ports
from tests.support.product import Webhook, product
from tests.support.scripted_model import Model, serve

CONFIG = """
[[upstreams]]
base_url = "{url}"

[metrics.faithfulness]
rate = 1.0

[alerts]
bucket_s = 1
watermark_s = 1
group_wait_s = 0

[[notifiers]]
kind = "webhook"
url = "{hook}"
"""
JUDGE = """
[judge]
base_url = "http://127.0.0.1:{port}/v1"
model = "judge-1"
max_retries = 0
blind_after = 2
blind_s = 1
cache = "off"
"""
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "How many moons has Mars?"}],
    "gaugeway": {"contexts": ["Mars has two moons, Phobos and Deimos."]},
}


def test_the_alert_about_the_judge_outlives_restarts_and_ends_when_it_answers(tmp_path):
    (port,) = free_ports(1)
    with serve(Model()) as url, contextlib.closing(Webhook()) as hook:
        text = CONFIG.format(url=url, hook=hook.url) + JUDGE.format(port=port)
        with product(tmp_path, text) as running:
            ask(running)
            running.until(lambda: delivery_is_saved(running), 60, what="the outage is notified")
            restarted(running)
            assert running.value(running.monitors, "gaugeway_judge_blind") == 1
            ask(running)
            time.sleep(3)
            assert told(hook) == ["firing"]
            with serve(Model(), port=port):
                ask(running, until=lambda: len(hook.bodies) > 1)
                assert running.value(running.monitors, "gaugeway_judge_blind") == 0
    alerts = [body["alerts"][0] for body in hook.bodies]
    assert [alert["status"] for alert in alerts[:2]] == ["firing", "resolved"]
    assert alerts[0]["fingerprint"] == alerts[1]["fingerprint"]
    assert "judge recovered" in alerts[1]["annotations"]["summary"]


def test_without_a_judge_the_alert_about_it_ends_and_does_not_say_that_it_answers(tmp_path):
    (port,) = free_ports(1)
    with serve(Model()) as url, contextlib.closing(Webhook()) as hook:
        text = CONFIG.format(url=url, hook=hook.url)
        with product(tmp_path, text + JUDGE.format(port=port)) as running:
            ask(running)
            running.until(lambda: hook.bodies, 60, what="the outage is notified")
            running.configure(text.replace("faithfulness", "lexical_groundedness"))
            running.signal(signal.SIGHUP)
            running.until(lambda: len(hook.bodies) > 1, 60, what="its end is notified")
    summary = hook.bodies[1]["alerts"][0]["annotations"]["summary"]
    assert told(hook) == ["firing", "resolved"]
    assert "no metric is judged any more" in summary
    assert "answers" not in summary


def ask(running, until=None):
    """Send five requests, or one after the other until something happened."""
    with httpx.Client(timeout=60) as client:
        for _ in range(5 if until is None else 300):
            if until is not None and until():
                return
            client.post(f"{running.base_url}/chat/completions", json=BODY).raise_for_status()
            time.sleep(0.1)
    assert until is None, "it did not happen"


def delivery_is_saved(running):
    """Whether the alert and its delivery to the webhook are stored: a crash before that resends it, as documented."""
    with contextlib.closing(sqlite3.connect(running.data / "store.db")) as connection:
        states = dict(connection.execute("SELECT name, value FROM states WHERE name LIKE 'alerts/%'").fetchall())
    progress = json.loads(states.get("alerts/told", b"{}")).get("webhook-0", {})
    saved = {fingerprint for fingerprint, one in progress.items() if one["told"] == "firing"}
    return any(fingerprint.encode() in states.get("alerts/cases", b"") for fingerprint in saved)


def restarted(running):
    """Kill the monitors, and wait for the next ones and their first ticks."""
    killed = running.pid_of("monitors")
    os.kill(killed, signal.SIGKILL)
    running.until(lambda: answers(running, killed), 60, what="new monitors answer")
    time.sleep(3)


def answers(running, killed):
    try:
        return running.pid_of("monitors") != killed and httpx.get(f"{running.monitors}/healthz").status_code == 200
    except (AssertionError, FileNotFoundError, httpx.HTTPError):
        return False


def told(hook):
    return [alert["status"] for body in list(hook.bodies) for alert in body["alerts"]]
