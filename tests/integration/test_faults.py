"""Whatever breaks beside the upstream: traffic is unaffected, and counters tell what happened."""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

import httpx
import pytest

from tests.support.product import Product, product
from tests.support.scripted_model import Failure, Model, serve

CONFIG = """
[[upstreams]]
base_url = "{upstream}"

[judge]
base_url = "{judge}"
model = "judge-1"
api_key = "none"
timeout_s = 5
max_retries = 0

[metrics.faithfulness]
rate = 1.0
"""
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "How many moons has Mars?"}],
    "gaugeway": {"contexts": ["Mars has two moons, Phobos and Deimos."]},
}


class Traffic:
    """A steady client; keeps every status and how long each answer took."""

    def __init__(self, base_url, per_s=40):
        self.statuses = []
        self.seconds = []
        self._url = f"{base_url}/chat/completions"
        self._pause = 1 / per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with httpx.Client(timeout=60) as client:
            while not self._stop.is_set():
                begin = time.monotonic()
                self.statuses.append(client.post(self._url, json=BODY).status_code)
                self.seconds.append(time.monotonic() - begin)
                self._stop.wait(self._pause)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    @property
    def unharmed(self):
        return set(self.statuses) == {200}


@pytest.fixture
def upstream():
    model = Model()
    with serve(model) as url:
        yield url, model


def config(upstream, judge=None):
    return CONFIG.format(upstream=upstream, judge=judge or upstream)


def scored(running):
    return running.value(running.monitors, "gaugeway_evaluations_total", metric="faithfulness", outcome="score")


def rows(path, query):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def sent(running, traffic):
    return running.value(running.admin, "gaugeway_exchanges_total") == len(traffic.statuses)


def test_killed_monitors_lose_and_double_nothing(upstream, tmp_path):
    url, model = upstream
    model.delay_s = 0.02
    with product(tmp_path, config(url)) as running:
        with Traffic(running.base_url) as traffic:
            for _ in range(3):
                before = running.pid_of("monitors")
                running.until(lambda: scored(running) >= 5, 60, what="evaluations go on")
                os.kill(before, signal.SIGKILL)
                running.until(
                    lambda before=before: _pid(running) not in (None, before), 60, what="the monitors are started again"
                )
                running.until(lambda: _answers(running), 60, what="the monitors answer again")
        assert traffic.unharmed
        count = len(traffic.statuses)
        # Samples whose lease died with a process come back when the lease ends; the others are done long before.
        captured = running.value
        running.until(
            lambda: captured(running.admin, "gaugeway_exchanges_total", outcome="captured") == count,
            60,
            what="captured",
        )
    with _short_leases(tmp_path, url) as running:
        store = running.data / "store.db"
        wanted = [(count,)]
        query = "SELECT count(*) FROM evaluations WHERE metric = 'faithfulness'"
        running.until(lambda: rows(store, query) == wanted, 60, what=f"{count} evaluations are stored")
        assert rows(
            store, "SELECT count(*) FROM (SELECT DISTINCT sample_id, metric, version FROM evaluations)"
        ) == rows(store, "SELECT count(*) FROM evaluations")
        assert rows(store, "SELECT count(*) FROM samples") == wanted


@contextlib.contextmanager
def _short_leases(tmp_path, url):
    """The same data, with the leases of the dead processes made to end now."""
    queue = tmp_path / "data" / "queue.db"
    with contextlib.closing(sqlite3.connect(queue)) as connection, connection:
        connection.execute("UPDATE samples SET leased_until = 0")
    with product(tmp_path, config(url), command="monitors") as running:
        yield running


def test_a_locked_queue_delays_capture_and_nothing_else(upstream, tmp_path):
    with product(tmp_path, config(upstream[0])) as running:
        with Traffic(running.base_url) as traffic:
            running.until(lambda: scored(running) >= 5, 60, what="the first samples are scored")
            with contextlib.closing(sqlite3.connect(running.data / "queue.db", isolation_level=None)) as lock:
                lock.execute("BEGIN EXCLUSIVE")
                running.until(
                    lambda: running.value(running.admin, "gaugeway_handoff_errors_total") >= 1, 60, what="it is counted"
                )
                lock.execute("ROLLBACK")
        assert traffic.unharmed
        assert max(traffic.seconds) < 1.0
        running.until(lambda: sent(running, traffic), 60, what="every exchange has its outcome")
        assert running.value(running.admin, "gaugeway_exchanges_total", outcome="captured") == len(traffic.statuses)
        running.until(lambda: scored(running) == len(traffic.statuses), 60, what="all are scored in the end")


def test_a_judge_that_answers_500_costs_scores_and_nothing_else(upstream, tmp_path):
    url, _ = upstream
    broken = Model()
    broken.failing = Failure(status=500)
    with serve(broken) as judge, product(tmp_path, config(url, judge)) as running:
        with Traffic(running.base_url) as traffic:
            running.until(
                lambda: running.value(running.monitors, "gaugeway_judge_errors_total", error="server_error") >= 5,
                60,
                what="judge errors are counted",
            )
        assert traffic.unharmed
        value = running.value
        running.until(
            lambda: (
                value(running.monitors, "gaugeway_verdicts_total", metric="faithfulness", verdict="error")
                == len(traffic.statuses)
            ),
            60,
            what="every sample is accounted for",
        )
        assert scored(running) == 0
        assert value(running.monitors, "gaugeway_score_count", metric="faithfulness") == 0
        # After so many failures in a row the judge is not even asked.
        failed = ("server_error", "blind")
        counted = sum(value(running.monitors, "gaugeway_evaluations_total", reason=reason) for reason in failed)
        assert counted >= len(traffic.statuses)
        assert value(running.monitors, "gaugeway_judge_blind") == 1
        # what needs no judge goes on
        assert value(running.monitors, "gaugeway_score_count", metric="lexical_groundedness") > 0


def test_a_full_disk_under_the_store_delays_scores_and_nothing_else(upstream, tmp_path):
    with small_disk(tmp_path / "disk", "400k") as disk:
        on_disk = config(upstream[0]) + f'[store]\nurl = "sqlite:///{disk}/store.db"\n'
        with product(tmp_path, on_disk) as running:
            with Traffic(running.base_url) as traffic:
                # The disk fills in whichever write comes next: of scores, or of who continues whom.
                running.until(
                    lambda: _errors(running, "store") + _errors(running, "link") >= 1, 60, what="it is counted"
                )
                time.sleep(1)
            assert traffic.unharmed
            assert max(traffic.seconds) < 1.0
            running.until(lambda: sent(running, traffic), 60, what="every exchange has its outcome")
            assert running.value(running.admin, "gaugeway_exchanges_total", outcome="captured") == len(traffic.statuses)
            subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
            running.until(lambda: scored(running) == len(traffic.statuses), 60, what="with room again all are scored")
        query = "SELECT count(*) FROM evaluations WHERE metric = 'faithfulness'"
        assert rows(disk / "store.db", query) == [(len(traffic.statuses),)]


@contextlib.contextmanager
def small_disk(path, size):
    """A file system of `size`, which needs root; CI has it."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no right to mount")  # noqa: TID251
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_absent_monitors_are_not_noticed_by_traffic(upstream, tmp_path):
    with product(tmp_path, config(upstream[0]), command="gateway") as gateway:
        with Traffic(gateway.base_url) as traffic:
            time.sleep(1)
        assert traffic.unharmed
        gateway.until(lambda: sent(gateway, traffic), 60, what="every exchange has its outcome")


def test_sigterm_lets_a_stream_finish_and_hands_over_what_was_captured(tmp_path):
    with serve(Model(chunk_delay_s=0.05)) as url, product(tmp_path, config(url)) as running:
        parts = []
        body = BODY | {"stream": True}
        with httpx.stream("POST", f"{running.base_url}/chat/completions", json=body, timeout=30) as response:
            stream = response.iter_raw()
            parts.append(next(stream))
            running.signal(signal.SIGTERM)
            parts += list(stream)
        assert b"".join(parts).endswith(b"data: [DONE]\n\n")
        assert running.wait() == 0
        samples = rows(running.data / "queue.db", "SELECT count(*) FROM samples")[0][0]
        store = running.data / "store.db"
        stored = rows(store, "SELECT count(*) FROM samples")[0][0] if store.exists() else 0
        assert samples + stored >= 1


def test_a_killed_supervisor_leaves_nobody_behind(upstream, tmp_path):
    with product(tmp_path, config(upstream[0])) as running:
        children = [running.pid_of("gateway"), running.pid_of("monitors")]
        running.signal(signal.SIGKILL)
        running.wait()
        deadline = time.monotonic() + 60
        while any(_alive(child) for child in children):
            assert time.monotonic() < deadline, "a plane outlived its supervisor"
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gatway]\nport = 1", "gatway: unknown key; did you mean 'gateway'?"),
        ("[judge]\nmodel = 'x'", "judge.base_url: needed"),
        ("[metrics.faithfullness]\nrate = 0.1", "metrics.faithfullness: unknown metric"),
        ("[[alerts.rules]]\nmetric = 'faithfulness'\nslo = 0.8", "alerts.rules[0].metric"),
        ("[judge]\napi_key = '${NO_SUCH_VARIABLE}'", "judge.api_key: the environment variable NO_SUCH_VARIABLE"),
        ("[capture]\nrate = 2", "capture.rate"),
        ("[queue]\nurl = 'kafka://x'", "queue.url: unsupported URL scheme 'kafka'"),
        ("[capture]\nextractors = ['explict']", "capture.extractors[0]"),
        ("[[notifiers]]\nkind = 'webhook'", "notifiers[0].url"),
        ("[gateway]\nadmin_host = '0.0.0.0'", "gateway.admin_token"),
    ],
)
def test_a_mistake_in_the_configuration_is_named_and_ends_with_2(tmp_path, text, said):
    path = tmp_path / "gaugeway.toml"
    path.write_text('[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"\n' + text)
    done = subprocess.run(
        [sys.executable, "-m", "gaugeway", "check", "--config", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def _errors(running: Product, operation: str) -> float:
    return running.value(running.monitors, "gaugeway_worker_errors_total", operation=operation)


def _pid(running: Product) -> int | None:
    try:
        return running.pid_of("monitors")
    except (AssertionError, OSError):
        return None


def _answers(running: Product) -> bool:
    try:
        return httpx.get(f"{running.monitors}/healthz", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - not a file one reads by path elsewhere
            return stat.read().split()[2] != "Z"
    except OSError:
        return False


def test_a_port_in_use_is_named_and_ends_with_2(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for option in ("--port", "--admin-port", "--monitors-port"):
            running = Product(tmp_path, '[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"')
            others = {
                "--port": running.port,
                "--admin-port": running.admin_port,
                "--monitors-port": running.monitors_port,
            }
            ports = others | {option: taken.getsockname()[1]}
            words = [str(word) for pair in ports.items() for word in pair]
            done = subprocess.run(
                [sys.executable, "-m", "gaugeway", "serve", "--upstream", "http://127.0.0.1:9/v1", *words],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=30,
            )
            assert done.returncode == 2
            assert done.stderr.splitlines()[-1].startswith(
                f"gaugeway: cannot listen on 127.0.0.1:{taken.getsockname()[1]}: "
            )
            assert "/v1 -> " not in done.stderr, "a gateway that cannot listen does not say that it does"
            assert "monitors" not in done.stderr
