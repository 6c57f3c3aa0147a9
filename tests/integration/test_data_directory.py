"""The data directory: one product to a directory, and what happens when it cannot be written or a file is damaged."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from gaugeway.demo.servers import free_ports
from gaugeway.processes.data_directory import DirectoryInUseError, hold
from tests.support.llm_server import LLMServer, Reply
from tests.support.product import Product

CONFIG = """
[[upstreams]]
base_url = "{upstream}"
"""
BODY = {"model": "m", "messages": [{"role": "user", "content": "How many moons has Mars?"}]}


@pytest.fixture
def upstream():
    with LLMServer(Reply(content="Two.")) as server:
        yield CONFIG.format(upstream=server.url)


def started(directory: Path, config: str, command: str, data: Path) -> Product:
    directory.mkdir()
    running = Product(directory, config, command=command)
    running.data = data
    running.start()
    return running


def refusal(config: str, command: str, data: Path, directory: Path) -> str:
    """What a command says that is started where another one works, and ends with bad input."""
    (directory / "second.toml").write_text(config, "utf-8")
    ports = zip(("--port", "--admin-port", "--monitors-port"), map(str, free_ports(3)), strict=True)
    words = ["--config", directory / "second.toml", "--data-dir", data, *(word for pair in ports for word in pair)]
    done = subprocess.run(
        [sys.executable, "-m", "gaugeway", command, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_a_second_serve_is_refused_and_names_the_directory_and_the_process_that_holds_it(tmp_path, upstream):
    data = tmp_path / "data"
    first = started(tmp_path / "first", upstream, "serve", data)
    try:
        for command in ("serve", "gateway"):
            said = refusal(upstream, command, data, tmp_path)
            assert f"{data} is in use by another gateway process (pid {first.pid})" in said
        said = refusal(upstream, "monitors", data, tmp_path)
        assert f"{data} is in use by another monitors process (pid {first.pid_of('monitors')})" in said
        export = [sys.executable, "-m", "gaugeway", "export", "--data-dir", data, tmp_path / "out.jsonl"]
        done = subprocess.run(export, capture_output=True, text=True, check=False, timeout=60)
        assert "in use" not in done.stderr
    finally:
        first.stop()
    assert started(tmp_path / "again", upstream, "serve", data).stop() == 0


def test_gateway_and_monitors_as_two_commands_share_a_directory(tmp_path, upstream):
    gateway = started(tmp_path / "gateway", upstream, "gateway", tmp_path / "data")
    try:
        monitors = started(tmp_path / "monitors", upstream, "monitors", tmp_path / "data")
        assert monitors.stop() == 0
    finally:
        assert gateway.stop() == 0


def _state(pid):
    """The state of a process as the kernel shows it; None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def test_a_supervisor_that_was_killed_leaves_no_lock_and_its_successor_waits_for_its_monitors(tmp_path, upstream):
    data = tmp_path / "data"
    first = started(tmp_path / "first", upstream, "serve", data)
    orphan = first.pid_of("monitors")
    first.signal(signal.SIGKILL)
    first.wait()
    second = started(tmp_path / "second", upstream, "serve", data)
    try:
        # The successor is ready, so it has the lock: the orphan has let go of it and is gone, or just about to be.
        assert (data / "monitors.lock").read_text() == str(second.pid_of("monitors"))
        second.until(lambda: _state(orphan) in (None, "Z"), 60, what="the orphan ends")
    finally:
        assert second.stop() == 0


def test_a_lock_is_free_again_when_its_holder_ends_and_a_wait_is_bounded(tmp_path):
    with hold(tmp_path / "data", "monitors"):
        assert (tmp_path / "data" / "monitors.lock").read_text() == str(os.getpid())
        with pytest.raises(DirectoryInUseError, match=f"pid {os.getpid()}"), hold(tmp_path / "data", "monitors", 0.2):
            pass
        with hold(tmp_path / "data", "gateway"):
            pass
    with hold(tmp_path / "data", "monitors"):
        pass


def chat(running: Product) -> int:
    return httpx.post(f"{running.base_url}/chat/completions", json=BODY, timeout=30).status_code


@pytest.mark.parametrize("command", ["gateway", "serve"])
def test_traffic_goes_on_where_the_data_directory_cannot_be_written(tmp_path, upstream, command):
    (tmp_path / "file").touch()  # even root makes no directory in it
    (tmp_path / "run").mkdir()
    running = Product(tmp_path / "run", upstream, command=command)
    running.data = tmp_path / "file" / "data"
    running.start(planes=("gateway",))
    try:
        assert [chat(running) for _ in range(5)] == [200] * 5
        running.until(lambda: "the queue rejected" in running.log.read_text(), 60, what="it says what is not kept")
    finally:
        assert running.stop() == 0
    said = running.log.read_text()
    assert f"cannot write to the data directory {tmp_path}/file/data" in said
    assert "lost 5 captured exchanges: the queue did not accept them before shutdown" in said


def test_a_damaged_queue_is_named_with_what_to_do_and_traffic_goes_on(tmp_path, upstream):
    data = tmp_path / "data"
    data.mkdir()
    (data / "queue.db").write_bytes(b"not a database " * 1000)
    running = started(tmp_path / "run", upstream, "gateway", data)
    try:
        assert [chat(running) for _ in range(3)] == [200] * 3
        running.until(lambda: "is damaged" in running.log.read_text(), 60, what="it says which file is damaged")
        said = running.log.read_text()
        assert f"{data}/queue.db: file is not a database; the queue is damaged: move it away" in said
        (data / "queue.db").rename(data / "damaged.db")  # as it says
        captured = {"outcome": "captured"}
        running.until(
            lambda: running.value(running.admin, "gaugeway_exchanges_total", **captured) == 3,
            60,
            what="all are captured",
        )
    finally:
        running.stop()
    with sqlite3.connect(data / "queue.db") as connection:
        assert connection.execute("SELECT count(*) FROM samples").fetchone() == (3,)
