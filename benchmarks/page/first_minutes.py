"""From an empty directory to the first judged score on the page: commands typed, requests sent, seconds.

python benchmarks/page/first_minutes.py [--rounds 3] [--install]

The provider and the judge are the scripted model, which answers at once, so what is measured is Gaugeway's own part.
One request is sent every 0.2 s until the welcome page shows a judged score. `--install` also times `pip install .` into
a new environment (it downloads the dependencies, or takes them from pip's cache).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from gaugeway.demo.servers import free_ports  # noqa: E402
from tests.support.scripted_model import Model, serve  # noqa: E402 - after the path is set

EVERY_S, LIMIT_S = 0.2, 180.0
TOKENS = {"GAUGEWAY_ADMIN_TOKEN": "a" * 32, "GAUGEWAY_MONITORS_TOKEN": "m" * 32}
STEPS = {
    "page answers": re.compile("data-done"),
    "first request seen": re.compile(r'id="request-state"[^>]*data-done="true"'),
    "passages found": re.compile(r'id="passages-state"[^>]*data-done="true"'),
    "first judged score": re.compile(r'id="judge-state"[^>]*data-done="true"'),
}
QUESTIONS = (
    ("How many moons has Mars?", "Mars has two small moons. The moons of Mars are called Phobos and Deimos."),
    ("What are the rings of Saturn made of?", "The rings of Saturn are made mostly of ice. They are very thin."),
    ("How long does one rotation of Venus last?", "One rotation of Venus lasts 243 days. Venus has no moons."),
)


@dataclass(frozen=True, kw_only=True)
class Way:
    """What a user types, and the processes that this starts; `token` opens the page."""

    name: str
    typed: Sequence[str]
    processes: Sequence[Sequence[str]]
    environment: Mapping[str, str]
    token: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Seconds from the start of the first process to each step, and the requests sent by the last one."""

    seconds: Mapping[str, float]
    requests: int


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "gaugeway", *words]


def option_ways(url: str, directory: Path, ports: Sequence[int]) -> list[Way]:
    """One command; a written file; and the file of deploy/compose with its two services."""
    port = ["--port", str(ports[0]), "--admin-port", str(ports[1]), "--monitors-port", str(ports[2])]
    port += ["--data-dir", str(directory / "data")]
    key = {"OPENAI_API_KEY": "sk-first-minutes", "JUDGE_API_KEY": "sk-first-minutes"}
    subprocess.run(
        command(
            "init", "--upstream", url, "--judge", "judge-1", "--no-slack", "--output", str(directory / "init.toml")
        ),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    compose = (ROOT / "deploy/compose/gaugeway.toml").read_text("utf-8")
    compose = re.sub(r"^# (\[judge\]|base_url|api_key|model)", r"\1", compose, flags=re.MULTILINE)
    compose = compose.replace("https://api.openai.com/v1", url).replace(
        "http://gateway:9464", f"http://127.0.0.1:{ports[1]}"
    )
    compose = compose.replace("drain_delay_s = 5", "drain_delay_s = 0")
    (directory / "compose.toml").write_text(compose, "utf-8")
    serve_it = ["serve", "--upstream", url, "--judge", "judge-1", *port]
    return [
        Way(
            name="pip: gaugeway serve --upstream --judge",
            typed=["pip install .", "export OPENAI_API_KEY=...", "gaugeway serve --upstream ... --judge ..."],
            processes=[command(*serve_it)],
            environment=key,
        ),
        Way(
            name="pip: gaugeway init, then serve",
            typed=[
                "pip install .",
                "export OPENAI_API_KEY=...",
                "gaugeway init --upstream ... --judge ...",
                "gaugeway serve",
            ],
            processes=[command("serve", "--config", str(directory / "init.toml"), *port)],
            environment=key,
        ),
        Way(
            name="deploy/compose: its file and two services",
            typed=["cp env.example .env", "edit .env and gaugeway.toml", "docker compose up --detach --build"],
            processes=[
                command(plane, "--config", str(directory / "compose.toml"), *port) for plane in ("gateway", "monitors")
            ],
            environment=key | TOKENS,
            token=TOKENS["GAUGEWAY_MONITORS_TOKEN"],
        ),
    ]


@contextlib.contextmanager
def started(way: Way, directory: Path) -> Iterator[None]:
    """The processes of a way, stopped afterwards."""
    environment = {**os.environ, **way.environment, "PYTHONPATH": str(ROOT)}  # noqa: TID251 - of the commands that are timed
    with (directory / "log").open("ab") as log:
        running = [
            subprocess.Popen(words, cwd=directory, env=environment, stdout=log, stderr=log) for words in way.processes
        ]
    try:
        yield
    finally:
        for one in running:
            one.send_signal(signal.SIGTERM)
        for one in running:
            one.wait(60)


def timed(way: Way, directory: Path, ports: Sequence[int]) -> Run:
    """Start, send requests, and look at the welcome page until it shows a judged score."""
    begin = time.perf_counter()
    seconds: dict[str, float] = {}
    sent = 0
    headers = {"accept": "text/html", **({"authorization": f"Bearer {way.token}"} if way.token else {})}
    with started(way, directory), httpx.Client(timeout=10, trust_env=False) as client:
        while len(seconds) < len(STEPS):
            took = time.perf_counter() - begin
            if took > LIMIT_S:
                raise SystemExit(f"{way.name}: not within {LIMIT_S:g} s\n{(directory / 'log').read_text()[-4000:]}")
            with contextlib.suppress(httpx.HTTPError):
                page = client.get(f"http://127.0.0.1:{ports[2]}/welcome", headers=headers).text
                seconds |= {
                    name: time.perf_counter() - begin
                    for name, found in STEPS.items()
                    if name not in seconds and found.search(page)
                }
            if "page answers" in seconds:
                sent += asked(client, ports[0], sent)
            time.sleep(EVERY_S)
    return Run(seconds=seconds, requests=sent)


def asked(client: httpx.Client, port: int, number: int) -> int:
    """Send one request of a RAG app, with two passages in its prompt; return 1 when it was answered."""
    question, passage = QUESTIONS[number % len(QUESTIONS)]
    _, other = QUESTIONS[(number + 1) % len(QUESTIONS)]
    prompt = f"Answer from the context.\n\nContext:\n[1] {passage}\n\n[2] {other}\n\nQuestion: {question} ({number})"
    body = {"model": "handbook-1", "messages": [{"role": "user", "content": prompt}]}
    try:
        answer = client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body)
    except httpx.HTTPError:
        return 0
    return int(answer.status_code == httpx.codes.OK)


def install_s() -> float:
    """Seconds of `pip install .` into a new environment."""
    with tempfile.TemporaryDirectory() as scratch:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "venv", scratch], check=True)
        subprocess.run([f"{scratch}/bin/pip", "install", "--quiet", str(ROOT)], check=True)
        return time.perf_counter() - begin


def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--rounds", type=int, default=3)
    asking.add_argument("--install", action="store_true")
    given = asking.parse_args()
    if given.install:
        print(f"pip install . into a new environment: {install_s():.0f} s\n")
    head()
    for place in range(3):
        row(lambda *where, place=place: option_ways(*where)[place], given.rounds)


def head() -> None:
    """Print the head of the table."""
    print(f"| way | commands | {' | '.join(f'{name}, s' for name in STEPS)} | requests |")
    print("|---|---:|" + "---:|" * (len(STEPS) + 1))


def row(made: Callable[[str, Path, Sequence[int]], Way], rounds: int) -> None:
    """Run a way so many times, each in a new directory, and print the medians."""
    runs = []
    for _ in range(rounds):
        ports = free_ports(3)
        with tempfile.TemporaryDirectory() as scratch, serve(Model()) as url:
            way = made(url, Path(scratch), ports)
            runs.append(timed(way, Path(scratch), ports))
    medians = [statistics.median(run.seconds[name] for run in runs) for name in STEPS]
    requests = statistics.median(run.requests for run in runs)
    numbers = " | ".join(f"{median:.1f}" for median in medians)
    print(f"| {way.name} | {len(way.typed)} | {numbers} | {requests:g} |", flush=True)


if __name__ == "__main__":
    main()
