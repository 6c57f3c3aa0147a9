"""How much of a prompt each passage is, at which price, and what the answer rests on, from a stored exchange."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from gaugeway.demo.rag import PROMPT as PROMPT_OF_DEMO
from gaugeway.demo.rag import Index, handbook, questions
from gaugeway.records import CaptureInfo, Context, Evaluation, PromptPart, Sample, Score, Skipped, ToolChecks, Usage
from gaugeway.settings.bounds import MAX_PARTS
from gaugeway.settings.shared import Price
from monitors.analysis.retrieval.passage_use import Support, passage_use

PRICE = Price(input=2.0, output=8.0, cached=0.5)
SYSTEM, QUESTION, RECORD = 400, 100, 5
PROMPT = 400 + 2 * 5 + 200 + 300 + 100


def parts(*sizes):
    """A system text, then each passage behind its number, then the question."""
    found, at = [PromptPart(role="system", kind="instructions", start=0, end=SYSTEM)], 0
    for index, size in enumerate(sizes):
        stretches = (("instructions", RECORD), ("passage", size))
        for kind, length in stretches:
            found.append(PromptPart(role="user", kind=kind, start=at, end=at + length, message=1, passage=index))
            at += length
    return (*found, PromptPart(role="user", kind="question", start=at, end=at + QUESTION, message=1))


def sample(*, usage=None, **about):
    made = Sample(
        id="x",
        started_at=0.0,
        contexts=(Context(text="a" * 200), Context(text="b" * 300)),
        context_source="tags",
        capture=CaptureInfo(source="tags", parts=parts(200, 300)),
        usage=usage,
    )
    return replace(made, **about)


def evaluation(*evidence, metric="faithfulness", rate=0.5, **about):
    return Evaluation(sample_id="x", metric=metric, version="1", outcome=Score(0.5, "", evidence), rate=rate, **about)


def use(some, *evaluations, price=PRICE):
    return passage_use(some, evaluations, price)


def test_a_passage_is_its_text_with_its_number_and_the_prompt_is_all_that_was_located():
    found = use(sample(usage=Usage(input_tokens=250)))
    assert (found.characters, found.seen, found.whole, found.input_tokens) == ((205, 305), PROMPT, True, 250)
    assert found.usd_per_token == pytest.approx((2e-6, 2e-6))
    assert (found.claims, found.sentences) == (None, None)


def test_only_answers_with_passages_are_used():
    assert use(sample(skip_reason="tool_call")) is None
    assert use(sample(skip_reason="cache_hit")) is None
    assert use(sample(contexts=())) is None
    assert use(sample(skip_reason="truncated_response")) is not None


@pytest.mark.parametrize(
    "about",
    [
        {"capture": None},
        {"context_source": "spans"},
        {"capture": CaptureInfo(source="tags", parts=parts(200, 300), cut=True)},
        {"capture": CaptureInfo(source="tags", parts=parts(200))},
        {"capture": CaptureInfo(source="tags", parts=parts(200, 300)[1:])},
        {"capture": CaptureInfo(source="tags", parts=parts(200, 300, *[1] * MAX_PARTS))},
        {"tool_checks": ToolChecks(offered=2)},
    ],
    ids=["no capture", "sent apart", "cut", "not located", "messages between", "parts left out", "tools"],
)
def test_a_prompt_is_not_whole_where_some_of_its_text_is_unknown(about):
    found = use(sample(usage=Usage(input_tokens=250), **about))
    assert not found.whole
    assert [round(length, -2) for length in found.characters] == [200, 300]


def test_tools_that_are_known_not_to_be_offered_hide_nothing():
    assert use(sample(tool_checks=ToolChecks(results=1))).whole


def test_hashed_texts_have_the_size_of_their_parts_and_are_unknown_without():
    hashed = (Context(text="blake2b:00"), Context(text="blake2b:01"))
    assert use(sample(contexts=hashed)).characters == (205, 305)
    assert use(sample(contexts=hashed, capture=None)).characters is None


def test_the_cache_holds_the_beginning_of_a_whole_prompt():
    """Half of it: the system text, the first passage but for its end, and nothing of the second one."""
    found = use(sample(usage=Usage(input_tokens=PROMPT, cached_tokens=500)))
    assert found.usd_per_token == pytest.approx(((100 * 0.5 + 105 * 2.0) / 205 / 1e6, 2e-6))
    apart = use(sample(usage=Usage(input_tokens=PROMPT, cached_tokens=PROMPT // 2), capture=None))
    assert apart.usd_per_token == pytest.approx((1.25e-6, 1.25e-6), rel=1e-2)
    assert use(sample(usage=Usage(input_tokens=9)), price=None).usd_per_token is None
    assert use(sample(usage=Usage(input_tokens=9, cached_tokens=9)), price=Price(input=2.0)).usd_per_token == (
        2e-6,
        2e-6,
    )


@pytest.mark.parametrize(
    ("usage", "cost", "tokens"),
    [
        (Usage(), None, None),
        (Usage(input_tokens=0), None, None),
        (Usage(input_tokens=100, cached_tokens=40), None, 100),
        (Usage(input_tokens=100, cached_tokens=900), None, 1000),
        (Usage(input_tokens=100, cached_tokens=900, cache_write_tokens=500), None, 1500),
        (Usage(input_tokens=100, cached_tokens=40), (60 * 2.0 + 40 * 0.5) / 1e6, 100),
        (Usage(input_tokens=100, cached_tokens=40), (100 * 2.0 + 40 * 0.5) / 1e6, 140),
        (Usage(input_tokens=100, cached_tokens=900), 100 * 0.5 / 1e6, 100),
    ],
)
def test_cached_tokens_are_part_of_the_input_or_beside_it_as_the_exchange_was_charged(usage, cost, tokens):
    assert use(sample(usage=usage, cost_usd=cost)).input_tokens == tokens


def test_without_a_price_of_its_own_a_free_model_is_read_by_its_numbers():
    free = use(sample(usage=Usage(input_tokens=100, cached_tokens=900), cost_usd=0.0), price=Price(input=0.0))
    assert (free.input_tokens, free.usd_per_token) == (1000, (0.0, 0.0))


def claim(*contexts, verdict="supported"):
    return {"claim": "It is so.", "verdict": verdict, "contexts": list(contexts)}


def test_an_answer_rests_on_what_its_supported_claims_cite():
    judged = evaluation(claim(0, 1), claim(1), claim(0, verdict="contradicted"), claim(verdict="not_mentioned"))
    assert use(sample(), judged).claims == Support((frozenset({0, 1}), frozenset({1})), 0.5)
    assert use(sample(), evaluation(claim(verdict="not_mentioned"))).claims == Support((), 0.5)


def test_what_a_claim_without_passages_rests_on_is_unknown_and_not_nothing():
    assert use(sample(), evaluation(claim(0), claim())).claims is None
    assert use(sample(), evaluation(claim(7))).claims is None
    assert use(sample(), evaluation({"context": 0, "contradicted": False}, metric="hallucination")).claims is None
    skipped = Evaluation(sample_id="x", metric="faithfulness", version="1", outcome=Skipped("no_claims"))
    assert use(sample(), skipped).claims is None


def test_the_last_evaluation_with_evidence_counts():
    found = use(sample(), evaluation(claim(0)), evaluation(claim(1), rate=0.25), evaluation())
    assert found.claims == Support((frozenset({1}),), 0.25)


def test_a_sentence_rests_on_the_passage_with_most_of_its_words_if_it_has_half_of_them():
    def sentence(score, context):
        return {"sentence": "It is so.", "score": score, "context": context}

    found = use(sample(), evaluation(sentence(0.9, 1), sentence(0.2, 0), metric="lexical_groundedness"))
    assert found.sentences == Support((frozenset({1}),), 0.5)
    assert found.claims is None


def test_shares_of_characters_are_close_to_those_of_tokens():
    """On the demo's prompts, whose tokens are words: docs/how-to/spend-less-on-context.md has the figures."""
    index, errors = Index(handbook()), []
    for asked in questions():
        passages = [document.text for document in index.search(asked.question)]
        prompt = PROMPT_OF_DEMO.format(question=asked.question, context="\n\n".join(passages))
        spans = [(prompt.index(text), prompt.index(text) + len(text)) for text in passages]
        parts = [
            PromptPart(role="user", kind="passage", start=start, end=end, passage=place)
            for place, (start, end) in enumerate(spans)
        ]
        parts.append(PromptPart(role="user", kind="instructions", start=spans[-1][1], end=len(prompt)))
        about = {
            "contexts": tuple(Context(text=text) for text in passages),
            "capture": CaptureInfo(source="tags", parts=tuple(parts)),
        }
        found = use(sample(usage=Usage(input_tokens=len(prompt.split())), **about))
        for text, characters in zip(passages, found.characters, strict=True):
            errors.append(characters * found.input_tokens / found.seen / len(text.split()) - 1.0)
    assert -0.04 < fmean(errors) < 0.0
    assert max(map(abs, errors)) < 0.13
