"""The cases: a sample, what every judge says about it, and whether we mean to give another number.

`peer` and `metric` (Gaugeway's name) choose what is compared; `options` are Gaugeway's, `peer_options` the peer's.
`intended` says why the numbers differ on purpose; without it they must be equal.
"""

from __future__ import annotations

import math
from typing import Any

S, N, C = "supported", "not_mentioned", "contradicted"
QUESTION = "How long does the Orla lamp last?"
RESPONSE = "The Orla lamp lasts nine hours and so on: it holds."
REFERENCE = "It lasts nine hours on one charge and holds."

MISSING = "a verdict is missing: asked again, then failed; the peer divides by the verdicts it got"
ENUM = "a verdict outside the enum: asked again, then failed; the peer {}"
EMPTY = "nothing to judge is skipped; the peer says {}"
EPSILON = "the peer adds 1e-8 to the denominator"


def contexts(count: int) -> list[str]:
    """Passages that no other text contains."""
    return [f"Passage number {index} about lamps holds a statement." for index in range(count)]


def claims(*verdicts: str, what: str = "c", relevance: str = "relevant") -> list[dict[str, Any]]:
    """Claims with these verdicts; what is supported or contradicted, is so by the first context."""
    return [
        {"claim": f"{what}{i} holds.", "verdict": one, "contexts": [] if one == N else [0], "relevance": relevance}
        for i, one in enumerate(verdicts)
    ]


def rated(*relevance: str) -> list[dict[str, Any]]:
    """Supported claims of this relevance."""
    return [one | {"relevance": word} for one, word in zip(claims(*[S] * len(relevance)), relevance, strict=True)]


def against(*right: bool, what: str = "c") -> list[dict[str, Any]]:
    """Claims that the other one of response and reference supports, or not."""
    return [one | {"other": yes} for one, yes in zip(claims(*[S] * len(right), what=what), right, strict=True)]


def at_angle(cosine: float, seed: int = 0) -> list[float]:
    """A vector with this cosine to the first axis."""
    vector = [0.0] * 8
    vector[0], vector[1 + seed] = cosine * 3.0, math.sqrt(1.0 - cosine**2) * 3.0
    return vector


class Cases:
    """Collects them."""

    def __init__(self) -> None:
        self.all: dict[str, dict[str, Any]] = {}

    def add(self, peer: str, metric: str, script: dict[str, Any], **more: Any) -> None:
        """Add one; `sample` overrides the default texts."""
        kind = f"{peer}-{metric.replace(':', '-')}"
        name = f"{kind}-{1 + sum(known.startswith(kind) for known in self.all)}"
        sample = {"question": QUESTION, "response": RESPONSE, "reference": REFERENCE, "contexts": contexts(2)}
        sample |= more.pop("sample", {})
        options = {"options": {}, "peer_options": {}, "intended": None, "what": ""}
        self.all[name] = options | {"peer": peer, "metric": metric, "script": script, "sample": sample} | more


def faithfulness(cases: Cases) -> None:
    for verdicts in ([S, S, N, S, N], [S] * 9 + [N] * 2, [S, S], [C, N], [S], [C, S, N]):
        cases.add("ragas", "faithfulness", {"claims": claims(*verdicts)})
    cases.add("ragas", "faithfulness", {"claims": []}, intended=EMPTY.format("NaN"))
    cases.add("ragas", "faithfulness", {"claims": claims(S, N), "omit": 1}, intended=MISSING)
    cases.add("ragas", "faithfulness", {"claims": claims(N, N), "odd": 2}, intended=ENUM.format("takes 2 for true"))
    cases.add("ragas", "faithfulness", {"claims": claims(S)}, sample={"contexts": []}, intended=EMPTY.format("error"))
    lenient = {"contradiction_only": True}
    for verdicts in ([S, C, N], [C, C], [S, S], [N, N, N], [S, C, C, C]):
        cases.add("deepeval", "faithfulness", {"claims": claims(*verdicts)}, options=lenient)
    why = "a claim the contexts do not mention counts against the response; the peer lets it pass"
    cases.add("deepeval", "faithfulness", {"claims": claims(S, N)}, intended=why)
    cases.add("deepeval", "faithfulness", {"claims": claims(S, N)}, peer_options={"penalize_ambiguous_claims": True})
    cases.add("deepeval", "faithfulness", {"claims": []}, options=lenient, intended=EMPTY.format(1))
    cases.add("deepeval", "faithfulness", {"claims": claims(S, C), "omit": 1}, options=lenient, intended=MISSING)
    odd = {"claims": claims(C, S), "odd": "maybe"}
    cases.add("deepeval", "faithfulness", odd, options=lenient, intended=ENUM.format("raises an error"))
    cases.add(
        "deepeval",
        "faithfulness",
        {"claims": claims(S)},
        options=lenient,
        sample={"contexts": []},
        intended=EMPTY.format("1: it asks the judge about no context at all"),
    )


def answer_relevancy(cases: Cases) -> None:
    def questions(*cosines: float, **more: Any) -> dict[str, Any]:
        asked = [f"Question {i}?" for i in range(len(cosines))]
        vectors = {one: at_angle(cosine, i) for i, (one, cosine) in enumerate(zip(asked, cosines, strict=True))}
        return {"questions": asked, "vectors": {QUESTION: at_angle(1.0), **vectors}} | more

    for cosines in ((0.5408, 0.5868, 0.4486), (0.92, 0.91, 0.93), (1.0, 1.0, 1.0), (0.3, -0.2, 0.5)):
        cases.add("ragas", "answer_relevancy", questions(*cosines))
    cases.add("ragas", "answer_relevancy", questions(0.9, 0.9, 0.9, noncommittal=True))
    cases.add(
        "ragas", "answer_relevancy", questions(-0.5, -0.4, -0.3), intended="clipped to [0, 1]; the peer is below 0"
    )
    alike = questions(0.9, 0.9, 0.9) | {"questions": ["Question 0?"] * 3}
    why = "three questions that are one: asked again, then failed; the peer counts it three times"
    cases.add("ragas", "answer_relevancy", alike, intended=why)
    none = questions() | {"questions": []}
    cases.add("ragas", "answer_relevancy", none, intended="no questions: failed; the peer says 0")
    statements = {"method": "statements"}
    for words in (
        ["relevant", "irrelevant"],
        ["relevant", "borderline", "irrelevant"],
        ["irrelevant"],
        ["relevant"] * 3,
    ):
        cases.add("deepeval", "answer_relevancy", {"claims": rated(*words)}, options=statements)
    cases.add("deepeval", "answer_relevancy", {"claims": []}, options=statements, intended=EMPTY.format(1))
    short = {"claims": rated("relevant", "irrelevant"), "omit": 1}
    cases.add("deepeval", "answer_relevancy", short, options=statements, intended=MISSING)
    odd = {"claims": rated("irrelevant", "relevant"), "odd": "perhaps"}
    cases.add("deepeval", "answer_relevancy", odd, options=statements, intended=ENUM.format("raises an error"))
    dodging = {"claims": rated("relevant"), "noncommittal": True}
    why = "a noncommittal response scores 0; the peer does not ask"
    cases.add("deepeval", "answer_relevancy", dodging, options=statements, intended=why)


def context_relevancy(cases: Cases) -> None:
    def statements(*flags: list[int]) -> dict[str, Any]:
        listed = [
            [(f"Statement {j} of passage {i}.", bool(yes)) for j, yes in enumerate(said)]
            for i, said in enumerate(flags)
        ]
        return {"statements": listed}

    for flags in ([[1, 0], [0, 0, 0]], [[1], [1, 1]], [[0], [0]], [[1, 1, 0, 1, 0], []]):
        cases.add("deepeval", "context_relevancy", statements(*flags))
    cases.add("deepeval", "context_relevancy", statements([], []), intended=EMPTY.format(0))
    joined = {"method": "joined"}
    for pair in ((2, 2), (2, 1), (1, 0), (0, 0)):
        cases.add("ragas", "context_relevancy", {"ratings": [pair]}, options=joined)
    why = "one judge cannot be read: failed; the peer takes the other one's rating"
    cases.add("ragas", "context_relevancy", {"ratings": [(2, 3)]}, options=joined, intended=why)
    why = "both judges cannot be read: failed; the peer says NaN"
    cases.add("ragas", "context_relevancy", {"ratings": [(3, 3)]}, options=joined, intended=why)
    same = {"contexts": [QUESTION]}
    why = "a context that repeats the question is judged; the peer says 0 without asking"
    cases.add("ragas", "context_relevancy", {"ratings": [(1, 1)]}, options=joined, sample=same, intended=why)
    why = "per context, relevant from a mean of 1.0; the peer rates all contexts joined"
    dual = {"ratings": [(2, 1), (0, 0)]}
    cases.add("ragas", "context_relevancy", dual, options={"method": "dual_judge"}, intended=why)


def hallucination(cases: Cases) -> None:
    def script(*hit: int, **more: Any) -> dict[str, Any]:
        told = [{"claim": f"c{i} holds.", "verdict": C, "contexts": [i], "relevance": "relevant"} for i in hit]
        return {"claims": [*told, {"claim": "s holds.", "verdict": S, "contexts": [0], "relevance": "relevant"}]} | more

    for count, hit in ((2, ()), (2, (0,)), (2, (0, 1)), (3, (2,)), (1, (0,))):
        cases.add("deepeval", "hallucination", script(*hit), sample={"contexts": contexts(count)})
    cases.add("deepeval", "hallucination", script(1, omit=1), intended=MISSING)
    odd = script(1, odd="unclear")
    cases.add("deepeval", "hallucination", odd, intended=ENUM.format("raises an error"))


def rankings(cases: Cases) -> None:
    lists = ([1, 1, 0, 1, 0], [0, 1], [1, 1, 1], [0, 0], [1], [0, 0, 1, 0, 1, 1])
    for peer, metric in (
        ("ragas", "context_precision"),
        ("ragas", "context_utilization"),
        ("deepeval", "context_precision"),
    ):
        for useful in lists:
            cases.add(peer, metric, {"useful": useful}, sample={"contexts": contexts(len(useful))})
    why = ENUM.format("counts 2 twice and exceeds 1")
    cases.add("ragas", "context_precision", {"useful": [2, 2]}, intended=why)
    cases.add("deepeval", "context_precision", {"useful": [0, 1], "omit": 1}, intended=MISSING)


def with_reference(cases: Cases) -> None:
    for peer in ("ragas", "deepeval"):
        for verdicts in ([S, N], [S, S, S], [N, N], [S, S, N]):
            cases.add(peer, "context_recall", {"reference_claims": claims(*verdicts, what="r")})
    cases.add("ragas", "context_recall", {"reference_claims": []}, intended=EMPTY.format("NaN"))
    cases.add("deepeval", "context_recall", {"reference_claims": []}, intended=EMPTY.format(0))
    names = {"reference": ["Ghent", "Ana Rull"], "contexts": ["Ghent"]}
    held = {"contexts": ["Ghent lies on the Lys.", "The bridge was opened."]}
    cases.add("ragas", "context_entity_recall", {"entities": names}, sample=held, intended=EPSILON)
    nowhere = {"reference": ["Paris"], "contexts": ["Ghent"]}
    cases.add("ragas", "context_entity_recall", {"entities": nowhere}, sample=held)
    shouted = {"reference": ["GHENT"], "contexts": ["Ghent"]}
    why = "compared without regard to case; the peer is case-sensitive"
    cases.add("ragas", "context_entity_recall", {"entities": shouted}, sample=held, intended=why)
    believed = {"reference": ["Paris"], "contexts": ["Paris"]}
    why = "an entity that stands in no context does not count; the peer believes the judge"
    cases.add("ragas", "context_entity_recall", {"entities": believed}, sample=held, intended=why)
    cases.add(
        "ragas", "context_entity_recall", {"entities": {"reference": [], "contexts": []}}, intended=EMPTY.format(0)
    )
    vectors = {RESPONSE: at_angle(1.0), REFERENCE: at_angle(0.8)}
    for said, wanted in (([1, 0], [1, 0]), ([1, 1], [1]), ([0], [0, 0]), ([1, 1, 0], [1, 0, 0])):
        both = {"claims": against(*map(bool, said)), "reference_claims": against(*map(bool, wanted), what="r")}
        cases.add("ragas", "answer_correctness", both | {"vectors": vectors})
        cases.add("ragas", "answer_correctness", both, options={"weight": 1.0}, peer_options={"weights": [1.0, 0.0]})
    for said, wanted in (([], [True]), ([True], [])):
        one = {"claims": against(*said), "reference_claims": against(*wanted, what="r"), "vectors": vectors}
        cases.add("ragas", "answer_correctness", one, intended=EMPTY.format("F1 = 1"))
    for cosine in (0.5, 1.0, 0.0):
        cases.add("ragas", "answer_similarity", {"vectors": {RESPONSE: at_angle(1.0), REFERENCE: at_angle(cosine)}})
    apart = {"vectors": {RESPONSE: at_angle(1.0), REFERENCE: at_angle(-0.5)}}
    cases.add("ragas", "answer_similarity", apart, intended="clipped to [0, 1]; the peer is below 0")
    for cosine in (0.5, 0.7):
        near = {"vectors": {RESPONSE: at_angle(1.0), REFERENCE: at_angle(cosine)}}
        threshold = {"threshold": 0.6}
        cases.add("ragas", "answer_similarity", near, options=threshold, peer_options=threshold)


def noise(cases: Cases) -> None:
    def claim(name: str, places: list[int], *, other: bool) -> dict[str, Any]:
        return {"claim": f"{name} holds.", "verdict": S if places else N, "contexts": places, "other": other}

    wanted = [claim("r0", [0], other=True)]
    lists = (
        [claim("a", [0], other=True), claim("b", [0], other=False), claim("c", [1], other=False)],
        [claim("a", [0, 1], other=False), claim("b", [], other=False)],
        [claim("a", [1], other=True)],
        [claim("a", [1], other=False), claim("b", [1], other=False), claim("c", [], other=True)],
    )
    for said in lists:
        for mode in ("relevant", "irrelevant"):
            script = {"claims": said, "reference_claims": wanted}
            cases.add("ragas", "noise_sensitivity", script, options={"noise": mode}, peer_options={"mode": mode})
    why = "every context counts; the peer's modes take the relevant or the irrelevant ones, which add up to this"
    cases.add("ragas", "noise_sensitivity", {"claims": lists[0], "reference_claims": wanted}, intended=why)


def geval(cases: Cases) -> None:
    ten = {"criteria": "The response is polite.", "steps": ["Look for rude words."], "scale": [0, 10]}
    for scores in (
        {"8": 0.6, "9": 0.3, "7": 0.1},
        {"10": 1.0},
        {"0": 1.0},
        {"5": 0.5, "6": 0.5},
        {"3": 0.7, "Sure": 0.3},
    ):
        cases.add("deepeval", "geval:tone", {"scores": scores}, options=ten)
    why = "every valid alternative counts; the peer leaves out those below 1 %"
    cases.add("deepeval", "geval:tone", {"scores": {"9": 0.992, "1": 0.008}}, options=ten, intended=why)
    why = "a score outside the scale: asked again, then failed; the peer goes beyond 1"
    cases.add("deepeval", "geval:tone", {"scores": {"15": 1.0}}, options=ten, intended=why)
    why = "an alternative outside the scale does not count; the peer counts it"
    cases.add("deepeval", "geval:tone", {"scores": {"9": 0.8, "90": 0.2}}, options=ten, intended=why)
    plain = {"scores": {"8": 1.0}}
    why_equal = "without log-probabilities: five answers averaged here, one raw integer there"
    cases.add(
        "deepeval", "geval:tone", plain, options=ten, peer_options={"logprobs": False}, logprobs=False, what=why_equal
    )


def build() -> dict[str, dict[str, Any]]:
    """Every case under its name."""
    cases = Cases()
    for group in (
        faithfulness,
        answer_relevancy,
        context_relevancy,
        hallucination,
        rankings,
        with_reference,
        noise,
        geval,
    ):
        group(cases)
    return cases.all
