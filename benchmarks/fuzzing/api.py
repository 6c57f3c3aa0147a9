"""Property-based tests of the running product's HTTP API: schemathesis with all of its checks.

    python benchmarks/fuzzing/api.py --minutes 10

Starts `gaugeway serve` with a token and a store that holds something, takes the document that the admin port serves
(three quarters of the time) and that of what the gateway answers itself, and lets schemathesis make up requests, good
and bad ones, with and without the token. Ends with 1 when a check failed or a process ended.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from gaugeway.records import Context, Evaluation, Failed, Sample, Score, Skipped, Supplement  # noqa: E402 - the path comes first
from gaugeway.settings import child_environment  # noqa: E402 - same
from gaugeway.storage.engines.sqlite.store import SQLiteStore  # noqa: E402 - same
from tests.support.product import Product, product  # noqa: E402 - same

TOKEN = "only-for-this-run"
CONFIG = f"""
[[upstreams]]
base_url = "http://127.0.0.1:9"
[gateway]
admin_token = "{TOKEN}"
[monitors]
token = "{TOKEN}"
otlp_receiver = true
trusted_proxies = ["127.0.0.1"]
[metrics.lexical_groundedness]
[[alerts.rules]]
metric = "lexical_groundedness"
slo = 0.5
"""
STARTED_AT = time.time() - 600.0


async def fill(directory: Path) -> None:
    """Something for every answer to carry."""
    store = SQLiteStore(directory / "store.db")
    try:
        for number in range(30):
            one = Sample(
                id=f"x{number}",
                started_at=STARTED_AT + number,
                app="shop",
                model="a" if number % 2 else "b",
                question="Why?",
                contexts=(Context(text="Because.", id="1", score=0.5),),
                context_source="tools",
                response="Because.",
                trace_id=f"{number:032x}",
                tags={"version": "1"},
            )
            outcomes = {"m": Score(number / 30, "so", ({"n": 1},)), "s": Skipped("no_contexts"), "f": Failed("timeout")}
            made = [
                Evaluation(sample_id=one.id, metric=name, version="1", outcome=outcome, judge="j", rate=0.5)
                for name, outcome in outcomes.items()
            ]
            await store.add(one, made)
        said = Supplement(id="s", received_at=STARTED_AT, source="feedback", exchange_id="x1", rating=1.0, comment="c")
        await store.supplement([said])
    finally:
        await store.aclose()


def schemathesis(document: Path, url: str, seconds: float, *words: str) -> tuple[int, int]:
    """Run it; return its exit code and how many requests it made up."""
    command = [sys.executable, "-m", "schemathesis.cli", f"--config-file={HERE / 'schemathesis.toml'}", "run"]
    # litestar answers OPTIONS with the methods of the first handler of a path only.
    command += [str(document), f"--url={url}", "--exclude-checks=allow_header_conformance"]
    command += ["--continue-on-failure", f"--max-time={max(1, round(seconds))}", "--max-examples=1000000", "--no-color"]
    done = subprocess.run(
        [*command, *words],
        cwd=HERE,
        env=child_environment({"GAUGEWAY_FUZZ_TOKEN": TOKEN}),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 600,
    )
    counted = re.search(r"Test cases:\s+(\d+) generated", done.stdout)
    print(done.stdout[-20000:] if done.returncode else done.stdout[-900:], done.stderr[-2000:], flush=True)
    return done.returncode, int(counted[1]) if counted else 0


def attack(running: Product, directory: Path, minutes: float, *words: str) -> tuple[bool, int]:
    """Try both documents, as they are served; return whether all held, and how many requests that took."""
    held, requests = True, 0
    traffic = f"http://127.0.0.1:{running.port}"
    for admin, url, share in ((running.monitors, running.monitors, 0.75), (running.admin, traffic, 0.25)):
        told = httpx.get(f"{admin}/api/openapi.json", headers={"authorization": f"Bearer {TOKEN}"})
        told.raise_for_status()
        document = directory / "openapi.json"
        document.write_bytes(told.content)
        code, made = schemathesis(document, url, minutes * 60 * share, *words)
        held, requests = held and not code and made > 0, requests + made
    return held, requests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    options, words = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="gaugeway-fuzz-") as scratch:
        directory = Path(scratch)
        (directory / "data").mkdir()
        asyncio.run(fill(directory / "data"))
        with product(directory, CONFIG) as running:
            held, requests = attack(running, directory, options.minutes, *words)
            log = running.log.read_text()
    if "Traceback" in log:
        print(log[log.index("Traceback") - 500 :][:6000])
        held = False
    print(f"\ntried: {requests:,} requests")
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
