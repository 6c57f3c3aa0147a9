"""What the log says about a judge that fails."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry

from gaugeway.settings.shared import Judge
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.judges import JudgeError, Prompt
from monitors.judges.middleware.failure_log import MAX_KINDS, REPEAT_S, STEADY_S, FailureLog
from monitors.judges.scripted import Scripted
from tests.support.grounding import TRUE, Opened, run, sample, table
from tests.support.llm_server import LLMServer, error
from tests.support.verifier_server import refused

PROMPT = Prompt(task="t", version="1", system="s", user="u")
KEY = "sk-canary-4711"


def lines(caplog):
    return [one for one in caplog.records if one.name == "gaugeway" and "judge" in one.getMessage()]


def ask(judge, times=1):
    async def main():
        for _ in range(times):
            with suppress(JudgeError):
                await judge.ask(PROMPT, dict)
        await judge.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reply", "told", "advice"),
    [
        (error(401, f"Incorrect API key provided: {KEY}"), "bad_request, HTTP 401", "judge.api_key"),
        (error(404, "the captured question about Jane"), "bad_request, HTTP 404", "judge.model"),
        (error(500, "broken"), "server_error, HTTP 500", "its log"),
        (error(429, "slow down"), "rate_limited, HTTP 429", "judge.concurrency"),
    ],
)
def test_the_first_failure_is_one_line_with_the_endpoint_and_what_to_do(caplog, reply, told, advice):
    caplog.set_level(logging.INFO, "gaugeway")
    with LLMServer(reply) as server:
        settings = Judge(base_url=server.url, api_key=KEY, model="judge-1", max_retries=0, cache="off")
        judging = open_judge(settings, Instruments(CollectorRegistry(), version="0"))
        ask(judging.judge, times=5)
        (line,) = lines(caplog)
        message = line.getMessage()
        assert line.levelno == logging.WARNING
        assert f"judge-1 at {server.url.removesuffix('/v1')} failed ({told})" in message
        assert advice in message.partition("): ")[2]
        assert KEY not in message
        assert "Jane" not in message


async def test_an_endpoint_that_cannot_be_reached_is_named_at_the_first_try_and_not_after_the_retries(caplog):
    settings = Judge(base_url="http://user:canary@127.0.0.1:9/v1?k=canary", model="judge-1", max_retries=3)
    judging = open_judge(settings, Instruments(CollectorRegistry(), version="0"))

    asking = asyncio.ensure_future(judging.judge.ask(PROMPT, dict))
    async with asyncio.timeout(60):
        while not lines(caplog):  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)
    assert not asking.done()
    asking.cancel()
    await asyncio.wait([asking])
    await judging.judge.aclose()
    message = lines(caplog)[0].getMessage()
    assert "at http://127.0.0.1:9 failed (connection): check" in message
    assert "canary" not in message


def test_failures_are_counted_in_a_line_every_few_minutes_and_the_end_is_told_once(caplog):
    caplog.set_level(logging.INFO, "gaugeway")
    now = [0.0]
    answers = [JudgeError("server_error")]
    judge = FailureLog(Scripted(lambda _: answers[0]), origin="http://llm.example", clock=lambda: now[0])
    ask(judge, times=1000)
    assert len(lines(caplog)) == 1
    now[0] += REPEAT_S
    ask(judge, times=1000)
    assert len(lines(caplog)) == 2
    assert "1000 failures since the last line" in lines(caplog)[1].getMessage()
    answers[0] = {}
    ask(judge, times=3)
    assert [one.levelno for one in lines(caplog)[2:]] == [logging.INFO]
    assert "recovered after 2000 failures" in lines(caplog)[2].getMessage()
    for _ in range(100):  # a judge that fails every second time is no reason for two hundred lines
        answers[0] = {} if answers[0] else JudgeError("timeout")
        ask(judge)
    assert [one.levelno for one in lines(caplog)[3:]] == [logging.WARNING, logging.INFO]  # of the first time-out


def test_a_new_outage_and_a_new_kind_of_failure_are_logged_at_once(caplog):
    now = [0.0]
    answers = [JudgeError("server_error", "Error code: 500")]
    judge = FailureLog(Scripted(lambda _: answers[0]), origin="http://llm.example", clock=lambda: now[0])

    def failures():
        said = [one.getMessage() for one in lines(caplog) if one.levelno == logging.WARNING]
        return [line.partition(" failed (")[2].partition(")")[0] for line in said]

    ask(judge, times=5)
    answers[0] = JudgeError("server_error", "Error code: 503")
    ask(judge, times=5)
    answers[0] = {}
    ask(judge)
    now[0] += STEADY_S
    answers[0] = JudgeError("server_error", "Error code: 500")
    ask(judge, times=5)
    assert failures() == [f"server_error, HTTP {status}" for status in (500, 503, 500)]


def test_kinds_of_failures_without_end_are_not_all_logged(caplog):
    statuses = iter(range(100, 600))
    judge = FailureLog(
        Scripted(lambda _: JudgeError("server_error", f"Error code: {next(statuses)}")), origin="http://llm.example"
    )
    ask(judge, times=500)
    assert len(lines(caplog)) == MAX_KINDS


@pytest.mark.parametrize("kind", ["refused", "context_overflow", "deadline", "unsure"])
def test_a_sample_that_cannot_be_judged_is_no_failure_of_the_judge(caplog, kind):
    ask(FailureLog(Scripted(lambda _: JudgeError(kind)), origin="http://llm.example"), times=3)
    assert lines(caplog) == []


def test_a_recovery_starts_the_counts_again_and_one_failure_is_singular(caplog):
    caplog.set_level(logging.INFO, "gaugeway")
    now = [0.0]
    answers = [JudgeError("server_error")]
    judge = FailureLog(Scripted(lambda _: answers[0]), origin="http://llm.example", clock=lambda: now[0])
    for times in (7, 7, 1):
        answers[0] = JudgeError("server_error")
        ask(judge, times=times)
        answers[0] = {}
        ask(judge)
        now[0] += STEADY_S
    said = [one.getMessage() for one in lines(caplog)]
    assert [one.rpartition("recovered after ")[2] for one in said[1::2]] == ["7 failures", "7 failures", "1 failure"]
    assert not any("since the last line" in one for one in said)


def test_a_circuit_that_opens_is_one_line(caplog):
    with LLMServer(error(500, "broken")) as server:
        settings = Judge(base_url=server.url, model="judge-1", max_retries=0, cache="off", blind_after=3)
        ask(open_judge(settings, Instruments(CollectorRegistry(), version="0")).judge, times=9)
    assert len(lines(caplog)) == 2
    message = lines(caplog)[1].getMessage()
    assert "circuit open after 3 failures in a row, the last server_error; it is tried again after 30 s" in message


@pytest.mark.parametrize(
    ("failure", "path", "advice"),
    [
        (JudgeError("too_large"), "/classify", "at judge.grounding.base_url, or lower judge.grounding.batch_size"),
        (JudgeError("bad_request", "Error code: 422 - Tokenization error"), "/predict", "max_document_chars"),
        (JudgeError("strange"), "/classify", "see the log of the verifier's server"),
        (JudgeError("unreadable"), "/predict", "does not have the format of /predict (one list of labels per pair"),
    ],
)
def test_the_advice_about_a_verifier_speaks_of_the_verifier(caplog, failure, path, advice):
    judge = FailureLog(Scripted(lambda _: failure), origin="http://v", table="judge.grounding", path=path)
    ask(judge)
    (line,) = [one.getMessage() for one in caplog.records]
    assert advice in line
    assert "judge's" not in line


def test_a_text_that_stays_too_long_names_the_key_to_lower():
    with LLMServer(refused(422, "inputs must have less than 512 tokens"), api_path="") as server:
        (found,) = run(Opened(table("classify predict", server.url)), sample(TRUE))
    assert found.outcome.error == "context_overflow"
    assert found.outcome.detail.endswith("; lower judge.grounding.max_document_chars")
