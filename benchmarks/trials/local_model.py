"""A trial from end to end against a real model: llama.cpp's server answers the app, and the candidate's requests too.

    nice -n 10 .venv/bin/python benchmarks/trials/local_model.py [--requests 30] [--write]

`make models` installs the model, SmolLM2-135M. It stands behind `gaugeway serve` as the upstream of an app, and is the
candidate at another temperature, at which it loses the thread. `lexical_groundedness` decides: it needs no judge. The
app asks one question at a time; the monitors send each again, until the trial is decided or all were tried. What it
shows is that the parts work together: so small a model says nothing about others.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.judging.installs import versions
from tests.support.models import CHAT_MODEL, chat_model
from tests.support.product import Product, product

RESULT = Path(__file__).parent / "results" / "local_model.md"
SYSTEM = "Answer the question in one sentence. Use only the sources."
CANDIDATE = "params.temperature=2"
APP, TRIAL, METRIC, LONGEST, PATIENCE_S = "library", "hotter", "lexical_groundedness", 120, 600
KEY = "LOCAL_MODEL_KEY"
CONFIG = f"""
[[upstreams]]
base_url = "{{url}}"
api_key = "${{{{{KEY}}}}}"

[prices."*"]
input = 0.1
output = 0.4

[metrics.{METRIC}]
rate = 1.0
"""
PLACES = ("the north gate", "the old mill", "the river bank", "the market square", "the stone bridge", "the east tower")
THINGS = ("clock", "fountain", "statue", "well", "bakery")


def ask(running: Product, number: int) -> float:
    """Ask one question as the app does; return the seconds."""
    thing, place = THINGS[number % len(THINGS)], PLACES[number // len(THINGS) % len(PLACES)]
    sources = f"[1] The {thing} of 18{number:02d} stands behind {place}.\n[2] The {thing} was paid for by the weavers."
    user = f"Sources:\n{sources}\n\nQuestion: Where does the {thing} of 18{number:02d} stand?"
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    body = {"model": CHAT_MODEL, "messages": messages, "temperature": 0, "max_tokens": LONGEST}
    began = time.monotonic()
    url, headers = f"{running.base_url}/chat/completions", {"x-gaugeway-app": APP}
    httpx.post(url, json=body, headers=headers, timeout=120).raise_for_status()
    return time.monotonic() - began


def gaugeway(running: Product, *words: object) -> str:
    """Run a command of trials; return what it printed."""
    options = ["--config", running.data.parent / "gaugeway.toml", "--data-dir", running.data]
    line = [sys.executable, "-m", "gaugeway", "trial", *words, *options]
    return subprocess.run([*map(str, line)], capture_output=True, text=True, check=True, timeout=120).stdout


def is_over(report: dict[str, Any], requests: int) -> bool:
    """Whether a trial has ended, or every exchange of the app was tried or left out."""
    (arm,) = report["arms"]
    done = arm["tried"] + sum(report["left_out"].values()) >= requests
    return "sending" not in arm["not_answered"] and (done or report["state"] == "ended")


def run(requests: int, directory: Path) -> tuple[dict[str, Any], str, float, float]:
    """Return the trial's report as data and as text, and the median seconds of the app's calls and of the whole."""
    with product(directory, CONFIG.format(url=chat_model())) as running:
        bounds = ("--send", "redacted", "--usd", 1, "--parallel", 1, "--yes")
        began = time.monotonic()
        gaugeway(
            running,
            "start",
            TRIAL,
            "--app",
            APP,
            "--primary",
            METRIC,
            "--metrics",
            METRIC,
            "--candidate",
            CANDIDATE,
            *bounds,
        )
        time.sleep(4)  # the gateway reads every three seconds which trials run
        calls = sorted(ask(running, number) for number in range(requests))
        running.until(lambda: is_over(running.get(f"/api/trials/{TRIAL}"), requests), PATIENCE_S, what="all were tried")
        seconds = time.monotonic() - began
        return running.get(f"/api/trials/{TRIAL}"), gaugeway(running, "show", TRIAL), calls[requests // 2], seconds


def written(requests: int, found: tuple[dict[str, Any], str, float, float]) -> str:
    """Return the page of results."""
    report, shown, call_s, seconds = found
    (arm,) = report["arms"]
    return f"""# A trial against a real local model

`nice -n 10 .venv/bin/python benchmarks/trials/local_model.py --requests {requests} --write`; {platform.machine()},
{os.cpu_count()} cores, shared with other work, one of them for the model; Python {platform.python_version()};
{versions()}.

- live: {CHAT_MODEL}, temperature 0, at most {LONGEST} tokens, system prompt "{SYSTEM}"
- candidate: the same with `{CANDIDATE}`
- {requests} requests of the app, a median of {call_s:.1f} s each; {arm["tried"]} tried, {arm["answered"]} answered,
  {arm["not_answered"] or "none"} not answered, {report["left_out"] or "none"} left out;
  {seconds:.0f} s from the start of the trial to the last of them
- verdict: {report["verdict"]}

The prices are made up, so the USD are, too. What `gaugeway trial show {TRIAL}` printed:

{shown.replace(chr(10) + "#", chr(10) + "##").replace("# ", "## ", 1).rstrip()}
"""


def main() -> None:
    """Run."""
    options = argparse.ArgumentParser()
    options.add_argument("--requests", type=int, default=30)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    os.environ.setdefault(KEY, "none")  # noqa: TID251 - what the configuration of this run names
    with tempfile.TemporaryDirectory() as directory:
        text = written(given.requests, run(given.requests, Path(directory)))
    if given.write:
        RESULT.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
