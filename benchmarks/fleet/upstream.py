"""The model and the judge of the fleet's benchmarks, in a process of their own: what they say follows from the text.

    python benchmarks/fleet/upstream.py PORT [JUDGE_DELAY_S]

Half of the answers to a system prompt that lets the model roam stand in no passage; all others are good.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import uvicorn

from tests.support.scenario import Script


def main() -> None:
    script = Script()
    script.means["shop"], script.roaming = 0.95, 0.5
    script.delay_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    uvicorn.run(script, port=int(sys.argv[1]), log_level="error", access_log=False, lifespan="off", loop="uvloop")


if __name__ == "__main__":
    main()
