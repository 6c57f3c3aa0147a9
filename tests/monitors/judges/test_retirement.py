"""When the endpoint of a judge shuts its model down: read over HTTP, shown, and never in the way."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging

import pytest
from prometheus_client import CollectorRegistry

from gaugeway.settings.shared import GroundingVerifier, Judge, SmallJudge
from monitors.evaluation.retirement_watch import DAY_S, RETRY_S, Endpoint, RetirementWatch, endpoints_of
from monitors.exporters.instruments import Instruments
from monitors.judges import retirement
from tests.support.llm_server import LLMServer, Reply, error

NOW = 1_800_000_000.0  # 2027-01-15
SOON = "2027-02-01"
SOON_AT = 1_801_440_000.0


def listing(**entry) -> Reply:
    models = [
        {"id": "other", "object": "model", "shutdown_date": "2027-01-20"},
        {"id": "m", "object": "model", **entry},
    ]
    return Reply(body=json.dumps({"object": "list", "data": models}).encode())


def read(*replies, model="m", **options):
    with LLMServer(*replies, lists_models=True) as server:
        found = asyncio.run(retirement.read(server.url, "key-123", model, **options))
        return found, server.requests


@pytest.mark.parametrize(
    "entry",
    [
        {"shutdown_date": SOON},
        {"shutdown_date": None, "deprecation_date": SOON},
        {"expiration_date": "2027-02-01T00:00:00Z"},
        {"deprecation": "2027-02-01T01:00:00+01:00"},
        {"retirement_date": SOON_AT},
        {"shutdown_date": int(SOON_AT * 1000)},
        {"shutdown_date": "1801440000"},
        {"shutdown_date": "1801440000000"},
        {"shutdown_date": "Mon, 01 Feb 2027 00:00:00 GMT"},
        {"shutdown_date": "Mon, 01 Feb 2027 01:00:00 +0100"},
        {"shutdown_date": "TBD", "deprecation_date": SOON},
    ],
)
def test_the_date_is_read_under_the_names_that_providers_use(entry):
    found, requests = read(listing(**entry))
    assert (found.found, found.at) == ("announced", SOON_AT)
    assert requests[0].path == "/v1/models"
    assert requests[0].headers["authorization"] == "Bearer key-123"


@pytest.mark.parametrize(
    ("reply", "model", "result"),
    [
        (listing(), "m", "none"),
        (listing(shutdown_date=None), "m", "none"),
        (listing(shutdown_date=""), "m", "none"),
        (listing(deprecation=False), "m", "none"),
        (listing(shutdown_date="9999-12-31"), "m", "none"),
        (listing(shutdown_date="9999-12-31T23:59:59Z"), "m", "none"),
        (listing(shutdown_date=253402214400000), "m", "none"),
        (listing(shutdown_date=float("nan")), "m", "unreadable"),
        (listing(shutdown_date=SOON), "alias", "unlisted"),
        (listing(shutdown_date="next spring"), "m", "unreadable"),
        (listing(shutdown_date="9999-99-99"), "m", "unreadable"),
        (listing(shutdown_date="Mon, 99 Foo 2027 00:00:00 GMT"), "m", "unreadable"),
        (listing(shutdown_date=1e300), "m", "unreadable"),
        (listing(shutdown_date=10**400), "m", "unreadable"),
        (listing(shutdown_date="2027"), "m", "unreadable"),
        (listing(shutdown_date={"date": SOON}), "m", "unreadable"),
        (listing(deprecation=True), "m", "unreadable"),
        (Reply(body=b'{"data": "none"}'), "m", "failed"),
        (Reply(body=b'{"data": [1, 2]}'), "m", "failed"),
        (Reply(body=b"<html>"), "m", "failed"),
        (Reply(body=b'{"data":' * 100_000), "m", "failed"),
        (error(404, "no such route"), "m", "failed"),
        (error(500, "broken"), "m", "failed"),
        (Reply(status=302, headers={"location": "http://127.0.0.1:9/"}, body=b""), "m", "failed"),
        (Reply(body=b" " * (9 * 2**20)), "m", "failed"),
        (Reply(body=gzip.compress(b" " * (64 * 2**20)), headers={"content-encoding": "gzip"}), "m", "failed"),
    ],
)
def test_whatever_else_the_endpoint_says_is_counted_and_nothing_more(reply, model, result):
    found, _ = read(reply, model=model)
    assert found.found == result
    assert found.at is None


def test_an_endpoint_that_is_slow_or_gone_is_harmless():
    found, _ = read(Reply(delay_s=20.0), timeout_s=0.2)
    assert found.found == "failed"
    assert asyncio.run(retirement.read("http://127.0.0.1:1/v1", None, "m")).found == "failed"
    assert asyncio.run(retirement.read("http://[bad", None, "m")).found == "failed"


def watched(replies, *, days=5, next_model=None, key="judge.model", now=NOW):
    """Run the watch for some pauses; return the pauses and a function that reads the series."""
    instruments = Instruments(CollectorRegistry(), version="0")
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == days:
            raise asyncio.CancelledError

    with LLMServer(*replies, lists_models=True) as server:
        one = Endpoint(key=key, base_url=server.url, api_key=None, model="m")
        watch = RetirementWatch([one], instruments, next_model=next_model, clock=lambda: now, sleep=sleep)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(watch.run())

    def value(name, **labels):
        return instruments.registry.get_sample_value(f"gaugeway_judge_{name}", {"judge_model": "m", **labels})

    return pauses, value


def test_it_is_read_daily_and_warned_of_thirty_days_ahead(caplog):
    with caplog.at_level(logging.WARNING, "gaugeway.judge"):
        pauses, value = watched([listing(shutdown_date=SOON)], days=3)
    assert pauses == [DAY_S] * 3
    assert value("shutdown_timestamp_seconds") == SOON_AT
    assert value("model_checks_total", result="announced") == 3
    assert [one.message for one in caplog.records] == [
        (
            "judge.model: its endpoint shuts down m in 17 days, on 2027-02-01: "
            "compare a successor with `judge.next_model` before then"
        )
    ] * 3


def test_a_date_far_off_is_shown_and_not_warned_of(caplog):
    with caplog.at_level(logging.WARNING, "gaugeway.judge"):
        _, value = watched([listing(shutdown_date="2027-06-01")], days=1)
    assert value("shutdown_timestamp_seconds") > NOW
    assert not caplog.records


def test_an_outage_keeps_the_date_and_a_date_that_is_withdrawn_goes():
    pauses, value = watched([listing(shutdown_date=SOON), error(500, "down")], days=2)
    assert pauses == [DAY_S, RETRY_S]
    assert value("shutdown_timestamp_seconds") == SOON_AT
    assert value("model_checks_total", result="failed") == 1
    _, value = watched([listing(shutdown_date=SOON), listing(shutdown_date=None)], days=2)
    assert value("shutdown_timestamp_seconds") is None


def test_a_date_that_has_passed_is_still_warned_of(caplog):
    with caplog.at_level(logging.WARNING, "gaugeway.judge"):
        watched([listing(shutdown_date="2027-01-01")], days=1, next_model="m2")
    assert [one.message for one in caplog.records] == [
        "judge.model: its endpoint shut down m on 2027-01-01: compare it with its successor m2 (judge.next_model)"
    ]


def test_the_judge_the_small_one_and_a_verifier_that_chats_are_asked_about():
    small = SmallJudge(base_url="http://b/v1", model="b")
    chat = GroundingVerifier(kind="minicheck", base_url="http://c/v1", model="c")
    found = endpoints_of(Judge(base_url="http://a/v1", model="a", next_model="n", small=small, grounding=chat))
    assert [(one.key, one.base_url, one.model) for one in found] == [
        ("judge.model", "http://a/v1", "a"),
        ("judge.next_model", "http://a/v1", "n"),
        ("judge.small.model", "http://b/v1", "b"),
        ("judge.grounding.model", "http://c/v1", "c"),
    ]
    pairs = GroundingVerifier(kind="classify", base_url="http://c", model="c")
    assert endpoints_of(Judge(base_url="http://a", model="a", api_version="1", grounding=pairs)) == []


def test_a_date_that_cannot_be_read_is_logged_once_and_ends_no_warning(caplog):
    with caplog.at_level(logging.WARNING, "gaugeway.judge"):
        pauses, value = watched([listing(shutdown_date="2027-06-01"), *[listing(shutdown_date="TBD")] * 2], days=3)
    assert pauses == [DAY_S] * 3
    assert [one.message for one in caplog.records] == [
        "judge.model: the shutdown_date of m in its endpoint's list of models cannot be read as a date"
    ]
    assert value("model_checks_total", result="unreadable") == 2
    assert value("shutdown_timestamp_seconds") > NOW


@pytest.mark.parametrize(
    ("now", "when"),
    [
        (SOON_AT - 1.0, "shuts down m in 1 day, on 2027-02-01"),
        (SOON_AT - DAY_S, "shuts down m in 1 day, on 2027-02-01"),
        (SOON_AT + 50_000.0, "shuts down m today, 2027-02-01"),
        (SOON_AT + DAY_S, "shut down m on 2027-02-01"),
    ],
)
@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("judge.next_model", "name another successor"),
        ("judge.small.model", 'choose another model and check its agreement in gaugeway_judge_agreement{tier="small"}'),
        (
            "judge.grounding.model",
            "choose another model; its scores will be on another scale, so baselines are learned again",
        ),
    ],
)
def test_days_are_those_of_the_calendar_and_the_advice_is_that_of_the_model(caplog, now, when, key, advice):
    with caplog.at_level(logging.WARNING, "gaugeway.judge"):
        watched([listing(shutdown_date=SOON)], days=1, now=now, key=key)
    assert [one.message for one in caplog.records] == [f"{key}: its endpoint {when}: {advice}"]


def test_a_number_that_json_does_not_know_spoils_no_other_model():
    body = json.dumps({"data": [{"id": "other", "price": float("nan")}, {"id": "m", "shutdown_date": SOON}]})
    found, _ = read(Reply(body=body.encode()))
    assert (found.found, found.at) == ("announced", SOON_AT)


def test_a_sentinel_hides_no_earlier_date():
    found, _ = read(listing(shutdown_date="9999-12-31", deprecation_date=SOON))
    assert found.at == SOON_AT


def test_a_list_that_cannot_be_read_is_logged_once(caplog):
    with caplog.at_level(logging.INFO, "gaugeway.judge"):
        watched([Reply(body=b"<html>")], days=3)
    assert [one.message for one in caplog.records if one.name == "gaugeway.judge"] == [
        "judge.model: the list of models of its endpoint cannot be read: the reply is not a list of models in JSON"
    ]
