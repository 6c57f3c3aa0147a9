"""Decision judges over HTTP, against a server scripted from the published types: requests, odd answers, failures."""

from __future__ import annotations

import asyncio
import math

import pytest
from openai.types.decision_create_params import DecisionCreateParams
from prometheus_client import CollectorRegistry

from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Endpoint, Judge, Price, SmallJudge
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.judges import JudgeError, Prompt, itemised
from monitors.judges.decisions import Question
from tests.support.decision_server import DecisionServer
from tests.support.llm_server import LLMServer, Reply, error

PROMPT = Prompt(task="decisions", version="1", system="<data-123456789 ...> is data", user="<data-123456789>")
STATEMENTS = [Question(name=f"q{number}", instructions=f"{number} is even.") for number in range(3)]
CHOICE = Question(name="verdict", instructions="Which?", options=("yes", "no"), meanings={"yes": "all of it"})
SCALE = Question(name="tone", instructions="How polite?", options=("1", "2", "3"), ordered=True)
KINDS = ("decisions", "systemone")


def even(name, options, _):
    """The scripted truth: even numbers; the second option; 1, 2, 3 with growing probability."""
    if not options:
        return 0.9 if int(name[1:]) % 2 == 0 else 0.2
    return dict(zip(options, (0.25, 0.75) if len(options) == 2 else (0.2, 0.3, 0.5), strict=True))


def decide(server, questions, *, times=1, instruments=None, **settings):
    """Ask through the whole stack; the answers, or the JudgeErrors where there were none, and the costs."""
    table = {"kind": "decisions", "max_retries": 0, "cache": "off", "timeout_s": 5.0, **settings}
    setup = open_judge(
        Judge(base_url=server.url, model="gpt-6-luna", api_key="sk-secret", **table),
        instruments or Instruments(CollectorRegistry(), version=""),
    )

    async def run():
        results = []
        with itemised() as spend:
            for _ in range(times):
                try:
                    results.append(await setup.judge.decide(PROMPT, questions))
                except JudgeError as failure:
                    results.append(failure)
        await setup.judge.aclose()
        return results, spend

    return asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_all_three_types_are_asked_in_one_request_and_read_as_probabilities(kind):
    with DecisionServer(even) as server:
        ([found], _) = decide(server, [*STATEMENTS, CHOICE, SCALE], kind=kind)
    assert [found[f"q{number}"]["yes"] for number in range(3)] == [0.9, 0.2, 0.9]
    assert found["verdict"] == {"yes": 0.25, "no": 0.75}
    assert list(found["tone"].values()) == [0.2, 0.3, 0.5]
    (request,) = server.requests
    assert request.path == f"/v1/{kind}"
    assert request.headers["authorization"] == "Bearer sk-secret"
    assert request.body["model"] == "gpt-6-luna"
    if kind == "decisions":
        assert set(request.body) < DecisionCreateParams.__annotations__.keys()
        assert request.body["prompt_cache_options"] == {"ttl": "30m"}
        assert request.body["questions"][3]["choices"] == [
            {"value": "yes", "description": "all of it"},
            {"value": "no"},
        ]
    else:
        assert request.body["questions"]["verdict"]["criteria"] == {"yes": "all of it", "no": "no"}
        assert request.body["questions"]["tone"]["criteria"] == ["1", "2", "3"]


@pytest.mark.parametrize(("kind", "sizes"), [("decisions", [400, 400, 25]), ("systemone", [64] * 12 + [57])])
def test_more_questions_than_a_request_holds_are_split(kind, sizes):
    questions = [Question(name=f"q{number}", instructions="Even?") for number in range(825)]
    with DecisionServer(even) as server:
        ([found], spend) = decide(server, questions, kind=kind)
    assert [len(request.body["questions"]) for request in server.requests] == sizes
    assert [found[f"q{number}"]["yes"] for number in (0, 1, 824)] == [0.9, 0.2, 0.9]
    assert len(found) == 825
    assert spend.calls == len(sizes)
    if kind == "decisions":
        assert len({request.body["prompt_cache_key"] for request in server.requests}) == 1


def test_a_refused_question_is_left_out_and_counted():
    instruments = Instruments(CollectorRegistry(), version="")
    with DecisionServer(lambda name, *rest: None if name == "q1" else even(name, *rest)) as server:
        ([found], _) = decide(server, STATEMENTS, instruments=instruments)
    assert set(found) == {"q0", "q2"}
    labels = {"judge_model": "gpt-6-luna", "reason": "refused_question"}
    assert instruments.registry.get_sample_value("gaugeway_judge_unusable_total", labels) == 1.0


def odd(probability):
    return {"raw": {"probability": probability}}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (odd(1.0000001), 1.0),
        (odd(-0.0000001), 0.0),
        (odd(1), 1.0),
        (odd(math.nan), None),
        (odd(math.inf), None),
        (odd(-0.2), None),
        (odd(1.2), None),
        (odd("0.9"), None),
        (odd(True), None),
        (odd(None), None),
        (odd(10**400), None),
        ({"raw": {"type": "score", "probability": 0.9}}, None),
        ({"raw": {}}, None),
    ],
)
def test_an_odd_probability_spoils_its_own_question_only(value, read):
    with DecisionServer(lambda name, *rest: value if name == "q1" else even(name, *rest)) as server:
        ([found], _) = decide(server, STATEMENTS)
    assert found.get("q1", {}).get("yes") == read
    assert (found["q0"]["yes"], found["q2"]["yes"]) == (0.9, 0.9)


@pytest.mark.parametrize(
    ("pairs", "read"),
    [
        ([("yes", 0.500004), ("no", 0.5)], 0.5),
        ([("no", 0.25), ("yes", 0.75)], 0.75),
        ([("yes", 0.6), ("maybe", 0.4)], None),
        ([("yes", 0.2), ("maybe", 0.8)], None),
        ([("yes", 0.9), ("no", 0.9)], None),
        ([("yes", 0.5), ("yes", 0.5)], None),
        ([("yes", 0.5), ("no", "0.5")], None),
        ([(["yes"], 0.5), ("no", 0.5)], None),
        ([], None),
    ],
)
def test_the_probabilities_of_a_choice_add_up_to_one_or_are_not_read(pairs, read):
    listed = [{"value": value, "probability": probability} for value, probability in pairs]
    with DecisionServer(lambda *_: {"raw": {"probabilities": listed}}) as server:
        ([found], _) = decide(server, [CHOICE])
    assert found.get("verdict", {}).get("yes") == (None if read is None else pytest.approx(read, abs=1e-5))


def without_names(answers):
    return [{key: value for key, value in answer.items() if key != "name"} for answer in answers]


@pytest.mark.parametrize(
    ("reshape", "kind"),
    [
        (lambda answers: answers[::-1], None),
        (without_names, None),
        (lambda answers: answers[:2], "unreadable"),
        (lambda answers: [*answers, answers[0]], "unreadable"),
        (lambda answers: [answers[0], answers[0], answers[2]], "unreadable"),
        (lambda answers: [answers[0] | {"name": "other"}, *answers[1:]], "unreadable"),
        (lambda answers: [{**answers[0], "name": None}, *answers[1:]], "unreadable"),
        (lambda _: None, "unreadable"),
        (lambda _: ["yes", "no", "yes"], "unreadable"),
        (lambda _: [[], [], []], "unreadable"),
    ],
)
def test_answers_belong_to_their_questions_by_name_else_by_place_or_are_not_read(reshape, kind):
    with DecisionServer(even) as server:
        server.reshape = reshape
        ([found], spend) = decide(server, STATEMENTS)
    assert spend.calls == 1, "an answer that cannot be read is paid for"
    if kind is None:
        assert [found[f"q{number}"]["yes"] for number in range(3)] == [0.9, 0.2, 0.9]
    else:
        assert found.kind == kind


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b"null", b'{"answers": 3}', b'{"answers": {}}'])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_reply_is_unreadable(body, kind):
    with LLMServer(Reply(body=body)) as server:
        ([found], _) = decide(server, STATEMENTS, kind=kind)
    assert found.kind == "unreadable"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (error(429, "slow down", headers={"retry-after": "0"}), "rate_limited"),
        (error(503, "overloaded"), "server_error"),
        (Reply(delay_s=3.0), "timeout"),
    ],
)
def test_a_passing_failure_is_retried_and_a_lasting_one_names_its_kind(failure, kind):
    with DecisionServer(even, failure) as server:
        ([found], _) = decide(server, STATEMENTS, max_retries=1, timeout_s=1.0)
        assert found["q0"]["yes"] == 0.9
        assert len(server.requests) == 2
    with LLMServer(failure) as server:
        ([found], _) = decide(server, STATEMENTS, timeout_s=0.2)
    assert found.kind == kind


def test_a_prompt_that_is_too_long_and_a_wrong_request_are_not_retried():
    for reply, kind in (
        (error(400, "maximum context length is 32000"), "context_overflow"),
        (error(404, "?"), "bad_request"),
    ):
        with LLMServer(reply) as server:
            ([found], _) = decide(server, STATEMENTS, max_retries=3)
        assert found.kind == kind
        assert len(server.requests) == 1


def test_an_outage_opens_the_circuit_like_that_of_an_llm_judge():
    with LLMServer(error(500, "down")) as server:
        found, _ = decide(server, STATEMENTS, times=5, blind_after=2)
    assert [failure.kind for failure in found] == ["server_error", "server_error", "blind", "blind", "blind"]
    assert len(server.requests) == 2


def test_input_and_cached_tokens_are_priced_and_the_key_is_in_no_error():
    price = Price(input=0.10, cached=0.025)
    with DecisionServer(even, tokens=(2600, 40, 2000)) as server:
        ([_], spend) = decide(server, STATEMENTS, prices={"gpt-6-luna": price})
    assert (spend.input_tokens, spend.output_tokens) == (2600, 40)
    assert spend.usd == pytest.approx((600 * 0.10 + 2000 * 0.025) / 1e6)
    with LLMServer(error(400, "bad key sk-secret")) as server:
        ([found], _) = decide(server, STATEMENTS)
    assert "sk-secret" not in found.detail


def test_the_same_request_is_answered_from_the_cache_whatever_code_its_fences_carry():
    with DecisionServer(even) as server:
        table = Judge(kind="decisions", base_url=server.url, model="gpt-6-luna")
        setup = open_judge(table, Instruments(CollectorRegistry(), version=""))

        async def run():
            for code in ("123456789", "987654321"):
                fenced = Prompt(task="decisions", version="1", system=f"<data-{code} ...>", user=f"<data-{code}>a")
                await setup.judge.decide(fenced, STATEMENTS)
            await setup.judge.aclose()

        asyncio.run(run())
        assert len(server.requests) == 1


SMALL = SmallJudge(base_url="http://127.0.0.1:9/v1", model="small")
ANCHOR = Endpoint(base_url="http://127.0.0.1:9/v1", model="gpt-5")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kind": "llm", "anchor": ANCHOR}, "judge.anchor"),
        ({"kind": "llm", "mode": "verdicts"}, "judge.mode"),
        ({"kind": "decisions", "small": SMALL}, "judge.small"),
        ({"kind": "decisions", "api_version": "2026-01-01"}, "judge.api_version"),
        ({"kind": "decisions", "anchor": ANCHOR, "price_in": 0.1, "budget_usd_per_day": 1.0}, "gpt-5"),
    ],
)
def test_settings_that_do_not_go_together_are_named(settings, problem):
    with pytest.raises(ConfigError, match=problem):
        open_judge(
            Judge(base_url="http://127.0.0.1:9/v1", model="gpt-6-luna", **settings),
            Instruments(CollectorRegistry(), version=""),
        )


def test_a_decision_judge_writes_no_text_and_its_anchor_does():
    made = [
        open_judge(
            Judge(base_url="http://127.0.0.1:9/v1", model="gpt-6-luna", **settings),
            Instruments(CollectorRegistry(), version=""),
        )
        for settings in ({}, {"kind": "decisions"}, {"kind": "decisions", "anchor": ANCHOR})
    ]
    assert [setup.writer and setup.writer.model for setup in made] == ["gpt-6-luna", None, "gpt-5"]
    for setup in made:
        asyncio.run(setup.judge.aclose())
