"""Makes the table of word weights that comes with the package, from the sentences in `corpus/`.

    python benchmarks/groundedness/table.py [--check]

The sentences are ours, written for this: one a line, a file a language, everyday prose about many things. A stem counts
with the largest share of sentences it has in any one language, so that a language does not dilute the others. `--check`
says whether the file in the package is what the sentences give.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from gaugeway.text.lexical.sentences import stem, words  # noqa: E402 - the tree is not installed everywhere

TABLE = ROOT / "gaugeway" / "text" / "lexical" / "idf.tsv"
SENTENCES = 1_000
HEAD = """# How many of 1,000 sentences each stem stands in, in the language where that is most; stems of two or more.
# Made by benchmarks/groundedness/table.py from sentences written for it. "=" is the number of sentences.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    made = table()
    if parser.parse_args().check:
        sys.exit("idf.tsv is not what the sentences give" if TABLE.read_text("utf-8") != made else 0)
    TABLE.write_text(made, "utf-8")
    print(f"{TABLE.relative_to(ROOT)}: {made.count(chr(10)) - 3} stems")


def table():
    shares: dict[str, float] = {}
    for path in sorted((HERE / "corpus").glob("*.txt")):
        lines = path.read_text("utf-8").splitlines()
        counts = Counter(one for line in lines for one in stems(line))
        for one, count in counts.items():
            if count > 1:
                shares[one] = max(shares.get(one, 0.0), count / len(lines))
    rows = sorted(shares.items(), key=lambda row: (-row[1], row[0]))
    return HEAD + f"=\t{SENTENCES}\n" + "".join(f"{one}\t{SENTENCES * share:.0f}\n" for one, share in rows)


def stems(line):
    """The stems of a line; numbers say nothing about other texts."""
    return {stem(word) for word in words(line) if word[0].isalpha()}


if __name__ == "__main__":
    main()
