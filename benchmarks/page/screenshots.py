"""Pictures of the operator's page for the documentation: every view, light and dark.

python benchmarks/page/screenshots.py [--only overview,alert] [--exchanges 6000] [--look-at DIRECTORY]

With `--look-at`, nothing in docs/images changes: every view, also those without a picture there, is shot into the
directory at 390, 1024 and 1440 pixels, light and dark, to be looked at.
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
WIDER = {"overview": 1320}
"""Views that need more room."""
READ_TWICE_S = 35.0


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


def others(made: Any) -> dict[str, str]:
    """The views without a picture in the documentation."""
    worst = next(found for one in made.engine.alerts() for found in one.worst_exchanges)
    return {
        "exchange": f"/exchanges/{worst}",
        "conversations": "/conversations?list=all",
        "sources": "/sources?app=support&since=24h",
        "topics": "/topics?app=support&since=24h",
        "compare": "/compare?by=model&a=chat-1&b=chat-2&since=24h",
        "releases": "/compare?by=tag:release&a=41&b=42&since=24h",
        "periods": "/compare?by=period&app=support&a=24h..3h&b=3h..now",
        "trials": "/trials",
        "trial-new": "/trials/new",
        "prompts": "/prompts",
        "runbook": "/runbook",
        "login": "/login",
        "missing": "/alerts/nope",
    }


def shoot(tab: Tab, base: str, shown: dict[str, str]) -> None:
    tab.look(WIDTH, "light")
    tab.open(f"{base}/", settle_s=READ_TWICE_S)  # the hours are counted meanwhile, and the gateways read twice
    for name, path in shown.items():
        for scheme in ("light", "dark"):
            tab.look(WIDER.get(name, WIDTH), scheme)
            tab.open(f"{base}{path}", settle_s=3.0 if name == "alert" else 0.3)  # its answers are compared meanwhile
            size = tab.shoot(IMAGES / f"{name}-{scheme}.png", most=MOST_HIGH)
            large = " TOO LARGE" if size > MOST_BYTES else ""
            print(f"{name:10} {scheme:5} {size / 1000:6.1f} kB{large} {tab.complaints}")


async def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--only", default="")
    asking.add_argument("--exchanges", type=int, default=6000)
    asking.add_argument("--look-at", type=Path, help="shoot every view at three widths into this directory instead")
    asked = asking.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        begin = time.perf_counter()
        async with standing(Path(scratch), asked.exchanges) as made:
            print(f"ready after {time.perf_counter() - begin:.1f} s; {len(made.engine.alerts())} alerts")
            every = {**views(made), **(others(made) if asked.look_at else {})}
            shown = {name: path for name, path in every.items() if not asked.only or name in asked.only.split(",")}
            base = f"http://127.0.0.1:{made.port}"
            with chromium(Path(scratch)) as tab:
                if asked.look_at:
                    await asyncio.to_thread(shoot_all, tab, base, shown, asked.look_at)
                else:
                    await asyncio.to_thread(shoot, tab, base, shown)


def shoot_all(tab: Tab, base: str, shown: dict[str, str], directory: Path) -> None:
    """Every view at every width in both schemes; what sticks out of the window and what the console says is printed."""
    if "overview" in shown:
        tab.open(f"{base}/", settle_s=READ_TWICE_S)
    for name, path in shown.items():
        for width in (390, 1024, 1440):
            for scheme in ("light", "dark"):
                tab.look(width, scheme)
                tab.open(f"{base}{path}", settle_s=2.0 if name in ("alert", "sources", "topics") else 0.3)
                wider = tab.run("document.documentElement.scrollWidth - innerWidth")
                tab.shoot(directory / f"{name}-{width}-{scheme}.png", most=1800)
                print(f"{name:13} {width:4} {scheme:5}; sticks out {wider} px {tab.complaints}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
