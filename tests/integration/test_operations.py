"""Workers, reloads, logs: `gaugeway serve` as it is operated."""

import json
import signal
import time

import httpx
import pytest

from gateway.demo.model import Model, serve
from tests.support.product import product

BODY = {"model": "m", "messages": [{"role": "user", "content": "How many moons has Mars?"}]}


def config(url, more=""):
    return f'[[upstreams]]\nbase_url = "{url}"\n{more}'


def chat(running, **more):
    return httpx.post(f"{running.base_url}/chat/completions", json=BODY | more, timeout=20)


def test_several_workers_share_the_port_and_their_counters_add_up(tmp_path):
    with serve() as url, product(tmp_path, config(url, "[gateway]\nworkers = 3\n")) as running:
        count = 120
        for _ in range(count):  # a new connection each time, so that the kernel spreads them
            assert chat(running).status_code == 200
        total = lambda: running.value(running.admin, "gaugeway_exchanges_total", outcome="captured")  # noqa: E731
        running.until(lambda: total() == count, 20, what="the workers' counters add up to what was sent")
        assert all(total() == count for _ in range(10)), "whichever worker is scraped"
        assert len(list((running.data / "metrics").glob("counter_*.db"))) == 3
        assert running.value(running.admin, "gaugeway_request_duration_seconds_count") == count
        running.until(
            lambda: (
                running.value(running.monitors, "gaugeway_evaluations_total", metric="lexical_groundedness") == count
            ),
            30,
            what="all are evaluated",
        )


@pytest.mark.parametrize("how", ["SIGHUP", "file change"])
def test_a_changed_configuration_is_taken_over_without_losing_a_request(tmp_path, how):
    first, second = Model(), Model()
    with serve(first) as one, serve(second) as other, product(tmp_path, config(one)) as running:
        assert chat(running).status_code == 200
        assert len(first.log) == 1
        running._config.write_text(config(other))
        if how == "SIGHUP":
            running.signal(signal.SIGHUP)
        deadline = time.monotonic() + 20
        while not second.log:
            assert chat(running).status_code == 200
            assert time.monotonic() < deadline, running.log.read_text()
        assert running.value(running.admin, "gaugeway_config_reloads_total", result="applied") >= 1


def test_a_bad_configuration_changes_nothing_and_is_reported(tmp_path):
    model = Model()
    with serve(model) as url, product(tmp_path, config(url)) as running:
        running._config.write_text(config(url, "[gatway]\nport = 1\n"))
        running.until(lambda: "did you mean 'gateway'" in running.log.read_text(), 20, what="the mistake is reported")
        assert chat(running).status_code == 200
        assert running.value(running.admin, "gaugeway_config_reloads_total", result="applied") == 0


def test_logs_can_be_json_and_carry_neither_keys_nor_content(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUGEWAY_LOG_FORMAT", "json")
    with serve() as url, product(tmp_path, config(url)) as running:
        headers = {"authorization": "Bearer sk-very-secret"}
        httpx.post(f"{running.base_url}/chat/completions", json=BODY, headers=headers)
        httpx.post(f"{running.base_url}/chat/completions", content=b'{"broken secret', headers=headers)
        running.stop()
        text = running.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert "secret" not in text
    assert "moons" not in text


def test_readiness_turns_before_the_port_closes(tmp_path):
    with serve() as url, product(tmp_path, config(url, "[gateway]\ndrain_delay_s = 2\n")) as running:
        ready = f"http://127.0.0.1:{running.port}/readyz"
        assert httpx.get(ready).status_code == 200
        running.signal(signal.SIGTERM)
        running.until(lambda: httpx.get(ready).status_code == 503, 5, what="readiness says no")
        assert chat(running).status_code == 200
        assert running.wait() == 0
