"""From nothing to the first judged score: one command with the judge's model, its key in the environment, no file."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from gaugeway.demo.servers import free_ports
from gaugeway.settings import child_environment
from tests.support.processes import arguments, children
from tests.support.scripted_model import Model, serve

KEY = "sk-of-the-first-minutes"
BODY = {
    "model": "handbook-1",
    "messages": [{"role": "user", "content": "How many moons has Mars?"}],
    "gaugeway": {"contexts": ["Mars has two moons, Phobos and Deimos."]},
}
FIRST = "first exchange: app default, model handbook-1, question found, 1 passage sent with the request"


def test_one_command_gives_judged_scores(tmp_path):
    ports = free_ports(3)
    with serve(Model()) as url, (tmp_path / "log").open("wb") as log:
        options = zip(("--port", "--admin-port", "--monitors-port"), map(str, ports), strict=True)
        command = [sys.executable, "-m", "gaugeway", "serve", "--upstream", url, "--judge", "judge-1"]
        command += [word for pair in options for word in pair]
        process = subprocess.Popen(
            [*command, "--data-dir", str(tmp_path / "data")],
            cwd=tmp_path,
            env=child_environment({"OPENAI_API_KEY": KEY, "PYTHONPATH": str(Path(__file__).parents[2])}),
            stdout=log,
            stderr=log,
        )
        try:
            page = f"http://127.0.0.1:{ports[2]}"
            wait(lambda: answers(f"http://127.0.0.1:{ports[0]}/readyz") and answers(f"{page}/healthz"))
            assert all(KEY.encode() not in word for one in children(process.pid) for word in arguments(one))

            def judged():
                httpx.post(f"http://127.0.0.1:{ports[0]}/v1/chat/completions", json=BODY).raise_for_status()
                found = httpx.get(f"{page}/api/exchanges", params={"metric": "faithfulness"}).json()
                return any(one["value"] is not None for one in found)

            wait(judged)
            wait(lambda: FIRST in (tmp_path / "log").read_text())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    said = (tmp_path / "log").read_text()
    assert said.count(FIRST) == 1, said
    assert KEY not in said
    assert "no judge configured" not in said


def answers(url):
    try:
        return httpx.get(url).status_code == 200
    except httpx.HTTPError:
        return False


def wait(condition, within_s=60):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
