"""Anchors judged by the present judge and by the one that may replace it, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from prometheus_client import CollectorRegistry

from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Config, Judge
from monitors.app import assemble
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.judges.anchors import AnchorWatch, compare, compare_judges, read
from monitors.metrics.registry import build
from monitors.scheduler import scorer_of
from tests.support.grounding import TRUE, table
from tests.support.llm_server import LLMServer, Reply, Request, error
from tests.support.verifier_server import VerifierServer


def lines(count):
    for number in range(count):
        yield json.dumps(
            {
                "id": f"a{number}",
                "response": f"Claim number {number}.",
                "retrieved_contexts": ["A passage."],
                "expected": {"faithfulness": 1.0},
                "tolerance": 0.1,
            }
        )


def differing(wrong):
    """Two models behind one endpoint: the next one contradicts the anchors whose numbers are in `wrong`."""

    def answer(request: Request) -> Reply:
        number = next(one for one in range(100) if f"Claim number {one}." in request.text)
        bad = request.body["model"] == "next" and number in wrong
        verdict = "contradicted" if bad else "supported"
        claim = {"claim": f"{number}", "verdict": verdict, "contexts": [0], "quote": "passage", "relevance": "relevant"}
        return Reply(content={"noncommittal": False, "claims": [claim]})

    return answer


def compared(server, count=20, **keys):
    config = Judge(base_url=server.url, model="now", next_model="next", cache="memory", **keys)
    instruments = Instruments(CollectorRegistry(), version="0")
    judging = open_judge(config, instruments)
    drifts, found = [], []

    async def wait(waiting, _):
        waiting.close()
        raise asyncio.CancelledError

    async def main():
        now, following = (
            {one.metric.name: one.metric for one in build({}, judge, None).enabled}
            for judge in (judging.judge, judging.successor.judge)
        )
        watch = AnchorWatch(
            judging.anchors,
            scorer_of(now),
            on_drift=drifts.append,
            score_next=scorer_of(following),
            on_agreement=found.append,
            wait=wait,
        )
        try:
            await watch.run()
        finally:
            await judging.judge.aclose()
            await judging.successor.judge.aclose()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    return drifts, found, instruments


@pytest.fixture
def anchors(tmp_path):
    path = tmp_path / "anchors.jsonl"
    path.write_text("\n".join(lines(20)))
    return str(path)


def test_the_agreement_comes_with_its_number_and_interval(anchors):
    with LLMServer(differing({3, 7})) as server:
        (drift,), (found,), instruments = compared(server, anchors=anchors)
        models = [request.body["model"] for request in server.requests]
    assert models == ["now"] * 20 + ["next"] * 20
    assert drift.disagreement == 0.0
    assert (found.metric, found.n, found.failed, found.disagreement) == ("faithfulness", 20, 0, pytest.approx(0.1))
    assert (found.low, found.high) == (pytest.approx(0.028, abs=0.001), pytest.approx(0.301, abs=0.001))
    assert found.shift == pytest.approx(-0.1)
    instruments.agreed_with_next("next", found.metric, found)
    labels = {"judge_model": "next", "metric": "faithfulness"}
    values = {
        name: instruments.registry.get_sample_value(f"gaugeway_judge_next_{name}", labels)
        for name in ("agreement_ratio", "agreement_low", "anchors", "shift")
    }
    agreement = {"agreement_ratio": 1.0 - found.disagreement, "agreement_low": 1.0 - found.high}
    assert values == {**agreement, "anchors": 20.0, "shift": found.shift}


def test_a_successor_that_fails_blinds_nobody_and_counts_no_agreement(anchors):
    def answer(request: Request) -> Reply:
        return error(404, "no such model") if request.body["model"] == "next" else differing(())(request)

    with LLMServer(answer) as server:
        (drift,), (found,), instruments = compared(server, anchors=anchors, blind_after=3)
    assert drift.n == 20
    assert (found.n, found.failed, found.low, found.high) == (0, 20, 0.0, 1.0)
    blind = instruments.registry.get_sample_value
    assert blind("gaugeway_judge_blind", {"judge_model": "now", "role": "judge"}) == 0
    assert blind("gaugeway_judge_blind", {"judge_model": "next", "role": "judge"}) is None
    instruments.agreed_with_next("next", "faithfulness", found)
    labels = {"judge_model": "next", "metric": "faithfulness"}
    assert blind("gaugeway_judge_next_agreement_ratio", labels) is None


def test_only_scheduled_rounds_are_judged_twice():
    calls = []

    async def score(sample, metric):
        calls.append("now")
        return 1.0

    async def other(sample, metric):
        calls.append("next")
        return 1.0

    waits = iter([None, TimeoutError, asyncio.CancelledError])

    async def wait(waiting, _):
        waiting.close()
        if (what := next(waits)) is not None:
            raise what

    watch = AnchorWatch(
        read(lines(1)), score, on_drift=lambda _: None, score_next=other, on_agreement=lambda _: None, wait=wait
    )
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch.run())
    assert calls == ["now", "next", "now", "now", "next"], "the second round was woken by an alarm"


def test_identical_models_agree_whatever_stands_before_the_present_one(tmp_path):
    """The verifier is sure of what it supports, the judges find all of it contradicted: only models are compared."""

    def contradicting(request: Request) -> Reply:
        claim = {"claim": TRUE, "verdict": "contradicted", "contexts": [0], "quote": TRUE, "relevance": "relevant"}
        if "verdicts" in str(request.body["response_format"]):
            return Reply(content={"verdicts": [{"id": 0, "verdict": "contradicted", "contexts": [0], "quote": TRUE}]})
        return Reply(content={"noncommittal": False, "claims": [TRUE], "verdicts": [claim]})

    path = tmp_path / "anchors.jsonl"
    path.write_text(json.dumps({"response": TRUE, "retrieved_contexts": [TRUE], "expected": {"faithfulness": 0.0}}))
    drifts, found = [], []

    async def wait(waiting, _):
        waiting.close()
        raise asyncio.CancelledError

    async def main(parts):
        other = parts.judging.successor
        metrics = {one.metric.name: one.metric for one in parts.catalogue.enabled}
        watch = AnchorWatch(
            parts.judging.anchors,
            scorer_of(metrics),
            on_drift=drifts.append,
            score_next=scorer_of(other.metrics),
            score_alone=scorer_of(other.present_metrics),
            on_agreement=found.append,
            wait=wait,
        )
        try:
            await watch.run()
        finally:
            for one in parts.closing:
                await one.aclose()

    with LLMServer(contradicting) as server, VerifierServer() as verifier:
        grounding = table("classify predict", verifier.url, model="nli")
        judge = {"base_url": server.url, "model": "now", "next_model": "next", "anchors": str(path)}
        config = Config(judge=Judge(**judge, mode="separate", grounding=grounding, cache="off"))
        parts = assemble(config, tmp_path)
        other = parts.judging.successor
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(main(parts))
    assert drifts[0].shift == 1.0, "the system is watched: the verifier answers before the judge"
    assert (found[0].disagreement, found[0].shift, found[0].n) == (0.0, 0.0, 1)
    assert (other.present_metrics["faithfulness"].judge, parts.judging.judge.model) == ("now", "nli>now")


def test_an_anchor_that_one_of_them_did_not_score_counts_as_failed():
    anchors = read(lines(4))
    scores = [(1.0, 1.0), (1.0, None), (None, 1.0), (0.5, 0.9)]
    found = compare_judges("faithfulness", [(one, *pair) for one, pair in zip(anchors, scores, strict=True)])
    assert (found.n, found.failed, found.disagreement) == (2, 2, 0.5)


@pytest.mark.parametrize(
    ("keys", "problem"), [({}, "needs judge.anchors"), ({"model": "next"}, "must differ from judge.model")]
)
def test_a_successor_needs_anchors_and_another_name(keys, problem, anchors):
    keys = {"model": "now", **({"anchors": anchors} if keys else {}), **keys}
    with pytest.raises(ConfigError, match=rf"judge\.next_model: {problem}"):
        open_judge(
            Judge(base_url="http://h/v1", next_model="next", **keys), Instruments(CollectorRegistry(), version="0")
        )


@pytest.mark.parametrize("keys", [{"next_model": "next"}, {"anchors": "anchors.jsonl"}])
def test_a_successor_and_anchors_without_a_judge_are_a_mistake(keys):
    with pytest.raises(ConfigError, match=rf"judge\.{next(iter(keys))}: needs judge.base_url and judge.model"):
        open_judge(Judge(**keys), Instruments(CollectorRegistry(), version="0"))


def test_anchors_in_a_file_that_is_not_there_are_named():
    with pytest.raises(ConfigError, match=r"judge\.anchors: file not found: nope\.jsonl"):
        open_judge(
            Judge(base_url="http://h/v1", model="now", anchors="nope.jsonl"),
            Instruments(CollectorRegistry(), version="0"),
        )


def test_the_log_says_how_many_anchors_moved(anchors, caplog):
    judging = open_judge(
        Judge(base_url="http://h/v1", model="now", anchors=anchors), Instruments(CollectorRegistry(), version="0")
    )
    judging.show_drift(compare("faithfulness", [(one, 1.0 if n < 8 else 0.0) for n, one in enumerate(judging.anchors)]))
    (line,) = caplog.records
    said = "the judge scores 12 of 20 anchors of faithfulness differently than expected (60 %, 95 %: at least 39 %)"
    assert line.message == said


def test_anchors_without_any_score_are_no_result(anchors, caplog):
    config = Judge(base_url="http://h/v1", model="now", next_model="next", anchors=anchors)
    instruments = Instruments(CollectorRegistry(), version="0")
    judging = open_judge(config, instruments)
    judging.show_drift(compare("faithfulness", [(one, 1.0) for one in judging.anchors]))
    value = instruments.registry.get_sample_value
    assert value("gaugeway_judge_drift_ratio", {"metric": "faithfulness"}) == 0.0
    with caplog.at_level(logging.INFO, "gaugeway.judge"):
        judging.show_drift(compare("faithfulness", [(one, None) for one in judging.anchors]))
        judging.show_agreement(compare_judges("faithfulness", [(one, 1.0, None) for one in judging.anchors]))
    for name in ("ratio", "low", "shift"):
        assert value(f"gaugeway_judge_drift_{name}", {"metric": "faithfulness"}) is None
    assert value("gaugeway_judge_next_agreement_ratio", {"judge_model": "next", "metric": "faithfulness"}) is None
    assert judging.evidence("faithfulness") is None
    assert [one.message for one in caplog.records] == [
        "none of the 20 anchors of faithfulness could be scored",
        "judge.next_model: none of the 20 anchors of faithfulness could be scored by both next and now",
    ]
