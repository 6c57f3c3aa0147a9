"""The simulated traffic of `causes.py`: exchanges with scores, questions and passages, as the product sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from msgspec.structs import replace

from monitors.alerting.causes import Observation, Passages

ONSET, DAY_S = 1e6, 86_400.0
MEANS = {"faithfulness": 0.85, "answer_relevancy": 0.9, "context_relevancy": 0.8, "lexical_groundedness": 0.7}
RANKS = "contexts_per_answer", "retriever_score"
JUDGED, LEXICAL = tuple(MEANS)[:3], tuple(MEANS)[3:]
QUESTIONS = 1000
LOOKED_AT = 200
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
    """What one side is like. `shift` is what a metric's mean differs by; `broken` is that for one tenant.

    Of each topic `asks` questions recur. The `document` comes with a share of the exchanges: `comes_with` "any" of
    them, those of "new" questions, or all exchanges of some of the "questions" that recur. A judge finds that it
    `contradicts` in a share of its exchanges. The signals of the retrieval differ by `signals`: mean ranks around .5.
    """

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
    law: str = "judge"
    means: dict[str, float] = field(default_factory=lambda: dict(MEANS))
    recurring: float = 0.0
    asks: int = 8
    document: float = 0.0
    comes_with: str = "any"
    contradicts: float = 0.6
    document_shift: dict[str, float] = field(default_factory=dict)
    contradicted: float = 0.05
    texts: bool = False
    signals: dict[str, float] = field(default_factory=dict)


def law(uniform, mean):
    """Zeros, ones and a middle around .6, as judges score; sd .28 at .85."""
    zeros = np.where(mean >= 0.474, 0.4 * (1.0 - mean), 1.0 - mean / 0.6)
    ones = np.maximum(0.0, (mean - 0.6 * (1.0 - zeros)) / 0.4)
    middle = 0.3 + 0.6 * (uniform - zeros) / np.maximum(1e-9, 1.0 - zeros - ones)
    return np.where(uniform < zeros, 0.0, np.where(uniform > 1.0 - ones, 1.0, np.clip(middle, 0.0, 1.0)))


def drawn(world: World, uniform, mean):
    """Scores of a law: as judges score, all or nothing, or spread evenly around the mean (sd about .2)."""
    if world.law == "binary":
        return np.where(uniform > 1.0 - mean, 1.0, 0.0)
    if world.law == "spread":
        width = np.minimum(0.35, np.minimum(mean, 1.0 - mean))
        return mean + width * (2.0 * uniform - 1.0)
    return law(uniform, mean)


def side(rng, world: World, n: int, start: float, end: float):
    """`n` exchanges of one side as observations, their questions, and passages, if the world has any."""
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
    asked = [""] * n
    if world.recurring:
        asked = [
            f"{topic[one]} {rng.integers(world.asks)}" if rng.random() < world.recurring else f"{one} {start}"
            for one in range(n)
        ]
    wrong = rng.random(n) < world.document
    if world.comes_with == "new":
        wrong &= np.array([one.endswith(f" {start}") for one in asked])
    elif world.comes_with == "questions":
        numbers = {f"{one} {k}": k * len(TOPICS) + one for one in range(len(TOPICS)) for k in range(world.asks)}
        with_it = world.document * len(numbers)
        wrong = np.array([numbers.get(one, with_it) < with_it for one in asked])
    observations = []
    for metric in world.metrics:
        mean = np.full(n, world.means[metric]) + world.shift.get(metric, 0.0)
        mean = mean + np.where(topic == len(TOPICS) - 1, world.hard_shift[metric], 0.0)
        mean = mean + np.where(tenant == "c", world.broken.get(metric, 0.0), 0.0)
        mean = np.clip(mean + np.where(model == "model-2", world.new_model_shift.get(metric, 0.0), 0.0), 0.02, 0.98)
        mean = np.clip(mean + np.where(wrong, world.document_shift.get(metric, 0.0), 0.0), 0.02, 0.98)
        value = drawn(world, PHI(0.5 * difficulty + np.sqrt(0.75) * rng.standard_normal(n)), mean)
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
                    question=asked[index],
                )
            )
    words = {ids[index]: question(rng, topic[index]) for index in range(min(n, QUESTIONS))} if world.asked else {}
    read = passages(rng, world, ids, topic, wrong) if world.texts else {}
    return [*observations, *signals(rng, world, observations)], words, read


def signals(rng, world: World, observations):
    """The signals of the retrieval, of every exchange: drawn last, so that the scores are the same with and without."""
    exchanges = {one.sample_id: one for one in observations}
    found = []
    for one in exchanges.values():
        missing = rng.random() >= world.found
        values = {"no_contexts": 0.0 if missing else 1.0}
        for name in () if missing else RANKS:
            values[name] = float(np.clip(0.5 + world.signals.get(name, 0.0) + rng.uniform(-0.5, 0.5), 0.0, 1.0))
        found += [
            replace(one, metric=name, outcome="score", value=value, reason="", judge=None, rate=1.0)
            for name, value in values.items()
        ]
    return found


def passages(rng, world: World, ids, topic, wrong):
    """Four documents per exchange, most of them about its topic, and whether a claim was contradicted."""
    found = {}
    chosen = rng.permutation(len(ids))[:LOOKED_AT]
    for index in chosen.tolist():
        documents = {f"doc-{topic[index]}-{int(9 * rng.random() ** 2)}" for _ in range(3)} | {f"doc-{rng.integers(45)}"}
        share = world.contradicts if wrong[index] else world.contradicted
        found[ids[index]] = Passages(
            documents=frozenset(documents | ({"doc-x"} if wrong[index] else set())),
            contradicted=bool(rng.random() < share),
        )
    return found


def question(rng, topic: int) -> str:
    """A question with three or four words of its topic, one in ten of another one."""
    words = [list(TOPICS.values())[topic].split(), " ".join(TOPICS.values()).split()]
    chosen = [str(rng.choice(words[rng.random() < 0.1])) for _ in range(4)]
    return str(rng.choice(FRAMES)).format(*chosen)
