"""How well the lexical score tells responses people found consistent with their source from the others.

    python benchmarks/groundedness/auroc.py DATA [DATA ...] [--half test|dev|all] [--save FILE] [--before FILE]

A DATA file holds JSON lines with `id`, `response`, `retrieved_contexts` and `label`, the share of people who found the
response consistent. None comes with the project; `sets.py` writes those of FaithBench and BEGIN from clones. Each row
of the table is one file and one cut of the label: grounded is more than half of the people, or all of them. Columns are
areas under the ROC curve with 95 % intervals (percentile bootstrap over sources: responses to one text are drawn
together), and differences, drawn in pairs. `--save` writes the scores; `--before` compares with scores that another
version of the metric saved.

Choices were made on the half `dev`; `test` is for telling how they did. A source belongs to a half by the hash of its
text, so that no source is in both. Below the table stands the mean score of each file.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import platform
import re
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from gaugeway.records import Context, Sample, Score  # noqa: E402
from monitors.metrics.lexical_groundedness import LexicalGroundedness  # noqa: E402 - the tree may not be installed

CUTS = {"more than half": 0.5, "all": 0.999}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--half", choices=("test", "dev", "all"), default="test")
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, numpy {version('numpy')}, {platform.machine()}, ", end="")
    print(f"metric version {LexicalGroundedness.version}, half: {options.half}, {options.resamples} resamples\n")
    before = json.loads(options.before.read_text("utf-8")) if options.before else {}
    old = f"version {before['version']}" if before else None
    head = [
        "data",
        "grounded by",
        "n",
        "grounded",
        *([old] if before else []),
        "lexical",
        "word overlap",
        "fewer words",
    ]
    print(f"| {' | '.join([*head, *([f'lexical - {old}'] if before else []), 'lexical - overlap'])} |")
    print("|---" * (len(head) + 1 + bool(before)) + "|")
    means, saved = [], {"version": LexicalGroundedness.version}
    for path in options.data:
        rows = [row for row in read(path) if options.half in ("all", half(row))]
        metric = LexicalGroundedness()
        now = [score(metric, row) for row in rows]
        saved |= dict(zip([row["id"] for row in rows], now, strict=True))
        scores = {old: np.array([before[row["id"]] for row in rows])} if before else {}
        scores |= {
            "lexical": np.array(now),
            "overlap": np.array([overlap(row) for row in rows]),
            "length": np.array([-len(words(row["response"])) for row in rows], float),
        }
        cuts = CUTS if len({row["label"] for row in rows}) > 2 else {"label": 0.5}
        for people, cut in cuts.items():
            print(table_row(path.stem, people, rows, scores, cut, against=old, resamples=options.resamples))
        means.append(f"{path.stem} {scores['lexical'].mean():.4f}")
    print(f"\nMean scores: {', '.join(means)}")
    if options.save:
        options.save.write_text(json.dumps(saved), "utf-8")


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def source(row):
    return "\n".join(row["retrieved_contexts"])


def half(row):
    return ("dev", "test")[hashlib.sha256(source(row).encode()).digest()[0] % 2]


def score(metric, row):
    """The metric's value; what it skips counts as 0 here, since the others have to say something too."""
    contexts = tuple(Context(text=text) for text in row["retrieved_contexts"])
    sample = Sample(id=row["id"], started_at=0.0, response=row["response"], contexts=contexts)
    outcome = asyncio.run(metric.score(sample))
    return outcome.value if isinstance(outcome, Score) else 0.0


def words(text):
    return re.findall(r"\w+", text.casefold())


def overlap(row):
    """The share of the response's different words that stand in the source."""
    said = set(words(row["response"]))
    return len(said & set(words(source(row)))) / max(1, len(said))


def table_row(name, people, rows, scores, cut, *, against, resamples):
    good = np.array([row["label"] > cut for row in rows])
    by_source = defaultdict(list)
    for index, row in enumerate(rows):
        by_source[source(row)].append(index)
    groups = [np.array(group) for group in by_source.values()]
    random = np.random.default_rng(0)
    drawn = defaultdict(list)
    for _ in range(resamples):
        picked = np.concatenate([groups[group] for group in random.integers(len(groups), size=len(groups))])
        if 0 < good[picked].sum() < len(picked):
            for column, values in scores.items():
                drawn[column].append(auroc(values[picked], good[picked]))
    measured = {column: auroc(values, good) for column, values in scores.items()}
    cells = [interval(measured[column], drawn[column]) for column in scores]
    for other in ([against] if against else []) + ["overlap"]:
        better = np.array(drawn["lexical"]) - np.array(drawn[other])
        cells.append(interval(measured["lexical"] - measured[other], better, sign="+"))
    return f"| {name} | {people} | {len(rows)} | {good.sum()} | {' | '.join(cells)} |"


def interval(value, drawn, sign=""):
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def auroc(values, good):
    """The probability that a grounded response scores higher than another one; ties count half."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    n = good.sum()
    return (rank[good].sum() - n * (n + 1) / 2) / (n * (len(good) - n))


if __name__ == "__main__":
    main()
