"""Sentences of an answer with the verdicts of a verifier."""

from __future__ import annotations

from gaugeway.records import Evaluation, Score
from monitors.analysis.claim_highlight import claims_in, mark

FALSE = "It was sold in 1931."


def verified(evidence):
    return Evaluation(
        sample_id="1", metric="grounding", version="1", outcome=Score(0.5, "", tuple(evidence)), judge="v"
    )


def test_the_sentences_of_a_verifier_are_marked_with_their_unsupported_spans():
    spans = [{"text": "1931", "start": 12, "end": 16, "score": 0.9}]
    good = {"claim": "It is old.", "verdict": "supported", "score": 0.9, "spans": []}
    bad = {"claim": FALSE, "verdict": "not_mentioned", "score": 0.1, "spans": spans}
    claims = claims_in([verified([good, bad])])
    assert [(one.verdict, one.quote) for one in claims] == [("supported", ""), ("not_mentioned", "1931")]
    pieces, nowhere = mark(f"It is old. {FALSE}", claims)
    assert [one.verdict for one in pieces] == ["supported", "not_mentioned"]
    assert not nowhere


def test_the_types_of_spans_are_shown_with_them():
    span = {"text": "1931", "start": 12, "end": 16, "score": 1.0, "category": "unsupported_addition"}
    spans = [span | {"subcategory": "claim"}, span]
    (claim,) = claims_in([verified([{"claim": FALSE, "verdict": "not_mentioned", "score": 0.0, "spans": spans}])])
    assert claim.quote == "1931 (unsupported addition: claim), 1931 (unsupported addition)"


def test_spans_of_any_shape_do_no_harm():
    for spans in (None, "1931", [1], [{"start": 1}], [{"text": 5}], {"text": "1931"}):
        claims = claims_in([verified([{"claim": FALSE, "verdict": "contradicted", "spans": spans}])])
        assert [one.quote for one in claims] == [""]
