"""Starts, restarts and stops of `gaugeway serve` when something goes wrong."""

import contextlib
import os
import signal
import subprocess
import time

import httpx
import pytest

from gaugeway.demo.servers import free_ports
from gaugeway.processes import child_process
from tests.support.fleet import wait_until
from tests.support.llm_server import LLMServer, Reply
from tests.support.processes import arguments, children
from tests.support.product import product

CONFIG = '[[upstreams]]\nbase_url = "{url}"\n'
QUICK = "[gateway]\ndrain_s = 1\n"


def ask(running):
    body = {"model": "m", "messages": [{"role": "user", "content": "How many moons?"}]}
    assert httpx.post(f"{running.base_url}/chat/completions", json=body).status_code == 200


def captured(running, count):
    return lambda: running.value(running.admin, "gaugeway_exchanges_total", outcome="captured") == count


@pytest.fixture
def upstream():
    with LLMServer(Reply(content="Two.")) as server:
        yield server


@contextlib.contextmanager
def serving(upstream, directory, shell=""):
    """`gaugeway serve` in a directory, with redirections of the shell's; yields its process and the traffic port."""
    ports = free_ports(3)
    options = zip(("--port", "--admin-port", "--monitors-port"), map(str, ports), strict=True)
    command = [*child_process.command("gaugeway", "serve"), "--upstream", upstream.url]
    command += [word for pair in options for word in pair]
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$@" {shell}', "sh", *command], cwd=directory, env=child_process.environment()
    )
    try:
        yield process, ports[0]
    finally:
        process.terminate()
        process.wait(30)


def test_a_restarted_process_imports_nothing_from_the_working_directory(tmp_path, upstream):
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "__init__.py").write_text("raise SystemExit(9)")
    with serving(upstream, tmp_path) as (process, port):

        def gateways():
            return {one for one in children(process.pid) if b"gaugeway: gateway" in arguments(one)}

        wait_for(f"http://127.0.0.1:{port}/readyz")
        (before,) = gateways()
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: gateways() - {before}, 60)
        wait_for(f"http://127.0.0.1:{port}/readyz")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_it_starts_with_standard_streams_closed(closed, tmp_path, upstream):
    with serving(upstream, tmp_path, closed) as (_, port):
        wait_for(f"http://127.0.0.1:{port}/readyz")


def wait_for(url):
    transport = httpx.HTTPTransport(retries=12)  # 0.5 s, 1 s, 2 s ...
    with httpx.Client(transport=transport, timeout=30) as client:
        assert client.get(url).status_code == 200


def test_a_gateway_that_hangs_is_killed(tmp_path, upstream):
    with product(tmp_path, QUICK + CONFIG.format(url=upstream.url)) as running:
        gateway = running.pid_of("gateway")
        os.kill(gateway, signal.SIGSTOP)
        assert running.stop() in (0, -signal.SIGKILL)
    assert "killing what did not stop within" in running.log.read_text()


def test_a_sampler_process_that_hangs_at_the_end_costs_no_exchange(tmp_path, upstream):
    with product(tmp_path, CONFIG.format(url=upstream.url)) as running:
        ask(running)
        running.until(captured(running, 1), 30, what="the first is captured")
        (sampler,) = children(running.pid_of("gateway"))
        os.kill(sampler, signal.SIGSTOP)
        for _ in range(20):
            ask(running)
        running.stop()
        running.start()
        running.until(lambda: len(running.get("/api/exchanges?limit=100")) >= 21, 60, what="all are stored")
    assert "lost" not in running.log.read_text()


def test_a_process_that_ends_with_the_others_is_not_started_again(tmp_path, upstream):
    with product(tmp_path, CONFIG.format(url=upstream.url)) as running:
        monitors = running.pid_of("monitors")
        running.signal(signal.SIGTERM)
        os.kill(monitors, signal.SIGTERM)
        assert running.wait() == 0
    assert running.log.read_text().count("monitors: http") == 1


def test_an_empty_data_directory_is_refused():
    command = child_process.command("gaugeway", "check", "--data-dir", "")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--data-dir" in done.stderr
    assert "the name is empty" in done.stderr


def test_the_first_exchange_is_logged_once_however_soon_the_monitors_start_again(tmp_path, upstream):
    with product(tmp_path, CONFIG.format(url=upstream.url)) as running:

        def logged():
            return running.log.read_text().count("first exchange: ")

        ask(running)
        running.until(lambda: logged() == 1, 30, what="it is logged")
        monitors = running.pid_of("monitors")
        os.kill(monitors, signal.SIGKILL)
        running.until(lambda: running.log.read_text().count("monitors: http") == 2, 60, what="they run again")
        ask(running)
        running.until(lambda: len(running.get("/api/exchanges?limit=100")) == 2, 60, what="they work")
        assert logged() == 1


def test_a_change_that_a_signal_follows_is_applied_once(tmp_path, upstream):
    with product(tmp_path, CONFIG.format(url=upstream.url)) as running:
        running.configure(CONFIG.format(url=upstream.url) + "[capture]\nrate = 0.5\n")
        running.signal(signal.SIGHUP)
        running.until(lambda: "configuration reloaded" in running.log.read_text(), 30, what="it is applied")
        running.until(lambda: running.log.read_text().count("monitors: http") == 2, 60, what="the monitors run again")
        time.sleep(1.5)  # the file is looked at every second
        assert running.log.read_text().count("configuration reloaded") == 1


def test_a_signal_without_a_configuration_file_is_answered_in_the_log(tmp_path, upstream):
    log = tmp_path / "log"
    with serving(upstream, tmp_path, f"2>{log}") as (process, port):
        wait_for(f"http://127.0.0.1:{port}/readyz")
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while "no configuration file to reload" not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
