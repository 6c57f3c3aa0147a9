"""Clusters of failing answers in worlds of random words: purity and number, false "new" marks, power.

    .venv/bin/python benchmarks/detection/answer_clusters.py [--worlds 200]

Each world draws its own vocabularies: two languages of 600 general words, 40 subjects of questions and three kinds of
failure with 8 to 25 words of their own, all used with Zipf's frequencies. A question has 4 to 9 words, about half of
them of its subject. Nothing is fitted to a text that anyone wrote. The product's own code runs (`clusters_of`).
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from monitors.analysis.answer_clusters import ClusteredAnswer, ClusterReport, clusters_of
from monitors.analysis.retrieval.sources import Scope

SINCE, UNTIL = 1_760_000_000.0, 1_760_086_400.0
SCOPE = Scope(app="shop", metric="faithfulness", since=SINCE, until=UNTIL)
GENERAL, SUBJECTS = 600, 40
CONSONANTS, VOWELS = list("bcdfghklmnprstvz"), list("aeiou")


def zipf(n):
    """The frequencies of n words."""
    weights = 1.0 / np.arange(1, n + 1)
    return weights / weights.sum()


class World:
    """Vocabularies, and questions with their failed claims drawn from them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.languages = [[self.word() for _ in range(GENERAL)] for _ in range(2)]
        self.subjects = [self.subject(int(self.rng.integers(2))) for _ in range(SUBJECTS)]
        self.kinds = [self.subject(number % 2) for number in range(3)]

    def word(self) -> str:
        """A word of two to four syllables."""
        return "".join(
            str(self.rng.choice(CONSONANTS)) + str(self.rng.choice(VOWELS)) for _ in range(self.rng.integers(2, 5))
        ) + str(self.rng.choice(CONSONANTS))

    def subject(self, language: int) -> tuple[int, list[str]]:
        """A subject: its language and its words."""
        return language, [self.word() for _ in range(int(self.rng.integers(8, 26)))]

    def text(self, subject) -> str:
        """A question, or a claim, about a subject."""
        language, words = subject
        n = int(self.rng.integers(4, 10))
        own = int(max(1, self.rng.binomial(n, 0.5)))
        drawn = [
            *self.rng.choice(words, size=own, p=zipf(len(words))),
            *self.rng.choice(self.languages[language], size=n - own, p=zipf(GENERAL)),
        ]
        self.rng.shuffle(drawn)
        return " ".join(drawn)

    def answers(self, failing, good: int, *, claims: str = "of their subject", turns: int = 1) -> list[ClusteredAnswer]:
        """Failing answers, (truth, earliest time as a share of the window) each, among good ones to all questions.

        With `turns` above 1, that many answers about the same subject make a conversation, a minute apart.
        """
        found = []
        for number, (truth, begins) in enumerate(failing):
            subject = self.kinds[truth] if truth >= 0 else self.subjects[int(self.rng.integers(SUBJECTS))]
            at = SINCE + (UNTIL - SINCE) * float(self.rng.uniform(begins, 1.0))
            found += [
                ClusteredAnswer(
                    id=f"{truth}:{number}-{turn}",
                    started_at=at + 60.0 * turn,
                    rate=1.0,
                    question=self.text(subject),
                    claim=self.text(subject) if claims == "of their subject" else claims,
                    is_bad=True,
                    no_good_answer=True,
                    cluster=f"s:{truth}-{number}",
                    traits=(("model", f"m-{number % 2}"), ("prompt", f"p-{int(self.rng.integers(3))}")),
                )
                for turn in range(turns)
            ]
        every = [*self.subjects, *self.kinds]
        for number in range(good):
            question = self.text(every[int(self.rng.integers(len(every)))])
            at = SINCE + (UNTIL - SINCE) * float(self.rng.uniform())
            traits = (("model", f"m-{number % 2}"), ("prompt", f"p-{int(self.rng.integers(3))}"))
            found.append(
                ClusteredAnswer(
                    id=f"g{number}", started_at=at, rate=1.0, question=question, is_bad=False, traits=traits
                )
            )
        return found


def quality(report: ClusterReport, answers, sizes) -> tuple[list[float], list[float], int, int]:
    """For each planted kind, its share in its largest cluster and that cluster's purity, as far as the ids say.

    Also the number of clusters, and of those that hold a planted kind.
    """
    recall, purity, holding = [], [], 0
    for kind, planted in enumerate(sizes):
        counts = [Counter(example.split(":")[0] for example in cluster) for cluster in members_of(answers)]
        best = max(counts, key=lambda count: count[str(kind)], default=Counter())
        recall.append(best[str(kind)] / planted)
        purity.append(best[str(kind)] / max(1, sum(best.values())))
        holding += sum(count[str(kind)] > 0.5 * sum(count.values()) for count in counts)
    return recall, purity, len(report.clusters), holding


def members_of(answers):
    """The ids of each cluster's answers; a report has five of them, so the clustering is made again."""
    from monitors.analysis.answer_clusters import _drawn, _grouped  # noqa: PLC0415 - internals, for the measurement

    bad = _drawn(answer for answer in answers if answer.is_bad)
    groups = _grouped(bad, _drawn(answer for answer in answers if not answer.is_bad))
    return [[bad[at].id for at in group.members] for group in groups]


def null_worlds(worlds: int) -> None:
    """Nothing changes: how often something is called new, or said to differ."""
    for turns in (1, 4):
        marked = false_differences = 0
        for seed in range(worlds):
            world = World(10_000 + seed)
            failing = [(kind, 0.0) for kind, n in enumerate((60, 40, 25)) for _ in range(n // turns)]
            report = clusters_of(
                world.answers([*failing, *[(-1, 0.0)] * (150 // turns)], 300, turns=turns), "failures", SCOPE
            )
            marked += any(cluster.new for cluster in report.clusters)
            false_differences += any(cluster.differs for cluster in report.clusters)
        print(
            f"null worlds, {turns} answers a conversation: {marked} of {worlds} with a false 'new', "
            f"{false_differences} with a false difference",
            flush=True,
        )


def appearing_kinds(worlds: int) -> None:
    """A kind appears in the last quarter: how often it is called new, and from when on."""
    for size in (8, 12, 20, 40):
        hits = wrong = 0
        when = []
        for seed in range(worlds // 4):
            world = World(20_000 + seed)
            failing = [(0, 0.0)] * 50 + [(1, 0.0)] * 30 + [(2, 0.75)] * size + [(-1, 0.0)] * 100
            answers = world.answers(failing, 300)
            report = clusters_of(answers, "failures", SCOPE)
            for ids, cluster in zip(members_of(answers), report.clusters, strict=True):
                own = sum(name.startswith("2:") for name in ids) > 0.5 * len(ids)
                hits += own and cluster.new is not None
                wrong += not own and cluster.new is not None
                if own and cluster.new is not None:
                    when.append((cluster.new.since - SINCE) / (UNTIL - SINCE))
        print(
            f"a kind of {size} that appears after 75 % of the window: marked in {hits} of {worlds // 4}, others "
            f"{wrong}; since (median) {np.median(when) if when else np.nan:.2f}",
            flush=True,
        )


def planted_kinds() -> None:
    """Three kinds of failure among questions about 40 other subjects."""
    for noise, sizes in ((15, (12, 9, 7)), (200, (60, 40, 25)), (1200, (300, 150, 60))):
        for claims in ("of their subject", "", "the same for all"):
            rows = []
            for seed in range(10):
                world = World(seed)
                failing = [(kind, 0.0) for kind, n in enumerate(sizes) for _ in range(n)] + [(-1, 0.0)] * noise
                answers = world.answers(failing, 600, claims=claims)
                rows.append(quality(clusters_of(answers, "failures", SCOPE), answers, sizes))
            recall, purity = (np.mean([row[at] for row in rows]) for at in (0, 1))
            clusters, holding = (np.mean([row[at] for row in rows]) for at in (2, 3))
            print(
                f"planted {sizes} among {noise}, claims {claims or 'unknown'}: recall {recall:.2f}, "
                f"purity {purity:.2f}, {clusters:.1f} clusters, {holding:.1f} of the 3 kinds",
                flush=True,
            )


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=int, default=200)
    worlds = parser.parse_args().worlds
    planted_kinds()
    null_worlds(worlds)
    appearing_kinds(worlds)


if __name__ == "__main__":
    main()
