import asyncio
import time

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gaugeway.records import Sample
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Judge, Price, SmallJudge
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.judges import JudgeError, Prompt
from tests.support.llm_server import LLMServer, Reply, error


class Verdict(msgspec.Struct):
    fine: bool


PROMPT = Prompt(task="t", version="1", system="s", user="u")


def opened(settings, **options):
    instruments = Instruments(CollectorRegistry(), version="0")
    judging = open_judge(settings, instruments, **options)
    return judging, instruments.registry


def test_without_an_endpoint_there_is_none_and_half_of_one_is_an_error():
    assert opened(Judge())[0] is None
    with pytest.raises(ConfigError, match=r"judge\.base_url"):
        opened(Judge(model="m"))


def test_a_budget_without_prices_cannot_be_kept():
    with pytest.raises(ConfigError, match=r"judge\.budget_usd_per_day"):
        opened(Judge(base_url="http://h/v1", model="m", budget_usd_per_day=1.0))


def test_the_same_question_is_paid_for_once_and_counted_for_its_app():
    with LLMServer(Reply(content={"fine": True}, tokens=(1000, 100))) as server:
        settings = Judge(base_url=server.url, model="m", price_in=1.0, price_out=2.0)
        judging, registry = opened(settings)

        async def main():
            answers = [await judging.judge.ask(PROMPT, Verdict) for _ in range(3)]
            await judging.judge.aclose()
            return answers

        assert asyncio.run(main()) == [Verdict(True)] * 3
        assert len(server.requests) == 1
    assert registry.get_sample_value("gaugeway_judge_cache_lookups_total", {"judge_model": "m", "result": "hit"}) == 2
    saved = registry.get_sample_value("gaugeway_judge_cache_saved_usd_total", {"judge_model": "m"})
    assert saved == pytest.approx(2 * (1000 * 1.0 + 100 * 2.0) / 1e6)


def test_a_judge_that_only_fails_is_blind_and_says_since_when():
    with LLMServer(error(500, "broken")) as server:
        judging, registry = opened(Judge(base_url=server.url, model="m", max_retries=0, blind_after=3, cache="off"))

        async def main():
            kinds = []
            for _ in range(5):
                try:
                    await judging.judge.ask(PROMPT, Verdict)
                except JudgeError as failure:
                    kinds.append(failure.kind)
            await judging.judge.aclose()
            return kinds

        assert asyncio.run(main()) == ["server_error"] * 3 + ["blind"] * 2
    assert judging.blind_since() is not None
    assert registry.get_sample_value("gaugeway_judge_blind", {"judge_model": "m", "role": "judge"}) == 1


def test_a_budget_that_is_spent_lowers_the_rate_but_never_to_nothing():
    settings = Judge(base_url="http://h/v1", model="m", price_in=1.0, price_out=1.0, budget_usd_per_day=0.001)
    judging, registry = opened(settings)
    sample = Sample(id="1", started_at=0.0, app="shop")
    judging.budget_factor(sample, [])
    for _ in range(50):
        judging.pacer.observe(0.01, time.time())
        factor = judging.budget_factor(sample, [])
    assert 0.0 < factor.lowest <= factor.own < 0.5
    assert registry.get_sample_value("gaugeway_judge_budget_factor") == factor.own
    assert opened(settings, paced=False)[0].budget_factor(sample, []) == (1.0, 1.0)


def test_a_small_judge_is_asked_first_and_the_large_one_when_it_cannot_say():
    unreadable = Reply(content="no idea")
    with LLMServer(unreadable) as small, LLMServer(Reply(content={"fine": True})) as large:
        settings = Judge(base_url=large.url, model="l", small=SmallJudge(base_url=small.url, model="s"), cache="off")
        judging, registry = opened(settings)

        async def main():
            answer = await judging.judge.ask(PROMPT, Verdict)
            await judging.judge.aclose()
            return answer

        assert asyncio.run(main()) == Verdict(True)
        assert small.requests
        assert large.requests
    assert registry.get_sample_value("gaugeway_judge_tier_total", {"tier": "small", "outcome": "failed"}) == 1


def test_prices_by_pattern_come_before_the_general_ones():
    with LLMServer(Reply(content={"fine": True}, tokens=(1000, 0))) as server:
        prices = {"m*": Price(input=3.0)}
        judging, registry = opened(Judge(base_url=server.url, model="m", price_in=1.0, prices=prices))

        async def main():
            await judging.judge.ask(PROMPT, Verdict)
            await judging.judge.aclose()

        asyncio.run(main())
    cost = registry.get_sample_value("gaugeway_judge_cost_usd_total", {"judge_model": "m"})
    assert cost == pytest.approx(1000 * 3.0 / 1e6)


def test_anchors_are_read_at_the_start_and_a_bad_line_is_named(tmp_path):
    path = tmp_path / "anchors.jsonl"
    path.write_text(
        '{"user_input": "Q", "response": "A", "retrieved_contexts": [], "expected": {"faithfulness": 1.0}}\n'
    )
    assert len(opened(Judge(base_url="http://h/v1", model="m", anchors=str(path)))[0].anchors) == 1
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r"judge\.anchors: line 1"):
        opened(Judge(base_url="http://h/v1", model="m", anchors=str(path)))
