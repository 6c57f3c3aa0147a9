"""How often an alert names the right cause: a confusion table over simulated changes.

    .venv/bin/python benchmarks/detection/causes.py                       # 200 runs a cell, about half an hour
    .venv/bin/python benchmarks/detection/causes.py --runs 20             # two minutes
    .venv/bin/python benchmarks/detection/causes.py --write docs/explanation/causes.md   # between the markers there

Every run draws 3,000 exchanges before and 300, 1,000 or 3,000 since, with four metrics each, and asks `explain`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np

from monitors.alerting.causes import JudgeEvidence, Observation, explain
from monitors.alerting.causes.topics import topics

SEED, BEFORE, SIZES, RUNS = 20260101, 3000, (300, 1000, 3000), 200
ONSET, DAY_S = 1e6, 86_400.0
JUDGED = {"faithfulness": 0.85, "answer_relevancy": 0.9, "context_relevancy": 0.8}
LEXICAL = {"lexical_groundedness": 0.7}
CAUSES = ("retrieval", "generation", "judge", "traffic_mix", "unknown")
QUESTIONS = 1000
BEGIN, END = "<!-- begin: benchmarks/detection/causes.py -->", "<!-- end -->"
TOPICS = {
    "delivery": "parcel courier delivery tracking late address doorstep arrive shipped depot",
    "refunds": "refund money return invoice charged twice cancel payment card bank",
    "accounts": "password login account reset email locked verify code sign username",
    "devices": "printer cable battery screen adapter charge laptop firmware bluetooth port",
    "contracts": "contract clause liability notice period termination lawyer jurisdiction breach penalty",
}
FRAMES = (
    "how do I {0} my {1} when the {2} is {3}",
    "what happens with the {0} if my {1} and {2}",
    "can you tell me why the {0} {1} {2}",
    "{0} {1} not working please help",
    "is it possible to get a {0} for the {1} with {2}",
    "I need to know about {0}, {1} and also {2}",
    "my colleague says the {0} has no {1}, is that right?",
    "since yesterday {0} and {1} look wrong, what should I do about the {2}?",
    "where can I find out whether {0} needs a {1}",
    "{0} {1} {2}",
    "hello, quick question: does the {0} include {1}?",
    "who is responsible for {0} and how long does {1} take",
    "explain the difference between {0} and {1} to me",
    "I have tried everything but {0} still will not {1}, any ideas",
    "which {0} do we use for {1} in the {2} case",
    "they told me to wait for the {0}, but now the {1} and the {2} are gone",
)
PHI = np.vectorize(NormalDist().cdf, otypes=[float])


@dataclass(frozen=True, kw_only=True)
class World:
    """What one side is like. `shift` is what a metric's mean differs by; `broken` is that for one tenant."""

    shift: dict[str, float] = field(default_factory=dict)
    metrics: tuple[str, ...] = (*JUDGED, *LEXICAL)
    hard: float = 0.2
    hard_shift: dict[str, float] = field(
        default_factory=lambda: {
            "faithfulness": -0.3,
            "answer_relevancy": -0.2,
            "context_relevancy": -0.25,
            "lexical_groundedness": -0.2,
        }
    )
    tagged: bool = False
    asked: bool = False
    broken: dict[str, float] = field(default_factory=dict)
    prompt: str = "p1"
    new_model: float = 0.0
    new_model_shift: dict[str, float] = field(default_factory=dict)
    judged_by: str = "judge-1"
    failing: float = 0.01
    found: float = 0.98


def law(uniform, mean):
    """Zeros, ones and a middle around .6, as judges score; sd .28 at .85."""
    zeros = np.where(mean >= 0.474, 0.4 * (1.0 - mean), 1.0 - mean / 0.6)
    ones = np.maximum(0.0, (mean - 0.6 * (1.0 - zeros)) / 0.4)
    middle = 0.3 + 0.6 * (uniform - zeros) / np.maximum(1e-9, 1.0 - zeros - ones)
    return np.where(uniform < zeros, 0.0, np.where(uniform > 1.0 - ones, 1.0, np.clip(middle, 0.0, 1.0)))


def side(rng, world: World, n: int, start: float, end: float):
    """`n` exchanges of one side as observations, and their questions if the world has any."""
    at = np.sort(rng.uniform(start, end, n))
    rate = rng.choice([0.5, 1.0], n)
    others = (1.0 - world.hard) / (len(TOPICS) - 1)
    topic = rng.choice(len(TOPICS), n, p=[others] * (len(TOPICS) - 1) + [world.hard])
    tenant = rng.choice(list("abcde"), n, p=[0.3, 0.2, 0.2, 0.2, 0.1])
    region = rng.choice(["north", "south", "west"], n)
    model = np.where(rng.random(n) < world.new_model, "model-2", "model-1")
    strata = [
        {"model": m, "prompt": world.prompt, "tag:tenant": t, "tag:region": r}
        for m, t, r in zip(model.tolist(), tenant.tolist(), region.tolist(), strict=True)
    ]
    if world.tagged:
        for one, index in zip(strata, topic.tolist(), strict=True):
            one["tag:team"] = list(TOPICS)[index]
    difficulty, missing = rng.standard_normal(n), rng.random(n) >= world.found
    ids = [f"{start:.0f}-{index}" for index in range(n)]
    observations = []
    for metric in world.metrics:
        mean = np.full(n, (JUDGED | LEXICAL)[metric]) + world.shift.get(metric, 0.0)
        mean = mean + np.where(topic == len(TOPICS) - 1, world.hard_shift[metric], 0.0)
        mean = mean + np.where(tenant == "c", world.broken.get(metric, 0.0), 0.0)
        mean = np.clip(mean + np.where(model == "model-2", world.new_model_shift.get(metric, 0.0), 0.0), 0.02, 0.98)
        value = law(PHI(0.5 * difficulty + np.sqrt(0.75) * rng.standard_normal(n)), mean)
        judge = world.judged_by if metric in JUDGED else None
        failed = (rng.random(n) < world.failing) & (judge is not None)
        skipped = missing & (metric != "answer_relevancy")
        for index, (score, out, none) in enumerate(zip(value.tolist(), failed.tolist(), skipped.tolist(), strict=True)):
            observations.append(
                Observation(
                    sample_id=ids[index],
                    metric=metric,
                    started_at=float(at[index]),
                    rate=float(rate[index]),
                    outcome="skipped" if none else "failed" if out else "score",
                    value=None if none or out else score,
                    reason="no_contexts" if none else "timeout" if out else "",
                    version="1",
                    judge=judge,
                    strata=strata[index],
                )
            )
    asked = {ids[index]: question(rng, topic[index]) for index in range(min(n, QUESTIONS))} if world.asked else {}
    return observations, asked


def question(rng, topic: int) -> str:
    """A question with three or four words of its topic, one in ten of another one."""
    words = [list(TOPICS.values())[topic].split(), " ".join(TOPICS.values()).split()]
    chosen = [str(rng.choice(words[rng.random() < 0.1])) for _ in range(4)]
    return str(rng.choice(FRAMES)).format(*chosen)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A change, and the answers that are right: a cause, and a slice where there is one to name."""

    before: World
    since: World
    right: tuple[str, ...]
    slice: str = ""
    metric: str = "faithfulness"
    judge: JudgeEvidence | None = None
    lowest_of: int = 1


def scenarios() -> dict[str, Scenario]:
    """What the table is made of."""
    usual, plain = World(), World(metrics=tuple(LEXICAL))
    retrieval = {
        "context_relevancy": -0.25,
        "faithfulness": -0.12,
        "answer_relevancy": -0.1,
        "lexical_groundedness": -0.1,
    }
    generation = {"faithfulness": -0.12, "answer_relevancy": -0.05, "lexical_groundedness": -0.08}
    worse_model = {"faithfulness": -0.35, "answer_relevancy": -0.1, "lexical_groundedness": -0.25}
    stricter = dict.fromkeys(JUDGED, -0.1)
    tagged, asked = World(tagged=True), World(asked=True)
    lexical = {"metric": "lexical_groundedness"}

    def changed(world: World, right: str, **what) -> Scenario:
        about = {key: what.pop(key) for key in ("slice", "metric", "judge") if key in what}
        return Scenario(before=world, since=replace(world, **what), right=tuple(right.split()), **about)

    return {
        "retrieval broken": changed(usual, "retrieval", shift=retrieval),
        "retrieval broken, answers keep to its words": changed(
            usual, "retrieval", shift=retrieval | {"lexical_groundedness": 0.0}
        ),
        "the same, with anchors that stay": changed(
            usual,
            "retrieval",
            shift=retrieval | {"lexical_groundedness": 0.0},
            judge=JudgeEvidence(drifted=False),
        ),
        "retrieval finds nothing for 15 % more": changed(usual, "retrieval", shift=generation, found=0.83),
        "prompt broken, its version unknown": changed(usual, "generation", shift=generation),
        "new prompt for all": changed(usual, "generation", shift=generation, prompt="p2", slice="prompt=p2"),
        "new, worse model for 30 %": changed(
            usual, "generation", new_model=0.3, new_model_shift=worse_model, slice="model=model-2"
        ),
        "another judge model, stricter": changed(usual, "judge", shift=stricter, judged_by="judge-2"),
        "the same judge, stricter; anchors say so": changed(
            usual, "judge", shift=stricter, judge=JudgeEvidence(drifted=True, detail="anchors")
        ),
        "the same judge, stricter; no anchors": changed(usual, "unknown judge", shift=stricter),
        "judge fails for 15 % more": changed(usual, "judge", failing=0.16),
        "hard topic 20 % to 40 %, tagged": changed(tagged, "traffic_mix", hard=0.4, slice="tag:team=contracts"),
        "hard topic 20 % to 40 %, questions only": changed(asked, "traffic_mix", hard=0.4),
        "hard topic 20 % to 40 %, nothing to tell by": changed(usual, "unknown", hard=0.4),
        "retrieval broken for one tenant (20 %)": changed(
            usual,
            "retrieval",
            broken={name: 2.5 * value for name, value in retrieval.items()},
            slice="tag:tenant=c",
        ),
        "nothing": changed(usual, "unknown"),
        "nothing, with questions": changed(asked, "unknown"),
        "nothing, the lowest of 20 windows": Scenario(before=usual, since=usual, right=("unknown",), lowest_of=20),
        "no judge: retrieval broken": changed(plain, "unknown", shift=retrieval, **lexical),
        "no judge: retrieval finds nothing for 15 % more": changed(
            plain, "retrieval", shift=generation, found=0.83, **lexical
        ),
        "no judge: new, worse model for 30 %": changed(
            plain, "generation", new_model=0.3, new_model_shift=worse_model, slice="model=model-2", **lexical
        ),
    }


def runs_of(scenario: Scenario, seed: int):
    """What is said about one drawn change at each size; the time before is the same."""
    day = side(np.random.default_rng([seed, 0]), scenario.before, BEFORE, ONSET - DAY_S, ONSET)
    return [run(scenario, day, seed, n) for n in SIZES]


def run(scenario: Scenario, day, seed: int, n: int):
    """What is said after `n` exchanges."""
    before, questions_before = day

    def drawn(window: int, world: World):
        return side(np.random.default_rng([seed, n, window]), world, n, ONSET, ONSET + n * 30.0)

    # the metric is drawn first, so its scores are the same whether the others are drawn or not
    alone = replace(scenario.since, metrics=(scenario.metric,))
    windows = range(1, scenario.lowest_of + 1)
    lowest = min(windows, key=lambda one: mean(drawn(one, alone)[0])) if scenario.lowest_of > 1 else 1
    since, questions_since = drawn(lowest, scenario.since)
    if questions_before:
        found = topics(questions_before, questions_since)
        before, since = labelled(before, found), labelled(since, found)
    return explain(scenario.metric, before, since, judge=scenario.judge)


def mean(observations) -> float:
    """A plain mean, to choose a low window by."""
    values = [one.value for one in observations if one.value is not None]
    return sum(values) / len(values)


def labelled(observations, found):
    """The observations with their topics."""
    return [
        replace(one, strata=one.strata | {"topic": found[one.sample_id]}) if one.sample_id in found else one
        for one in observations
    ]


def rows(runs: int, only: str, tell: Callable[[str], None]):
    """The lines of the table."""
    yield "| what changed | scores since | " + " | ".join(f"`{cause}`" for cause in CAUSES) + " | right | slice right |"
    yield "|---|---|" + "---|" * (len(CAUSES) + 2)
    for number, (name, scenario) in enumerate(scenarios().items()):
        if only not in name:
            continue
        begun = time.perf_counter()
        said = [runs_of(scenario, SEED + 1000 * number + index) for index in range(runs)]
        tell(f"{name}: {time.perf_counter() - begun:.0f} s; {said[0][-1]}")
        for n, answers in zip(SIZES, zip(*said, strict=True), strict=True):
            counts = Counter(one.cause for one in answers)
            shares = [f"{100.0 * counts[cause] / runs:.0f}" if counts[cause] else "" for cause in CAUSES]
            shares = [
                f"**{one}**" if one and cause in scenario.right else one
                for one, cause in zip(shares, CAUSES, strict=True)
            ]
            right = sum(one.cause in scenario.right for one in answers) / runs
            named = sum(one.slice == scenario.slice for one in answers) / runs
            told = "" if "questions" in name else f"{100.0 * named:.0f}"
            yield f"| {name} | {n:,} | {' | '.join(shares)} | {100.0 * right:.0f} | {told} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--write", type=Path, help="a page with the two markers, to put the table between")
    options = parser.parse_args()
    table = []
    for line in rows(options.runs, options.only, lambda text: print("#", text, flush=True)):
        print(line, flush=True)
        table.append(line)
    if options.write is not None:
        head, rest = options.write.read_text("utf-8").split(BEGIN)
        tail = rest.split(END)[1]
        options.write.write_text("\n".join([head + BEGIN, "", *table, "", END + tail]), "utf-8")


if __name__ == "__main__":
    main()
