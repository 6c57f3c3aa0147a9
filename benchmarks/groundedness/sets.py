"""Writes human labels of FaithBench and BEGIN as files for auroc.py, from clones of their repositories.

    python benchmarks/groundedness/sets.py --faithbench CLONE --begin CLONE --to DIRECTORY

FaithBench (github.com/vectara/FaithBench): summaries by ten models of 80 passages; grounded is "Consistent" or "Benign"
to the strictest annotator. BEGIN (github.com/google/BEGIN-dataset): replies of dialogue models to a piece of knowledge;
grounded is "Fully attributable". Test files of BEGIN that are not in the clone are left out. A clone may be bare.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
from pathlib import Path

BEGIN = {
    "begin_dev_cmu": "cmu-dog/begin_dev_cmu.tsv",
    "begin_dev_tc": "topicalchat/begin_dev_tc.tsv",
    "begin_dev_wow": "wow/begin_dev_wow.tsv",
    "begin_test_wow": "wow/begin_test_wow.tsv",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faithbench", type=Path)
    parser.add_argument("--begin", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    if options.faithbench:
        rows = csv.DictReader(io.StringIO(content(options.faithbench, "FaithBench.csv")))
        labelled = [(row["summary"], row["source"], row["worst-label"] in ("Consistent", "Benign")) for row in rows]
        write(options.to, "faithbench", labelled)
    for name, path in BEGIN.items() if options.begin else ():
        rows = csv.DictReader(io.StringIO(content(options.begin, path)), delimiter="\t", quoting=csv.QUOTE_NONE)
        labelled = [(row["response"], row["knowledge"], row["begin_label"] == "Fully attributable") for row in rows]
        write(options.to, name, labelled)


def content(clone, path):
    return subprocess.run(
        ["git", "-C", clone, "show", f"HEAD:{path}"], check=True, capture_output=True, encoding="utf-8"
    ).stdout


def write(directory, name, labelled):
    rows = [
        {"id": f"{name}-{number}", "response": said, "retrieved_contexts": [source], "label": float(grounded)}
        for number, (said, source, grounded) in enumerate(labelled)
        if said.strip()
    ]
    (directory / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    print(f"{name}: {len(rows)} rows, {sum(row['label'] for row in rows):.0f} grounded")


if __name__ == "__main__":
    main()
