"""The changes that `causes.py` simulates. `held_out` was written before the rules were fixed, and is run once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cause_worlds import JUDGED, LEXICAL, World

from monitors.alerting.causes import JudgeEvidence

RETRIEVAL = {
    "context_relevancy": -0.25,
    "faithfulness": -0.12,
    "answer_relevancy": -0.1,
    "lexical_groundedness": -0.1,
}
GENERATION = {"faithfulness": -0.12, "answer_relevancy": -0.05, "lexical_groundedness": -0.08}
WORSE_MODEL = {"faithfulness": -0.35, "answer_relevancy": -0.1, "lexical_groundedness": -0.25}
HALVED = {"context_relevancy": 0.08, "faithfulness": -0.12, "answer_relevancy": -0.06, "lexical_groundedness": -0.08}
"""Of six passages the three best: more relevant on average, and less to answer from."""
STRICTER = dict.fromkeys(JUDGED, -0.1)
CONTRADICTED = {"faithfulness": -0.4, "answer_relevancy": -0.1, "lexical_groundedness": -0.1}
LEGACY = {"faithfulness": -0.75, "answer_relevancy": -0.1, "context_relevancy": -0.2, "lexical_groundedness": -0.2}
HARDER = {"faithfulness": -0.35, "answer_relevancy": -0.25, "context_relevancy": -0.3, "lexical_groundedness": -0.25}
STAYED = JudgeEvidence(drifted=False)
DRIFTED = JudgeEvidence(drifted=True, detail="anchors")


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


def changed(world: World, right: str, **what) -> Scenario:
    """What happens to a world, and what should be said."""
    about = {key: what.pop(key) for key in ("slice", "metric", "judge") if key in what}
    return Scenario(before=world, since=replace(world, **what), right=tuple(right.split()), **about)


def times(factor: float, shift: dict[str, float]) -> dict[str, float]:
    """A shift, stronger or weaker."""
    return {name: factor * value for name, value in shift.items()}


def plus(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    """Two shifts at once."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in one | other}


def scenarios() -> dict[str, Scenario]:
    """What the table is made of."""
    return _app() | _questions() | _judge() | _nothing() | _without_judge() | _one_thing()


def _app() -> dict[str, Scenario]:
    usual, texts = World(), World(texts=True)
    answers = {**RETRIEVAL, "lexical_groundedness": 0.0}
    tenant = times(2.5, RETRIEVAL)
    model = {"new_model": 0.3, "new_model_shift": WORSE_MODEL, "slice": "model=model-2"}
    contradicting = {"document": 0.3, "document_shift": CONTRADICTED}
    said = "source=doc-x"
    return {
        "retrieval broken": changed(usual, "retrieval", shift=RETRIEVAL),
        "retrieval broken, half as strong": changed(usual, "retrieval", shift=times(0.5, RETRIEVAL)),
        "retrieval broken, twice as strong": changed(usual, "retrieval", shift=times(2.0, RETRIEVAL)),
        "retrieval broken, scores 0 or 1": changed(World(law="binary"), "retrieval", shift=RETRIEVAL),
        "retrieval broken, scores spread evenly": changed(World(law="spread"), "retrieval", shift=RETRIEVAL),
        "retrieval broken, half as strong, half of the questions recur": changed(
            World(recurring=0.5), "retrieval", shift=times(0.5, RETRIEVAL)
        ),
        "retrieval broken, answers keep to its words": changed(usual, "retrieval", shift=answers),
        "the same, with anchors that stay": changed(usual, "retrieval", shift=answers, judge=STAYED),
        "retrieval finds nothing for 15 % more": changed(usual, "retrieval", shift=GENERATION, found=0.83),
        "retrieval broken for one tenant (20 %)": changed(usual, "retrieval", broken=tenant, slice="tag:tenant=c"),
        "one contradicting document in 30 %": changed(texts, "retrieval", slice=said, **contradicting),
        "one contradicting document in 15 %": changed(
            texts, "retrieval", slice=said, document=0.15, document_shift=times(1.5, CONTRADICTED)
        ),
        "one contradicting document in 30 %, texts unknown": changed(usual, "retrieval", slice=said, **contradicting),
        "prompt broken, its version unknown": changed(usual, "generation", shift=GENERATION),
        "prompt broken, half as strong": changed(usual, "generation", shift=times(0.5, GENERATION)),
        "prompt broken, twice as strong": changed(usual, "generation", shift=times(2.0, GENERATION)),
        "prompt broken, scores 0 or 1": changed(World(law="binary"), "generation", shift=GENERATION),
        "prompt broken, scores spread evenly": changed(World(law="spread"), "generation", shift=GENERATION),
        "prompt broken, texts known": changed(texts, "generation", shift=GENERATION, contradicted=0.12),
        "new prompt for all": changed(usual, "generation", shift=GENERATION, prompt="p2", slice="prompt=p2"),
        "new, worse model for 30 %": changed(usual, "generation", **model),
    }


def _questions() -> dict[str, Scenario]:
    usual, tagged, asked = World(), World(tagged=True), World(asked=True)
    return {
        "hard topic 20 % to 40 %, tagged": changed(tagged, "traffic_mix", hard=0.4, slice="tag:team=contracts"),
        "hard topic 20 % to 40 %, questions only": changed(asked, "traffic_mix", hard=0.4),
        "hard topic 20 % to 40 %, nothing to tell by": changed(usual, "unknown", hard=0.4),
        "hard topic 20 % to 60 %, nothing to tell by": changed(usual, "unknown", hard=0.6),
        "hard topic 20 % to 40 %, nothing to tell by, scores 0 or 1": changed(World(law="binary"), "unknown", hard=0.4),
        "hard topic 20 % to 40 %, half of the questions recur": changed(World(recurring=0.5), "unknown", hard=0.4),
    }


def _judge() -> dict[str, Scenario]:
    usual = World()
    both = plus(STRICTER, GENERATION)
    return {
        "another judge model, stricter": changed(usual, "judge", shift=STRICTER, judged_by="judge-2"),
        "the same judge, stricter; anchors say so": changed(usual, "judge", shift=STRICTER, judge=DRIFTED),
        "the same judge, stricter; no anchors": changed(usual, "unknown judge", shift=STRICTER),
        "the same judge, twice as strict; no anchors": changed(usual, "unknown judge", shift=times(2.0, STRICTER)),
        "stricter judge and broken prompt; anchors say so": changed(usual, "judge unknown", shift=both, judge=DRIFTED),
        "stricter judge and broken prompt; no anchors": changed(usual, "unknown", shift=both),
        "twice as strict and broken prompt; no anchors": changed(
            usual, "unknown", shift=plus(times(2.0, STRICTER), GENERATION)
        ),
        "judge fails for 15 % more": changed(usual, "judge", failing=0.16),
    }


def _nothing() -> dict[str, Scenario]:
    usual, asked, texts = World(), World(asked=True), World(texts=True)
    lowest = {"right": ("unknown",), "lowest_of": 20}
    return {
        "nothing": changed(usual, "unknown"),
        "nothing, with questions": changed(asked, "unknown"),
        "nothing, the lowest of 20 windows": Scenario(before=usual, since=usual, **lowest),
        "nothing, the lowest of 20 windows, texts known": Scenario(before=texts, since=texts, **lowest),
    }


def _without_judge() -> dict[str, Scenario]:
    plain = World(metrics=LEXICAL)
    lexical = {"metric": "lexical_groundedness"}
    model = {"new_model": 0.3, "new_model_shift": WORSE_MODEL, "slice": "model=model-2"}
    return {
        "no judge: retrieval broken": changed(plain, "unknown", shift=RETRIEVAL, **lexical),
        "no judge: retrieval finds nothing for 15 % more": changed(
            plain, "retrieval", shift=GENERATION, found=0.83, **lexical
        ),
        "no judge: new, worse model for 30 %": changed(plain, "generation", **model, **lexical),
    }


def _one_thing() -> dict[str, Scenario]:
    usual, strict = World(), {"faithfulness": -0.12}
    return {
        "top-k halved": changed(usual, "retrieval", shift=HALVED, signals={"contexts_per_answer": -0.4}),
        "the same judge, stricter on one metric; no anchors": changed(usual, "unknown judge", shift=strict),
        "stricter on one metric; no anchors, nothing without a judge": changed(
            World(metrics=JUDGED), "unknown judge", shift=strict
        ),
    }


def sources() -> dict[str, Scenario]:
    """Sources that are new since the onset and that nothing contradicts, or that come with something else."""
    once, few = World(texts=True), World(texts=True, recurring=1.0, asks=1)
    many = replace(few, asks=8)
    quiet = {"contradicts": 0.05}
    legacy = {"document": 0.5, "document_shift": LEGACY, "slice": "source=doc-x", **quiet}
    small = legacy | {"document_shift": times(0.5, LEGACY)}
    rare = {"document": 0.02, "document_shift": LEGACY, **quiet}
    whole, harder = {"comes_with": "questions"}, {"document": 0.3, "document_shift": HARDER, **quiet}
    unclear = "unknown traffic_mix"
    return {
        "new source for half of five questions": changed(few, "retrieval", **legacy, **whole),
        "new source for half of five questions, half as bad": changed(few, "retrieval", **small, **whole),
        "new source for half of 40 questions": changed(many, "retrieval", **legacy, **whole),
        "new source for half of the exchanges, 40 questions": changed(many, "retrieval", **legacy),
        "new source for half of the exchanges, each asked once": changed(once, "retrieval", **legacy),
        "new source for half of the exchanges, each asked once, half as bad": changed(
            once, "retrieval unknown", **small
        ),
        "bad source, from 2 % of the exchanges to half": Scenario(
            before=replace(many, **rare),
            since=replace(many, **{**rare, "document": 0.5}),
            right=("retrieval",),
            slice="source=doc-x",
        ),
        "harder questions with their own source": changed(once, unclear, **harder),
        "harder questions with their own source, the others recur": changed(
            replace(once, recurring=0.4), unclear, **(harder | {"document": 0.6, "comes_with": "new"})
        ),
        "good new source for half of the exchanges, prompt broken": changed(
            many, "generation", shift=GENERATION, document=0.5, **quiet
        ),
        "good new source for half of 40 questions, prompt broken": changed(
            many, "generation", shift=GENERATION, document=0.5, **quiet, **whole
        ),
        "good new source for half of 40 questions, nothing": changed(many, "unknown", document=0.5, **quiet, **whole),
    }


def held_out() -> dict[str, Scenario]:
    """Other means, laws, effects and mixtures than those the rules were written with."""
    means = {"faithfulness": 0.75, "answer_relevancy": 0.8, "context_relevancy": 0.65, "lexical_groundedness": 0.55}
    other = World(means=means, law="spread", hard=0.1)
    rough = World(means=means, law="binary", hard=0.1)
    texts = replace(other, texts=True, contradicted=0.1)
    harder = {
        "faithfulness": -0.25,
        "answer_relevancy": -0.3,
        "context_relevancy": -0.35,
        "lexical_groundedness": -0.1,
    }
    easier = {"faithfulness": -0.2, "answer_relevancy": -0.1, "context_relevancy": -0.3, "lexical_groundedness": -0.2}
    reranker = {
        "context_relevancy": -0.3,
        "faithfulness": -0.2,
        "answer_relevancy": -0.03,
        "lexical_groundedness": -0.15,
    }
    truncated = {"faithfulness": -0.1, "answer_relevancy": -0.2, "lexical_groundedness": -0.05}
    uneven = {"faithfulness": -0.16, "answer_relevancy": -0.06, "context_relevancy": -0.1}
    wrong = {"faithfulness": -0.5, "answer_relevancy": -0.05, "lexical_groundedness": -0.05}
    says = "source=doc-x"
    return {
        "reranker broken": changed(other, "retrieval", shift=reranker),
        "reranker broken, scores 0 or 1": changed(rough, "retrieval", shift=reranker),
        "reranker broken, on answer relevancy": changed(
            other, "retrieval", shift=plus(reranker, {"answer_relevancy": -0.1}), metric="answer_relevancy"
        ),
        "answers cut short": changed(other, "generation", shift=truncated, metric="answer_relevancy"),
        "answers cut short, scores 0 or 1": changed(rough, "generation", shift=truncated, metric="answer_relevancy"),
        "hard questions 10 % to 30 %": changed(replace(other, hard_shift=harder), "unknown", hard=0.3),
        "hard questions 10 % to 45 %, scores 0 or 1": changed(replace(rough, hard_shift=harder), "unknown", hard=0.45),
        "questions beside the corpus 10 % to 30 %": changed(replace(other, hard_shift=easier), "unknown", hard=0.3),
        "unevenly stricter judge, no anchors": changed(other, "unknown judge", shift=uneven),
        "unevenly stricter judge and answers cut short": changed(
            other, "unknown", shift=plus(uneven, truncated), metric="answer_relevancy"
        ),
        "stricter judge, broken prompt, scores 0 or 1": changed(rough, "unknown", shift=plus(STRICTER, GENERATION)),
        "contradicting document in 20 %": changed(texts, "retrieval", document=0.2, document_shift=wrong, slice=says),
        "contradicting document in 50 %": changed(
            texts, "retrieval", document=0.5, document_shift=times(0.6, wrong), slice=says
        ),
        "answers invent more, texts known": changed(
            texts, "generation", shift=times(1.4, GENERATION), contradicted=0.25
        ),
        "nothing, the lowest of 40 windows": Scenario(before=texts, since=texts, right=("unknown",), lowest_of=40),
    }
