"""Fits the weights of the prompt reader (`gaugeway/prompts/form/weights.json`) on generated prompts, and only on them.

    python tools/fit_prompt_reader.py [--layouts 5000] [--check]

Three linear models: which blocks are worth reading (`place`), which stretch is the question (`question`), which block
holds the passages (`rank`: softmax over a request's candidates), and decision trees that tell whether that one is right
(`accept`: gradient boosting, on layouts the others have not seen; needs scikit-learn). Then it prints, for layouts in
none of the fits, what was read, by family of frame. With --check nothing is written.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gaugeway.prompts.form import reader  # noqa: E402 - the checkout's own
from gaugeway.prompts.form.reader import Turn  # noqa: E402
from tools.prompt_layouts import Rendered, layout, ordinary, request  # noqa: E402

WEIGHTS, CONFIDENCE = (ROOT / "gaugeway/prompts/form" / name for name in ("weights.json", "trees.json"))
TREES: dict[str, Any] = {
    "n_estimators": 300,
    "max_depth": 4,
    "learning_rate": 0.07,
    "subsample": 0.6,
    "max_features": 0.2,
    "min_samples_leaf": 20,
    "random_state": 0,
}
PLACE = (
    "fenced",
    "split",
    "opener",
    "closer",
    "inside",
    "own",
    "system",
    "records",
    "block",
    "span",
    "from",
    "sure",
    "same",
    "tail",
    "first",
    "final",
)
"""First words of the features that need no passages."""
ALL, SOME = 150, 25
"""Blocks of a message that are fitted on: before it is known which are worth reading, and then."""
STEPS, RATE = 500, 0.08
PENALTY = 0.4
"""Of the square of a weight: so strong that words of the generated prompts count less than forms all prompts share."""
DRAWS = 3


class Group(NamedTuple):
    """The candidates of a request: their features, and how right each is (2 exact, 1 passages only, 0 wrong)."""

    family: str
    values: list[dict[str, float]]
    right: list[float]


def squeezed(text: str | None) -> str:
    """Return a text without differences in white space."""
    return " ".join((text or "").split())


def turns(one: Rendered) -> list[Turn]:
    """Return the messages as the reader sees them."""
    said = [(message["role"], message["content"]) for message in one.messages]
    return [Turn(role, (text,) if isinstance(text, str) else tuple(text)) for role, text in said]


def requests(seed: int, layouts: int) -> list[Rendered]:
    """Draw one request of each of so many layouts, and half as many in which nothing was retrieved."""
    draw = random.Random(seed)
    return [request(draw, layout(draw)) for _ in range(layouts)] + [ordinary(draw) for _ in range(layouts // 2)]


def blocks(every: Sequence[Rendered], most: int = reader.FINALISTS) -> list[Group]:
    """Return the candidate readings of each request."""
    groups = []
    for one in every:
        found = list(reader.candidates(turns(one), most))
        wanted = [squeezed(text) for text in one.contexts]
        right = []
        for candidate in found:
            same = bool(wanted) and [squeezed(each.text) for each in candidate.contexts] == wanted
            asked = squeezed(candidate.asked.text if candidate.asked else None) == squeezed(one.question)
            right.append(float(same) * (1.0 + asked))
        groups.append(Group(one.family, [candidate.values for candidate in found], right))
    return groups


def questions(every: Sequence[Rendered]) -> list[Group]:
    """Return the stretches that may be the question, of each request whose passages are among the candidates."""
    groups = []
    for one in every:
        wanted = [squeezed(text) for text in one.contexts]
        for seen, block, found in reader.finalists(turns(one), ALL):
            if seen.own and wanted and [squeezed(each.text) for each in found] == wanted:
                asked = reader.may_be_asked(seen, block, found)
                right = [float(squeezed(each.text) == squeezed(one.question)) for each in asked]
                groups.append(Group(one.family, [dict(each.values) for each in asked], right))
                break
    return groups


def descend(gradient: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray:
    """Minimise by Adam (Kingma and Ba, 2015) with a rate that falls."""
    weights, mean, square = np.zeros(size), np.zeros(size), np.zeros(size)
    for step in range(1, STEPS + 1):
        slope = gradient(weights)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        rate = RATE * (1.0 - 0.9 * step / STEPS)
        weights = weights - rate * (mean / (1.0 - 0.9**step)) / (np.sqrt(square / (1.0 - 0.999**step)) + 1e-8)
    return weights


def averaged(fits: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean weights of fits on several draws (bagging, Breiman 1996): each alone follows its draw too closely."""
    every = list(fits)
    names = sorted({name for fit in every for name in fit})
    return {name: round(sum(fit.get(name, 0.0) for fit in every) / len(every), 4) for name in names}


def matrix(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the features as columns of about the same spread, and what each was divided by."""
    place = {name: index for index, name in enumerate(names)}
    table = np.zeros((len(rows), len(names)))
    for number, row in enumerate(rows):
        for name, value in row.items():
            if name in place:
                table[number, place[name]] = value
    spread = np.maximum(table.std(0), 0.05)
    return table / spread, spread


def ranked(groups: Sequence[Group], keep: Callable[[str], bool], penalty: float = PENALTY) -> dict[str, float]:
    """Fit a softmax over the candidates of each group that has a right one."""
    chosen = [group for group in groups if any(group.right)]
    names = sorted({name for group in chosen for row in group.values for name in row if keep(name)})
    table, spread = matrix([row for group in chosen for row in group.values], names)
    right = np.array([value for group in chosen for value in group.right])
    owner = np.repeat(np.arange(len(chosen)), [len(group.values) for group in chosen])
    starts = np.r_[0, np.flatnonzero(np.diff(owner)) + 1]

    def gradient(weights: np.ndarray) -> np.ndarray:
        points = table @ weights
        raised = np.exp(points - np.maximum.reduceat(points, starts)[owner])
        share = raised / np.add.reduceat(raised, starts)[owner]
        wanted = share * right
        wanted = wanted / np.maximum(np.add.reduceat(wanted, starts)[owner], 1e-12)
        return np.asarray(table.T @ (share - wanted) / len(chosen) + penalty * weights)

    weights = descend(gradient, len(names))

    def unlikely(scale: float) -> float:
        points = scale * (table @ weights)
        raised = np.exp(points - np.maximum.reduceat(points, starts)[owner])
        held = np.add.reduceat(raised * (right > 0.0), starts) / np.add.reduceat(raised, starts)
        return float(-np.log(np.maximum(held, 1e-12)).mean())

    # The penalty makes shares too even: one factor for all weights makes them probabilities again (Guo et al., 2017).
    scale = min(np.geomspace(1.0, 32.0, 41), key=unlikely)
    return dict(zip(names, (scale * weights / spread).tolist(), strict=True))


def accepted(every: Sequence[Rendered], rank: Mapping[str, float]) -> dict[str, Any]:
    """Fit small decision trees that tell whether the best candidate has the text of the passages, and no other."""
    rows, right = [], []
    for each in every:
        if (found := reader.chosen(list(reader.candidates(turns(each))), rank)) is not None:
            best, choice = found
            wanted = squeezed(" ".join(each.contexts))
            rows.append(best.values | choice)
            right.append(bool(wanted) and squeezed(" ".join(one.text for one in best.contexts)) == wanted)
    names = sorted({name for row in rows for name in row})
    model = GradientBoostingClassifier(**TREES).fit(
        np.array([[row.get(name, 0.0) for name in names] for row in rows], dtype=np.float32), right
    )
    found = [branches(one[0].tree_, 0) for one in model.estimators_]
    used = sorted({feature for tree in found for feature in features(tree)})
    places = {feature: place for place, feature in enumerate(used)}
    trees = [renumbered(tree, places) for tree in found]
    share = sum(right) / len(right)
    base = round(math.log(share / (1.0 - share)), 4)
    return {"base": base, "features": [names[feature] for feature in used], "trees": trees}


def branches(tree: Any, node: int) -> Any:
    """Return a node as [feature, border, branch up to the border, branch above it]; a leaf as its value."""
    if tree.children_left[node] < 0:
        return round(float(tree.value[node][0][0]) * TREES["learning_rate"], 4)
    below, above = tree.children_left[node], tree.children_right[node]
    border = round(float(tree.threshold[node]), 4)
    return [int(tree.feature[node]), border, branches(tree, below), branches(tree, above)]


def features(tree: Any) -> set[int]:
    """Return the features that a tree asks for."""
    return {tree[0]} | features(tree[2]) | features(tree[3]) if isinstance(tree, list) else set()


def renumbered(tree: Any, places: Mapping[int, int]) -> Any:
    """Return a tree whose features are numbered without gaps."""
    if not isinstance(tree, list):
        return tree
    return [places[tree[0]], tree[1], renumbered(tree[2], places), renumbered(tree[3], places)]


def show(every: Sequence[Rendered]) -> None:
    """Print what the reader reads, by family: exact, divided otherwise, wrong (passages or question), nothing."""
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for one in every:
        reading = reader.read(turns(one))
        if reading is None:
            verdict = "nothing"
        else:
            found_texts = [squeezed(each.text) for each in reading.contexts]
            texts = [squeezed(text) for text in one.contexts]
            whole = " ".join(found_texts) == " ".join(texts) and squeezed(reading.question) == squeezed(one.question)
            verdict = "wrong" if not whole else "exact" if found_texts == texts else "divided"
        for family in (one.family, "ordinary" if not one.contexts else "all layouts"):
            found[family][verdict] += 1
    for family in sorted(found):
        count = found[family].total()
        shares = "  ".join(
            f"{name} {100 * found[family][name] / count:5.1f} %" for name in ("exact", "divided", "wrong", "nothing")
        )
        print(f"{family:22s} n {count:5d}  {shares}")  # noqa: T201 - what the script is for


def main() -> None:
    """Fit, write and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", type=int, default=5_000)
    parser.add_argument("--check", action="store_true", help="only show what the weights there are read")
    options = parser.parse_args()
    if not options.check:
        reader.use({})
        draws = [requests(seed, options.layouts) for seed in range(10, 10 + DRAWS)]
        weights = {"question": averaged(ranked(questions(drawn[: len(drawn) // 2]), lambda _: True) for drawn in draws)}
        reader.use(weights)
        weights["place"] = averaged(
            ranked(blocks(drawn[: len(drawn) // 2], ALL), lambda name: name.split()[0] in PLACE) for drawn in draws
        )
        reader.use(weights)
        weights["rank"] = averaged(ranked(blocks(drawn, SOME), lambda _: True) for drawn in draws)
        reader.use(weights)
        trees = accepted(requests(2, DRAWS * options.layouts), weights["rank"])
        WEIGHTS.write_text(json.dumps(weights, indent=0, sort_keys=True) + "\n", "utf-8")
        CONFIDENCE.write_text(json.dumps(trees, separators=(",", ":")) + "\n", "utf-8")
        reader.use(weights | {"accept": trees})
    show(requests(3, options.layouts // 2))


if __name__ == "__main__":
    main()
