"""Pictures of the operator's page for the documentation: every view, light and dark.

python benchmarks/page/screenshots.py [--only overview,alert] [--exchanges 6000]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.page.browser import Tab, chromium
from benchmarks.page.stand import standing

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 150_000
WIDTH, MOST_HIGH = 1040, 780


def views(made: Any) -> dict[str, str]:
    """Name of a picture -> path of the page."""
    firing = [one for one in made.engine.alerts() if one.state == "firing" and not one.slice]
    alert = max(firing, key=lambda one: one.metric == "faithfulness")
    return {
        "overview": "/",
        "app": "/apps/support?since=24h&metric=faithfulness",
        "alerts": "/alerts",
        "alert": f"/alerts/{alert.fingerprint}",
        "explore": "/explore?app=support&metric=faithfulness&order=lowest",
        "pipeline": "/pipeline",
        "settings": "/settings",
        "welcome": "/welcome",
        "review": "/review",
    }


def shoot(tab: Tab, base: str, shown: dict[str, str]) -> None:
    tab.look(WIDTH, "light")
    tab.open(f"{base}/", settle_s=2.0)  # the hours are counted meanwhile
    for name, path in shown.items():
        for scheme in ("light", "dark"):
            tab.look(WIDTH, scheme)
            tab.open(f"{base}{path}", settle_s=3.0 if name == "alert" else 0.3)  # its answers are compared meanwhile
            size = tab.shoot(IMAGES / f"{name}-{scheme}.png", most=MOST_HIGH)
            large = " TOO LARGE" if size > MOST_BYTES else ""
            print(f"{name:10} {scheme:5} {size / 1000:6.1f} kB{large} {tab.complaints}")


async def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--only", default="")
    asking.add_argument("--exchanges", type=int, default=6000)
    asking.add_argument("--narrow", type=Path, help="also shoot each view 400 pixels wide into this directory")
    asked = asking.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        begin = time.perf_counter()
        async with standing(Path(scratch), asked.exchanges) as made:
            print(f"ready after {time.perf_counter() - begin:.1f} s; {len(made.engine.alerts())} alerts")
            shown = {
                name: path for name, path in views(made).items() if not asked.only or name in asked.only.split(",")
            }
            base = f"http://127.0.0.1:{made.port}"
            with chromium(Path(scratch)) as tab:
                await asyncio.to_thread(shoot, tab, base, shown)
                if asked.narrow:
                    await asyncio.to_thread(narrow, tab, base, shown, asked.narrow)


def narrow(tab: Tab, base: str, shown: dict[str, str], directory: Path) -> None:
    for name, path in shown.items():
        tab.look(400, "light")
        tab.open(f"{base}{path}")
        wider = tab.run("document.documentElement.scrollWidth - innerWidth")
        tab.shoot(directory / f"{name}.png")
        print(f"{name:10} 400 px wide; sticks out {wider} px")


if __name__ == "__main__":
    asyncio.run(main())
