"""How long the first view takes over a store of 100,000 exchanges, and every view after it.

python benchmarks/page/first_view.py [--exchanges 100000]

The first view is asked of a process that has just begun and has read nothing; the time is the server's, from the
request's head to the response's end, over loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.page.screenshots import views
from benchmarks.page.stand import CONFIG, make
from gaugeway.runtime.tasks import spawn
from tests.support.pages import world

PROMISE_S = 0.2
AGAIN = 9


async def took(made: Any, path: str) -> float:
    begin = time.perf_counter()
    answer = await made.client.get(path, headers={"accept": "text/html"})
    seconds = time.perf_counter() - begin
    assert answer.status_code == 200, answer.text
    return seconds


async def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--exchanges", type=int, default=100_000)
    asked = asking.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        begin = time.perf_counter()
        await make(Path(scratch) / "store.db", asked.exchanges, time.time())
        print(f"{asked.exchanges:,} exchanges stored in {time.perf_counter() - begin:.0f} s")
        async with world(Path(scratch), config=CONFIG) as made:
            await made.client.get("/healthz")  # the client's connection is not part of it
            begin = time.perf_counter()
            first = await took(made, "/")
            print(f"{'first view':22} {1000 * first:7.0f} ms  (promise: under {1000 * PROMISE_S:.0f} ms)")
            for _ in range(100):  # until all hours are read
                page = await made.page("/")
                if "still loading" not in page.words:
                    break
                await asyncio.sleep(0.1)
            print(f"{'all 24 hours read':22} {time.perf_counter() - begin:7.1f} s after it, in the background")
            begin = time.perf_counter()
            looking = spawn(made.look(), name="the engine looks a day back")
            meanwhile = []
            while not looking.done():
                meanwhile.append(await took(made, "/"))
                await asyncio.sleep(0.1)
            middle, slowest = 1000 * statistics.median(meanwhile), 1000 * max(meanwhile)
            print(f"{'overview meanwhile':22} {middle:7.0f} ms  (slowest {slowest:.0f} ms of {len(meanwhile)})")
            print(f"{'engine: a day back':22} {time.perf_counter() - begin:7.1f} s")
            for name, path in {**views(made), "slices": "/?by=model"}.items():
                times = [await took(made, path) for _ in range(AGAIN)]
                print(f"{name:22} {1000 * statistics.median(times):7.0f} ms  (slowest {1000 * max(times):.0f} ms)")


if __name__ == "__main__":
    asyncio.run(main())
