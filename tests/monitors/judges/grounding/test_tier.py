"""The verifier as the first tier of a cascade."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from gaugeway.records import Context, Sample
from gaugeway.settings.shared import Judge, SmallJudge
from monitors.evaluation.models import open_judge
from monitors.evaluation.verifiers import open_verifier
from monitors.exporters.instruments import Instruments
from monitors.metrics.faithfulness import Faithfulness
from monitors.metrics.judged.claims import Separate
from tests.support.grounding import ALSO_TRUE, FALSE, TRUE, table
from tests.support.llm_server import LLMServer, Reply, Request, error
from tests.support.verifier_server import VerifierServer, refused

PASSAGES = (TRUE, ALSO_TRUE)


def judge_model(claims, asked):
    """The large judge: lists the claims; finds all of them contradicted, so that its verdicts can be told apart."""

    def answer(request: Request) -> Reply:
        if "verdicts" in str(request.body["response_format"]):
            asked.append(request)
            numbers = range(len(claims))
            rows = [{"id": one, "verdict": "contradicted", "contexts": [0], "quote": TRUE} for one in numbers]
            return Reply(content={"verdicts": rows})
        return Reply(content={"noncommittal": False, "claims": list(claims)})

    return answer


def judged(claims, verifier_url, *, keys=None, audit_rate=None):
    """The faithfulness of an answer with these claims, the large judge's verdict calls, and the instruments."""
    asked = []
    instruments = Instruments(CollectorRegistry(), version="0")
    with LLMServer(judge_model(claims, asked)) as server:
        grounding = table("classify predict", verifier_url, **(keys or {}))
        small = None if audit_rate is None else SmallJudge(base_url=server.url, model="small", audit_rate=audit_rate)
        config = Judge(
            base_url=server.url, model="large", grounding=grounding, cache="off", mode="separate", small=small
        )
        verifier = open_verifier(config, instruments)
        judging = open_judge(config, instruments, verifier=verifier)
        contexts = tuple(Context(text=text) for text in PASSAGES)
        sample = Sample(id="1", started_at=0.0, response=" ".join(claims), contexts=contexts)

        async def main():
            score = await Faithfulness(Separate(judging.judge)).score(sample)
            await judging.judge.aclose()
            await verifier.aclose()
            return score

        return asyncio.run(main()), asked, instruments.registry


def count(registry, outcome):
    return registry.get_sample_value("gaugeway_judge_tier_total", {"tier": "grounding", "outcome": outcome}) or 0.0


def test_claims_that_it_supports_are_not_sent_to_the_judge_and_name_their_context():
    with VerifierServer() as server:
        score, asked, registry = judged([TRUE, ALSO_TRUE], server.url)
    assert score.value == 1.0
    assert [one["context"] for one in score.evidence] == [0, 1]
    assert not asked
    assert count(registry, "sure") == 1


def test_one_claim_that_it_does_not_support_sends_all_to_the_judge():
    with VerifierServer() as server:
        score, asked, registry = judged([TRUE, FALSE], server.url)
    assert score.value == 0.0, "the judge's verdicts count"
    assert len(asked) == 1
    assert (count(registry, "sure"), count(registry, "unsure")) == (0, 1), "listing claims is no work for a verifier"


def test_a_verifier_that_fails_passes_the_claims_on():
    with LLMServer(error(503, "down"), api_path="") as server:
        score, asked, _ = judged([TRUE], server.url)
    assert score.value == 0.0
    assert len(asked) == 1


@pytest.mark.parametrize("off", [{"keys": {"cascade": False}}, {"keys": {"least": 0.99}}])
def test_it_can_be_switched_off_and_made_stricter(off):
    with VerifierServer() as server:
        score, asked, _ = judged([TRUE], server.url, **off)
    assert score.value == 0.0
    assert len(asked) == 1


def test_in_the_fused_mode_the_judge_is_the_only_tier():
    with VerifierServer() as server:
        config = Judge(base_url="http://127.0.0.1:1/v1", model="large", grounding=table("classify predict", server.url))
        instruments = Instruments(CollectorRegistry(), version="0")
        verifier = open_verifier(config, instruments)
        assert open_judge(config, instruments, verifier=verifier).judge.model == "large"


def test_accepted_answers_are_audited_by_the_judge():
    with VerifierServer() as server:
        score, asked, registry = judged([TRUE], server.url, audit_rate=1.0)
    labels = {"tier": "grounding", "sure": "true"}
    assert score.value == 1.0, "an audit changes no score"
    assert len(asked) == 1
    assert registry.get_sample_value("gaugeway_judge_agreement_count", labels) == 1.0
    assert registry.get_sample_value("gaugeway_judge_agreement_sum", labels) == 0.0


def test_calls_that_it_could_not_settle_are_not_counted_and_an_outage_is_counted_as_failed():
    down = refused(503, "down")
    with LLMServer(down, api_path="") as server:
        score, asked, registry = judged([TRUE, ALSO_TRUE], server.url)
    assert score.value == 0.0, "the judge's verdicts count"
    assert len(asked) == 1
    assert {one: count(registry, one) for one in ("sure", "unsure", "failed")} == {"sure": 0, "unsure": 0, "failed": 1}
