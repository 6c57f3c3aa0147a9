"""Break everything beside the traffic, one thing at a time, under load, on real engines; count what it cost.

    python benchmarks/faults/run.py --engine postgres [--only kill9-gateway,disk-full] [--seed 1] [--quick] [--amount N]

Each row starts everything afresh: a scripted upstream and judge, the engine, two gateways, two monitors (one with
SQLite) and 20 requests a second that nobody retries. It ends when everything that was sent is evaluated. A row is
written to results/faults-ENGINE.md as soon as it is done; `--quick` is for looking, not for results. Some rows need
root (mounts, network namespaces); cuts go through a proxy where there is none.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.faults.matrix import FAULTS
from benchmarks.faults.play import play
from benchmarks.faults.rows import Row, saved
from benchmarks.faults.table import busy, save


def main() -> None:
    """Play the rows that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("sqlite", "postgres", "redis"), default="postgres")
    parser.add_argument("--only", default="", help="names of faults, with commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--amount", type=int, help="seconds, or how many kills, instead of each row's own")
    chosen = parser.parse_args()
    only = set(filter(None, chosen.only.split(",")))
    if unknown := only - {one.name for one in FAULTS}:
        parser.error(f"no fault {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in FAULTS)}")
    command = f"python benchmarks/faults/run.py --engine {chosen.engine} --seed {chosen.seed}"
    command += " --quick" if chosen.quick else ""
    wanted = [one for one in FAULTS if chosen.engine in one.engines and (not only or one.name in only)]
    fine = True
    for fault in wanted:
        amount = chosen.amount or (fault.quick if chosen.quick else fault.amount)
        print(f"{time.strftime('%H:%M:%S')} {fault.name} ({amount})", flush=True)
        others = busy()
        try:
            row = play(fault, chosen.engine, seed=chosen.seed, amount=amount)
        except Exception as error:  # noqa: BLE001 - the other rows are to be played all the same
            traceback.print_exc()
            row = Row(fault=fault.name, died=f"{type(error).__name__}: {str(error).splitlines()[0][:120]}")
        fine = fine and row.fine
        print(f"  {'fine' if row.fine else 'NOT FINE'} {row}", flush=True)
        order = [one.name for one in FAULTS]
        played = {"amount": amount, "quick": chosen.quick, "busy": round(others, 3)}
        save(chosen.engine, saved(row) | played, order, command)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
