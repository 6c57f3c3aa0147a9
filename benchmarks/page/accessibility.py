"""Every view of the operator's page through axe-core, light and dark, wide and narrow; fails on what is serious.

python benchmarks/page/accessibility.py [--axe PATH/axe.min.js]

Without `--axe` the package axe-core comes from npm into a scratch directory; nothing of it is shipped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.page.browser import Tab, chromium
from benchmarks.page.exchanges import views as exchange_views
from benchmarks.page.screenshots import views
from benchmarks.page.stand import standing
from gaugeway.settings.shared import Config, Monitors
from tests.support.pages import world

AXE = "axe-core@4.14.1"
GRAVE = ("serious", "critical")
LOOKS = ((1080, "light"), (1080, "dark"), (400, "light"))
RUN = """
axe.run(document, {resultTypes: ["violations", "incomplete"]}).then(found => JSON.stringify({
  checked: found.passes.length,
  violations: found.violations.map(one => [one.id, one.impact, one.nodes.map(node => node.target.join(" "))]),
  unsure: found.incomplete.map(one => [one.id, one.impact, one.nodes.length]),
}))
"""


def fetched(directory: Path) -> Path:
    """Have npm bring axe-core."""
    command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(directory), AXE]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return directory / "node_modules" / "axe-core" / "axe.min.js"


def check(tab: Tab, axe: str, base: str, shown: dict[str, str]) -> int:
    """Look at every view; how many serious or critical violations there are."""
    grave = 0
    for name, path in shown.items():
        for width, scheme in LOOKS:
            tab.look(width, scheme)
            tab.open(f"{base}{path}")
            tab.run(f"{axe}; null")
            found: dict[str, Any] = json.loads(tab.run(RUN))
            bad = [one for one in found["violations"] if one[1] in GRAVE]
            grave += len(bad)
            unsure = ", ".join(f"{rule} ({nodes})" for rule, _, nodes in found["unsure"]) or "nothing"
            print(
                f"{name:12} {width:4} {scheme:5} {found['checked']:2} rules hold, {len(bad)} broken; unsure: {unsure}"
            )
            for rule, impact, where in found["violations"]:
                print(f"    {impact}: {rule}: {'; '.join(where[:5])}")
    return grave


async def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--axe", type=Path)
    asking.add_argument("--exchanges", type=int, default=3000)
    asking.add_argument("--only", default="")
    asked = asking.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        axe = (asked.axe or fetched(scratch)).read_text("utf-8")
        (scratch / "empty").mkdir()
        wanted = asked.only.split(",") if asked.only else None
        with chromium(scratch) as tab:
            async with standing(scratch, asked.exchanges) as made:
                found = {**views(made), "slices": "/?by=model", "runbook": "/runbook", **await exchange_views(made)}
                found["explore: all"], found["a problem"] = "/explore", "/explore?least=2"
                found["explore: groups"] = "/explore?metric=faithfulness&group=source&most=0.9"
                found["exchange of a list"] = f"{found['exchange']}?list=metric%3Dfaithfulness"
                found["trials"], found["trial form"] = "/trials", "/trials/new"
                found["not found"] = "/exchanges/nothing"
                shown = {name: path for name, path in found.items() if wanted is None or name in wanted}
                grave = await asyncio.to_thread(check, tab, axe, f"http://127.0.0.1:{made.port}", shown)
            guarded = Config(monitors=Monitors(token="a-token-of-this-run"))
            async with world(scratch / "empty", config=guarded, token="a-token-of-this-run") as made:
                base = f"http://127.0.0.1:{made.port}"
                grave += await asyncio.to_thread(check, tab, axe, base, {"login": "/login"})
    print(f"{grave} serious or critical violations")
    sys.exit(1 if grave else 0)


if __name__ == "__main__":
    asyncio.run(main())
