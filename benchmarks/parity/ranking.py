"""Gaugeway's retrieval metrics against scikit-learn and ranx on 1,000 random rankings.

python benchmarks/parity/ranking.py [--rankings 1000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import installs

from monitors.metrics import ranking

KS = (1, 3, 5, 10, 20)
SEED = 20260101
TOLERANCE = 1e-9

THEIRS = """
import json, sys, warnings
import numpy as np
warnings.filterwarnings("ignore")
from ranx import Qrels, Run, evaluate
from sklearn.metrics import average_precision_score, ndcg_score
task = json.load(sys.stdin)
found = {}
qrels = Qrels({str(i): {one: 1 for one in item["relevant"]} for i, item in enumerate(task["rankings"])})
run = Run({str(i): {one: float(len(item["retrieved"]) - rank) for rank, one in enumerate(item["retrieved"])}
           for i, item in enumerate(task["rankings"])})
names = ["mrr"] + [f"{name}@{k}" for k in task["ks"] for name in ("precision", "recall", "hit_rate", "ndcg")]
evaluate(qrels, run, names, make_comparable=True)
for name in names:
    found["ranx " + name] = [float(run.scores[name][str(i)]) for i in range(len(task["rankings"]))]
for k in task["ks"]:
    values = []
    for item in task["rankings"]:
        # What was not retrieved must stay below rank k, even where fewer than k were.
        known = list(dict.fromkeys([*item["retrieved"], *(f"nothing {i}" for i in range(k)), *item["relevant"]]))
        score = [float(len(known) - rank) for rank in range(len(known))]
        truth = [float(one in item["relevant"]) for one in known]
        values.append(float(ndcg_score([truth], [score], k=k, ignore_ties=True)))
    found[f"sklearn ndcg@{k}"] = values
values = []
for item in task["rankings"]:
    truth = [int(one in item["relevant"]) for one in item["retrieved"]]
    ranks = [float(-rank) for rank in range(len(truth))]
    values.append(float(average_precision_score(truth, ranks)) if any(truth) else 0.0)
found["sklearn average precision"] = values
print(json.dumps(found))
"""


def random_rankings(count: int) -> list[dict[str, list[str]]]:
    """Rankings of 1 to 30 of 40 ids, with 1 to 15 of them relevant."""
    generator = np.random.default_rng(SEED)
    rankings = []
    for _ in range(count):
        ids = [f"d{number}" for number in generator.permutation(40)]
        retrieved = ids[: generator.integers(1, 31)]
        relevant = list(generator.choice(ids, size=generator.integers(1, 16), replace=False))
        rankings.append({"retrieved": retrieved, "relevant": [str(one) for one in relevant]})
    return rankings


def ours(rankings: list[dict[str, list[str]]]) -> dict[str, list[float]]:
    """Our numbers under the names of the others'."""
    made = [ranking.Ranking(retrieved=tuple(one["retrieved"]), relevant=frozenset(one["relevant"])) for one in rankings]
    functions = {
        "ranx precision": ranking.precision_at,
        "ranx recall": ranking.recall_at,
        "ranx hit_rate": ranking.hit_at,
        "ranx ndcg": ranking.ndcg_at,
        "sklearn ndcg": ranking.ndcg_at,
    }
    found = {f"{name}@{k}": [function(one, k) for one in made] for name, function in functions.items() for k in KS}
    found["ranx mrr"] = [ranking.reciprocal_rank(one) for one in made]
    found["sklearn average precision"] = [ranking.average_precision(list(one.hits > 0)) for one in made]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rankings", type=int, default=1000)
    rankings = random_rankings(parser.parse_args().rankings)
    done = subprocess.run(
        [str(installs.python("ranking")), "-c", THEIRS],
        input=json.dumps({"rankings": rankings, "ks": KS}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    theirs, mine, worst = json.loads(done.stdout.strip().splitlines()[-1]), ours(rankings), 0.0
    print("| | rankings | largest difference |\n|---|---|---|")
    for name in sorted(mine):
        pairs = list(zip(mine[name], theirs[name], strict=True))
        apart = max(abs(a - b) for a, b in pairs)
        worst = max(worst, apart)
        print(f"| {name} | {len(pairs)} | {apart:.1e} |")
    print(f"\n{'agree' if worst <= TOLERANCE else 'DIFFERENT'}: {worst:.1e}")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
