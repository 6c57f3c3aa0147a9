"""Workers, reloads, logs: `gaugeway serve` as it is operated."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.support.in_thread import in_thread
from tests.support.product import Product, product
from tests.support.scripted_model import Model, serve

BODY = {"model": "m", "messages": [{"role": "user", "content": "How many moons has Mars?"}]}


def config(url, more=""):
    return f'[[upstreams]]\nbase_url = "{url}"\n{more}'


def chat(running, **more):
    return httpx.post(f"{running.base_url}/chat/completions", json=BODY | more, timeout=60)


def test_several_workers_share_the_port_and_their_counters_add_up(tmp_path):
    with serve() as url, product(tmp_path, config(url, "[gateway]\nworkers = 3\n")) as running:
        count = 120
        for _ in range(count):  # a new connection each time, so that the kernel spreads them
            assert chat(running).status_code == 200
        total = lambda: running.value(running.admin, "gaugeway_exchanges_total", outcome="captured")  # noqa: E731
        running.until(lambda: total() == count, 60, what="the workers' counters add up to what was sent")
        assert all(total() == count for _ in range(10)), "whichever worker is scraped"
        assert len(running.pids_of("gateway")) == 3
        assert not (running.data / "metrics").exists()
        assert running.value(running.admin, "gaugeway_request_duration_seconds_count") == count
        running.until(
            lambda: (
                running.value(running.monitors, "gaugeway_evaluations_total", metric="lexical_groundedness") == count
            ),
            60,
            what="all are evaluated",
        )


@pytest.mark.parametrize("how", ["SIGHUP", "file change"])
def test_a_changed_configuration_is_taken_over_without_losing_a_request(tmp_path, how):
    first, second = Model(), Model()
    with serve(first) as one, serve(second) as other, product(tmp_path, config(one)) as running:
        assert chat(running).status_code == 200
        assert len(first.log) == 1
        running.configure(config(other))
        if how == "SIGHUP":
            running.signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while not second.log:
            assert chat(running).status_code == 200
            assert time.monotonic() < deadline, running.log.read_text()
        assert running.value(running.admin, "gaugeway_config_reloads_total", result="applied") >= 1


def test_a_bad_configuration_changes_nothing_and_is_reported(tmp_path):
    model = Model()
    with serve(model) as url, product(tmp_path, config(url)) as running:
        running.configure(config(url, "[gatway]\nport = 1\n"))
        running.until(lambda: "did you mean 'gateway'" in running.log.read_text(), 60, what="the mistake is reported")
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
        running.until(lambda: httpx.get(ready).status_code == 503, 60, what="readiness says no")
        assert chat(running).status_code == 200
        assert running.wait() == 0


def _warned(monkeypatch):
    """Set what every reading of the configuration warns of; return the warning."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    return "OTEL_EXPORTER_OTLP_ENDPOINT is not used: OTEL_EXPORTER_OTLP_PROTOCOL is not http/protobuf"


@pytest.mark.parametrize(("command", "workers"), [("serve", 1), ("serve", 2), ("gateway", 1), ("monitors", 1)])
def test_a_shutdown_and_a_warning_are_logged_once_and_in_the_log_s_format(tmp_path, command, workers, monkeypatch):
    warning = _warned(monkeypatch)
    text = f"[gateway]\nworkers = {workers}\n"
    with serve() as url, product(tmp_path, config(url, text), command=command) as running:
        assert "draining" not in running.log.read_text()
        running.stop()
        lines = running.log.read_text().splitlines()
    supervised, s = command == "serve", 5 if command == "monitors" else 30
    draining = "requests in progress have" if supervised else "0 requests in progress,"
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} "
    for wanted in (
        f"WARNING gaugeway {warning}",
        f"INFO gaugeway draining: {draining} up to {s} s",
        f"INFO gaugeway drained: {'all gateways have stopped' if supervised else 'all requests completed'}",
    ):
        named = [line for line in lines if wanted.split(" ", 2)[2] in line]
        assert len(named) == 1, lines
        assert all(re.fullmatch(stamp + re.escape(wanted), line) for line in named), named


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_requests_that_outlast_the_drain_are_told_so_and_counted(tmp_path, command, streaming):
    started = threading.Event()

    async def slow(scope, receive, send):
        started.set()
        if streaming:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
        await asyncio.sleep(30)

    with in_thread(slow) as url, product(tmp_path, config(url, "[gateway]\ndrain_s = 1\n"), command=command) as running:
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(chat, running)
            assert started.wait(30)
            running.signal(signal.SIGTERM)
            assert running.wait() == 0
            if streaming:
                with pytest.raises(httpx.RemoteProtocolError):
                    asking.result()
            else:
                answer = asking.result()
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
                assert answer.headers["retry-after"] == "1"
                assert answer.headers["x-gaugeway-exchange-id"]
        assert running.log.read_text().count("drained: cut off 1 requests after 1 s") == 1


def test_a_warning_about_a_reloaded_file_is_logged_once(tmp_path, monkeypatch):
    warning = _warned(monkeypatch)
    with serve() as url, product(tmp_path, config(url)) as running:
        assert running.log.read_text().count(warning) == 1
        running.configure(config(url, "[capture]\nrate = 0.5\n"))
        running.until(lambda: "configuration reloaded" in running.log.read_text(), 60, what="it is reloaded")
        running.stop()
        assert running.log.read_text().count(warning) == 2


def test_the_counters_of_workers_survive_a_restart_and_a_kill(tmp_path):
    with serve() as url, product(tmp_path, config(url, "[gateway]\nworkers = 2\n"), command="gateway") as running:
        total = lambda: running.value(running.admin, "gaugeway_requests_total")  # noqa: E731
        for ending, sent in ((signal.SIGTERM, 40), (signal.SIGKILL, 80)):
            for _ in range(40):
                assert chat(running).status_code == 200
            running.until(lambda sent=sent: total() == sent, 60, what="all requests are counted")
            victim = running.pid_of("gateway")
            os.kill(victim, ending)
            running.until(
                lambda victim=victim: len({*running.pids_of("gateway")} - {victim}) == 2, 60, what="it is started again"
            )
            running.until(lambda sent=sent: _or_none(total) == sent, 60, what="its counts are still there")


@pytest.mark.parametrize("workers", [1, 2])
def test_requests_are_answered_and_counted_while_the_disk_is_full(tmp_path, workers):
    with small_disk(tmp_path / "data"), serve() as url:
        text = config(url, f"[gateway]\nworkers = {workers}\n")
        with product(tmp_path, text, command="gateway") as running:
            fill(running.data / "filler")
            for number in range(120):  # names take room where counters are kept in files
                answer = chat(running, model=f"{number}-" + "m" * 500)
                assert answer.status_code == 200
            running.until(
                lambda: running.value(running.admin, "gaugeway_requests_total") == 120, 60, what="all are counted"
            )
            assert len(running.pids_of("gateway") if workers > 1 else [1]) == workers
            assert "ended with code" not in running.log.read_text()


def test_no_worker_maps_a_file_of_the_data_directory_but_the_queues_index(tmp_path):
    with serve() as url, product(tmp_path, config(url, "[gateway]\nworkers = 2\n"), command="gateway") as running:
        assert chat(running).status_code == 200
        for pid in running.pids_of("gateway"):
            maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
            assert all(line.endswith("-shm") for line in maps if str(running.data) in line)


def _or_none(read):
    """What `read` returns; None while there is nobody to ask."""
    try:
        return read()
    except httpx.HTTPError:
        return None


@contextlib.contextmanager
def small_disk(path):
    """A file system of 8 MB, which only root may mount."""
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", path], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system takes root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(path):
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@contextlib.contextmanager
def stream_until(finish):
    """A model that streams until `finish` is set."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while not finish.wait(0.05):
                self.wfile.write(b"9\r\ndata: 1\n\n\r\n")
            self.wfile.write(b"c\r\ndata: last\n\n\r\n0\r\n\r\n")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            finish.set()
            server.shutdown()


def test_after_the_supervisor_is_killed_a_new_one_starts_while_the_old_gateway_finishes_a_stream(tmp_path):
    """Takes two starts of the product, some seconds each."""
    finish, begun, received = threading.Event(), threading.Event(), []
    table = "[gateway]\ndrain_s = 300\n"

    def read(url):
        with httpx.stream("POST", f"{url}/chat/completions", json=BODY, timeout=60) as response:
            for piece in response.iter_raw():
                received.append(piece)
                begun.set()

    with stream_until(finish) as url:
        first, second = (Product(tmp_path, config(url, table)) for _ in range(2))
        for name in ("port", "admin_port", "monitors_port", "base_url", "admin", "monitors"):
            setattr(second, name, getattr(first, name))
        first.start()
        reading = threading.Thread(target=read, args=(first.base_url,))
        reading.start()
        assert begun.wait(20)
        first.signal(signal.SIGKILL)
        first.wait()
        try:
            second.start()
            assert httpx.get(f"{second.admin}/metrics", timeout=60).status_code == 200
            before = len(received)
            second.until(lambda: len(received) > before, 60, what="the stream goes on")
        finally:
            finish.set()
            reading.join(20)
            second.stop()
        assert b"".join(received).endswith(b"data: last\n\n")
