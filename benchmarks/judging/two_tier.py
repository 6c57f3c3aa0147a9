"""Decisions on every answer beside an LLM judge on a sample, against the LLM judge alone, at equal spend.

    .venv/bin/python benchmarks/judging/two_tier.py [--runs 200] [--seed 42] [--write FILE]

Costs: the product's own requests for the four core metrics against scripted servers, tokens = characters / 4 of all
texts that are sent and, for the LLM, of what it writes. Statistics: answers with a number of sentences, a share of good
ones and a judge's errors that are drawn for each run (nothing in the product was fitted to them). Decisions are
probabilities of a calibrated model that is right about a sentence, at the threshold .5, as often as `accuracy` says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import random
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from prometheus_client import CollectorRegistry  # noqa: E402 - the tree may not be installed

from gaugeway.records import Context, Sample  # noqa: E402
from gaugeway.settings import shared as config  # noqa: E402
from monitors.alerting.detectors import Bucket  # noqa: E402
from monitors.alerting.detectors.e_sr import ONE_IN_30_DAYS, MixtureESR  # noqa: E402
from monitors.evaluation.models import open_judge  # noqa: E402
from monitors.exporters.instruments import Instruments  # noqa: E402
from monitors.metrics.registry import build  # noqa: E402
from monitors.statistics.confidence_sequence import closed_window  # noqa: E402
from monitors.statistics.control_variate import powered, sums  # noqa: E402
from monitors.statistics.weighted_mean import hajek  # noqa: E402
from tests.support.decision_server import DecisionServer  # noqa: E402
from tests.support.llm_server import LLMServer, Reply  # noqa: E402

FOUR = ("faithfulness", "hallucination", "answer_relevancy", "context_relevancy")
SENTENCES, SENTENCE, PASSAGES, PASSAGE, CHARACTERS = 6, 110, 8, 900, 4
DECISIONS_USD = 0.10
LLM_USD = {"small LLM": (0.40, 1.60), "large LLM": (2.00, 8.00)}
"""USD per million tokens in and out: an example of each class."""
RATE = 0.10
ACCURACIES = (0.70, 0.75, 0.80, 0.85, 0.90, 0.95)
WINDOW, BEFORE, AFTER, DROP, TOLERANCE = 2_000, 4_000, 40_000, 0.05, 0.01
A_MINUTE = 20
"""Answers of a minute, one bucket of the detector."""


def answer(number: int) -> Sample:
    """An answer about as long as those of RAG apps: six sentences, eight passages of 900 characters."""
    said = [f"Sentence {place} of answer {number} says ".ljust(SENTENCE - 1, "x") + "." for place in range(SENTENCES)]
    passages = [
        f"Passage {place} of {number}. {said[place % SENTENCES]} ".ljust(PASSAGE, "y") for place in range(PASSAGES)
    ]
    contexts = tuple(Context(text=text) for text in passages)
    return Sample(
        id=str(number), started_at=0.0, question="What do the passages say?", response=" ".join(said), contexts=contexts
    )


def written(request: Any) -> Reply:
    """What an LLM judge writes about `answer`: its claims with quotes, or ten statements of each passage."""
    if "statements" in request.body["response_format"]["json_schema"]["name"]:
        statement = {"statement": "s" * 60, "relevant": True}
        return Reply(content={"contexts": [{"index": i, "statements": [statement] * 10} for i in range(PASSAGES)]})
    claim = {"claim": "c" * 80, "verdict": "supported", "relevance": "relevant", "contexts": [0], "quote": "q" * 80}
    return Reply(content={"noncommittal": False, "claims": [claim] * SENTENCES})


async def measured(server: LLMServer, kind: str, count: int = 20) -> tuple[float, float, float]:
    """Requests, and tokens in and out, of one answer."""
    table = config.Judge(kind=kind, base_url=server.url, model="judge", cache="off")
    judging = open_judge(table, Instruments(CollectorRegistry(), version=""))
    metrics = build({}, judging.judge, None).by_name
    for number in range(count):
        await asyncio.gather(*(metrics[name].score(answer(number)) for name in FOUR))
    await judging.judge.aclose()
    read = sum(len(json.dumps(request.body, ensure_ascii=False)) for request in server.requests)
    wrote = sum(len(json.dumps(written(request).content)) for request in server.requests) if kind == "llm" else 0
    return len(server.requests) / count, read / CHARACTERS / count, wrote / CHARACTERS / count


class World:
    """Answers of one run, with the score of the LLM judge and the mean probability of the decisions."""

    def __init__(self, accuracy: float, rng: np.random.Generator) -> None:
        self._rng = rng
        self._distance = statistics.NormalDist().inv_cdf(accuracy)
        self._sentences = rng.integers(2, 10)
        self._clean = rng.uniform(0.5, 0.85)
        self._rest = rng.uniform(0.5, 0.8)
        self._wrong = rng.uniform(0.02, 0.10)

    @property
    def mean(self) -> float:
        """The LLM judge's mean before the drop."""
        good = self._clean + (1 - self._clean) * self._rest
        return good * (1 - self._wrong) + (1 - good) * self._wrong

    def draw(self, count: int, drop: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Scores of `count` answers; the LLM judge's mean is lower by `drop`: some clean answers are clean no more."""
        lost = drop / (1 - 2 * self._wrong) / (1 - self._rest)
        shape = count, int(self._sentences)
        clean = self._rng.random((count, 1)) < self._clean - lost
        good = clean | (self._rng.random(shape) < self._rest)
        verdict = good ^ (self._rng.random(shape) < self._wrong)
        seen = self._rng.normal(np.where(good, self._distance, -self._distance), 1.0)
        share = self._clean + (1 - self._clean) * self._rest
        logit = 2.0 * self._distance * seen + math.log(share / (1 - share))
        return verdict.mean(axis=1), (1.0 / (1.0 + np.exp(-logit))).mean(axis=1)


def delay(scores: np.ndarray, mean: float, rng: np.random.Generator, rate: float) -> int:
    """Answers of the traffic until the product's detector sees a drop below `mean`; all of them if it does not."""
    detector = MixtureESR(m0=min(0.999, mean - TOLERANCE), budget_per_s=ONE_IN_30_DAYS)
    for start in range(0, len(scores), A_MINUTE):
        some = scores[start : start + A_MINUTE]
        kept = tuple(some[rng.random(len(some)) < rate])
        if detector.update(Bucket(start=3.0 * start, seconds=60.0, scores=kept, weights=(1.0,) * len(kept))):
            return start + A_MINUTE
    return len(scores)


def compared(accuracy: float, rates: tuple[float, float], runs: int, seed: int) -> dict[str, Any]:
    """Widths of a closed window and detection delays: the LLM alone at the first rate, two tiers at the second."""
    widths, delays, falls, inside, correlations, false = ([], []), ([], []), [], [0, 0], [], [0, 0]
    for run in range(runs):
        rng = np.random.default_rng([seed, round(1000 * accuracy), run])
        world = World(accuracy, rng)
        y, f = world.draw(WINDOW)
        for tier, rate in enumerate(rates):
            kept = rng.random(WINDOW) < rate
            if tier == 0:
                found = hajek(y[kept], np.full(kept.sum(), rate))
            else:
                better = powered([sums(f, np.where(kept, y, np.nan), np.full(WINDOW, rate))])
                correlations.append(better.correlation)
                found = better.estimate()
            low, high = closed_window(found)
            widths[tier].append(high - low)
            inside[tier] += low <= world.mean <= high
        before = world.draw(50_000)
        means = world.mean, float(before[1].mean())
        after, calm = world.draw(AFTER, DROP), world.draw(AFTER)
        falls.append(means[1] - after[1].mean())
        for tier, rate in enumerate((rates[0], 1.0)):
            delays[tier].append(delay(after[tier], means[tier], rng, rate))
            false[tier] += delay(calm[tier], means[tier], rng, rate) < AFTER
    return {
        "correlation": np.mean(correlations),
        "width": [np.median(some) for some in widths],
        "inside": [count / runs for count in inside],
        "delay": [np.median(some) for some in delays],
        "missed": [np.mean(np.array(some) >= AFTER) for some in delays],
        "false": [count / runs for count in false],
        "fall": np.mean(falls),
    }


def compared_at(name: str, rates: tuple[float, float], usd: float, runs: int, seed: int) -> list[str]:
    """Return the section about one price of the LLM."""
    title = (
        f"## {name}: alone on {rates[0]:.1%} of the answers, or decisions on all and the LLM on {max(0, rates[1]):.1%}"
    )
    if rates[1] <= 0.0:
        return ["", title, "", "The decisions alone cost as much: there is no second tier at this spend."]
    explained = (
        f"Both cost {RATE * usd:.2f} USD per 1,000 answers. Width: of the 95 % interval of the LLM's mean over "
        f"{WINDOW:,} answers, median; covered: how often it holds the true mean. Delay: answers of the traffic until "
        f"the detector (mean before known, tolerance {TOLERANCE}, one false alarm in 30 days) sees the LLM's mean "
        f"{DROP} lower, median of {runs} runs; in brackets the share of runs in which it saw nothing in {AFTER:,} "
        "answers. False alarms: runs with one in as many answers without a change. The product uses a covariate from "
        "100 judged scores in the window on; the intervals here are computed from fewer, too."
    )
    lines = ["", title, "", explained, ""]
    heads = ("accuracy", "correlation", "width: LLM", "two tiers", "covered: LLM", "two tiers")
    heads += ("decisions fall by", "delay: LLM", "decisions", "false alarms: LLM", "decisions")
    lines += ["| " + " | ".join(heads) + " |", "|" + "---:|" * len(heads)]
    for accuracy in ACCURACIES:
        found = compared(accuracy, rates, runs, seed)
        cells = [f"{accuracy:.2f}", f"{found['correlation']:.2f}", *(f"{width:.3f}" for width in found["width"])]
        cells += [f"{share:.1%}" for share in found["inside"]] + [f"{found['fall']:.3f}"]
        cells += [f"{late:,.0f} ({missed:.0%})" for late, missed in zip(found["delay"], found["missed"], strict=True)]
        cells += [f"{share:.1%}" for share in found["false"]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def report(runs: int, seed: int) -> str:
    """Return the page."""
    with DecisionServer() as decisions, LLMServer(written) as llm:
        asked = asyncio.run(measured(decisions, "decisions")), asyncio.run(measured(llm, "llm"))
    usd = {"decisions": 1_000 * asked[0][1] * DECISIONS_USD / 1e6}
    usd |= {name: 1_000 * (asked[1][1] * price[0] + asked[1][2] * price[1]) / 1e6 for name, price in LLM_USD.items()}
    command = f"python benchmarks/judging/two_tier.py --runs {runs} --seed {seed}"
    versions = f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}"
    first, llms = asked
    row = f"| {1000 * first[0]:,.0f} | {1000 * first[1]:,.0f} | 0 | {usd['decisions']:.2f} |"
    lines = [
        "# Two tiers at equal spend",
        "",
        f"`{command}`, {versions}. Simulation and scripted servers: no real model answered.",
        "",
        "## 1,000 answers by the four core metrics",
        "",
        f"{SENTENCES} sentences of {SENTENCE} characters, {PASSAGES} passages of {PASSAGE}; tokens = characters / 4.",
        "",
        "| judge | requests | input tokens | output tokens | USD |",
        "|---|---:|---:|---:|---:|",
        f"| decisions ({DECISIONS_USD:.2f} USD a million in) {row}",
    ]
    for name, price in LLM_USD.items():
        lines.append(
            f"| {name} ({price[0]:.2f} in, {price[1]:.2f} out) | {1000 * llms[0]:,.0f} | {1000 * llms[1]:,.0f} "
            f"| {1000 * llms[2]:,.0f} | {usd[name]:.2f} |"
        )
    for name in LLM_USD:
        lines += compared_at(name, (RATE, RATE - usd["decisions"] / usd[name]), usd[name], runs, seed)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    random.seed(given.seed)
    page = report(given.runs, given.seed)
    if given.write is None:
        sys.stdout.write(page)
    else:
        given.write.write_text(page)


if __name__ == "__main__":
    main()
