"""Trials in the running product: a worse candidate is refused, a better one shipped, an equal one called equal."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

import httpx
import pytest

from tests.support.llm_server import LLMServer, Reply, error
from tests.support.postgres import postgres
from tests.support.product import Product, product

METRIC = "lexical_groundedness"
CONFIG = """
[[upstreams]]
base_url = "{live}"

[[upstreams]]
name = "other"
base_url = "{other}"
api_key = "${{TRIAL_TEST_KEY}}"
weight = 0

[prices."candidate-*"]
input = 1.0
output = 10.0

[metrics.lexical_groundedness]
rate = 1.0
"""
KEY = "sk-trial-secret-4711"
RIGHT, WRONG = "The {thing} stands behind the old {thing} gate.", "Bananas contain potassium."


def share_of(text):
    """A number in [0, 1) that is always the same for a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") / 2**32


def answering(right, salt=""):
    """A model that answers this share of the questions from their passages."""

    def answer(request):
        thing = request.text.rpartition("Where is the ")[2].partition("?")[0]
        good = share_of(thing + salt) < right
        return Reply(content=RIGHT.format(thing=thing) if good else WRONG, tokens=(50, 20))

    return answer


def thing(number):
    return "".join(chr(97 + int(digit)) for digit in f"{number:05d}") + "stone"


def ask(running, number, **more):
    name = thing(number)
    sources = f"[1] {RIGHT.format(thing=name)}\n[2] The {name} is {number % 90 + 9} feet tall."
    prompt = f"Answer from the sources.\n\n{sources}\n\nQuestion: Where is the {name}?"
    body = {"model": "live-1", "messages": [{"role": "user", "content": prompt}], **more}
    answered = httpx.post(
        f"{running.base_url}/chat/completions", json=body, headers={"x-gaugeway-app": "shop"}, timeout=30
    )
    assert answered.status_code == 200, answered.text
    return answered


def send(running, numbers, **more):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ask(running, number, **more), numbers))


def gaugeway(running, *words):
    options = ["--config", running.data.parent / "gaugeway.toml", "--data-dir", running.data]
    line = [sys.executable, "-m", "gaugeway", "trial", *words, *options]
    return subprocess.run([*map(str, line)], capture_output=True, text=True, check=False, timeout=120)


def start(running, name, *more, usd=5, candidate=("model=candidate-1",)):
    said = [word for text in ("upstream=other", *candidate) for word in ("--candidate", text)]
    words = (
        "--app",
        "shop",
        "--primary",
        METRIC,
        "--metrics",
        METRIC,
        "--send",
        "redacted",
        "--usd",
        str(usd),
        "--yes",
    )
    done = gaugeway(running, "start", name, *words, "--per-second", "100", "--parallel", "50", *said, *more)
    assert done.returncode == 0, done.stderr
    time.sleep(4)  # the gateway reads every three seconds which trials run
    return done.stdout


def report(running, name):
    return running.get(f"/api/trials/{name}")


def is_over(running, name):
    found = report(running, name)
    return found["state"] == "ended" and all("sending" not in arm["not_answered"] for arm in found["arms"])


def is_scored(running, app):
    return METRIC in {row["metric"] for row in running.get("/api/metrics") if row["app"] == app}


def tried(running, name):
    (arm,) = report(running, name)["arms"]
    return arm["tried"]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("TRIAL_TEST_KEY", KEY)


@pytest.mark.parametrize(
    ("right", "verdict", "code"),
    [(0.2, "do not ship", 1), (1.0, "ship", 0), (0.7, "ship", 0)],
    ids=["worse", "better", "equal"],
)
def test_a_candidate_is_judged_on_live_questions(tmp_path, right, verdict, code):
    with (
        LLMServer(answering(0.7)) as live,
        LLMServer(answering(right)) as other,
        product(tmp_path, CONFIG.format(live=live.url, other=other.url)) as running,
    ):
        assert other.url in start(running, "candidate")
        send(running, range(400))
        running.until(lambda: is_over(running, "candidate"), 120, what="a verdict")
        found, log = report(running, "candidate"), running.log.read_text()
        files = [tmp_path / "gate.xml", tmp_path / "gate.md", tmp_path / "gate.html", tmp_path / "gate.json"]
        gate = gaugeway(running, "gate", "candidate", *(word for file in files for word in ("--output", file)))
        stored = b"".join(path.read_bytes() for path in running.data.glob("*.db*"))
        # a trial may end before the first answer of the app is scored
        running.until(lambda: is_scored(running, "shop"), 60, what="a score of the app")
        metrics = running.get("/api/metrics")
    assert found["verdict"] == verdict, found
    assert gate.returncode == code, gate.stderr
    assert sum(found["left_out"].values()) + found["arms"][0]["tried"] <= 400
    assert set(found["left_out"]) <= {"ended"}
    assert f'failures="{code}"' in (tmp_path / "gate.xml").read_text()
    (arm,) = found["arms"]
    assert (arm["host"], arm["not_answered"]) == (other.url.split("/")[2], {})
    primary = next(row for row in arm["result"]["metrics"] if row["role"] == "primary")
    assert primary["low"] <= primary["difference"] <= primary["high"]
    if right == 0.7:
        assert primary["difference"] == 0.0
        assert primary["saved"] == 1.0
    # the same question and passages, with the candidate's own key, and not streamed
    first = other.requests[0]
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert (first.body["model"], "stream" in first.body, "[1] The " in first.text) == ("candidate-1", False, True)
    assert arm["usd"] == pytest.approx(arm["tried"] * (50 * 1.0 + 20 * 10.0) / 1e6)
    # trial calls are no traffic and no scores of the app
    assert {row["metric"] for row in metrics if "~" in row["metric"]} == set()
    assert sum(row["n"] for row in metrics if row["metric"] == METRIC and not row.get("slice")) <= 400
    assert KEY.encode() not in stored
    assert KEY not in log


COST = (50 * 1.0 + 20 * 10.0) / 1e6


def test_a_hundred_calls_at_once_hold_the_bound_to_the_cent(tmp_path):
    slow = answering(0.7)

    def answer(request):
        return Reply(content=slow(request).content, tokens=(50, 20), delay_s=0.3)

    with (
        LLMServer(answering(0.7)) as live,
        LLMServer(answer) as other,
        product(tmp_path, CONFIG.format(live=live.url, other=other.url)) as running,
    ):
        # a call can cost .0013 USD at most, 100 output tokens, and costs .00025
        start(running, "dear", "--parallel", "100", usd=0.01, candidate=("model=candidate-1", "params.max_tokens=100"))
        send(running, range(150))
        running.until(lambda: is_over(running, "dear"), 120, what="the trial has spent its bound")
        found, calls = report(running, "dear"), len(other.requests)
    assert found["why"] == "spent"
    assert spent_in(found) == pytest.approx(calls * COST)
    assert 0.008 <= calls * COST <= 0.01, "it goes on while there is money, and never beyond"


def spent_in(found):
    return sum(arm["usd"] for arm in found["arms"])


def hanging(_request):
    return Reply(content="late", delay_s=60)


def streaming(_request):
    return Reply(body=b'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n')


@pytest.mark.parametrize(
    ("candidate", "reason", "costs"),
    [
        (lambda _: error(500, "broken"), "failed:http_500", False),
        (hanging, "failed:timeout", True),
        (streaming, "failed:unreadable", True),
        (lambda _: Reply(body=b'{"choices": []}'), "no_answer:empty_response", True),
    ],
    ids=["fails", "hangs", "streams", "empty"],
)
def test_a_provider_that_fails_ends_the_trial_and_no_request_fails(tmp_path, candidate, reason, costs):
    with (
        LLMServer(answering(0.7)) as live,
        LLMServer(candidate) as other,
        product(tmp_path, CONFIG.format(live=live.url, other=other.url)) as running,
    ):
        start(running, "broken", "--timeout-s", "2")
        send(running, range(60))  # each is answered, see `ask`
        running.until(lambda: is_over(running, "broken"), 120, what="the trial ends")
        found = report(running, "broken")
    (arm,) = found["arms"]
    assert found["why"] in ("candidate_fails", "decided")
    assert found["verdict"] in ("do not ship", "not yet")
    assert set(arm["not_answered"]) == {reason}
    assert arm["answered"] == 0
    assert (arm["usd"] > 0.0) is costs
    answered = next(row for row in arm["result"]["metrics"] if row["metric"] == "answered")
    assert (answered["live"], answered["candidate"]) == ((None, None) if candidate is streaming else (1.0, 0.0))
    primary = next(row for row in arm["result"]["metrics"] if row["role"] == "primary")
    assert (primary["n"], primary["candidate"]) == (0, None), "unscored is not 0"


def test_a_restart_in_the_middle_goes_on_and_sends_nothing_twice(tmp_path):
    with (
        LLMServer(answering(0.7)) as live,
        LLMServer(answering(0.7, salt="other")) as other,
        product(tmp_path, CONFIG.format(live=live.url, other=other.url)) as running,
    ):
        start(running, "patient", "--per-second", "10", "--parallel", "5")
        send(running, range(100))
        running.until(lambda: tried(running, "patient") >= 20, 60, what="it has begun")
        running.stop()
        begun = len(other.requests)
        running.start()
        running.until(lambda: sum(map(bool, other.requests)) >= 100, 120, what="it goes on")
        running.until(lambda: "sending" not in str(report(running, "patient")), 60, what="all are judged")
        (arm,) = report(running, "patient")["arms"]
        still_kept = gaugeway(running, "show", "patient", "--format", "json").stdout
    asked = [request.text.rpartition("Question: ")[2] for request in other.requests]
    assert 20 <= begun < 100
    assert len(set(asked)) == len(asked) == 100
    assert arm["answered"] + sum(arm["not_answered"].values()) == 100
    assert set(arm["not_answered"]) <= {"lost"}
    assert json.loads(still_kept)["waiting"] == 0


def test_busy_providers_slow_a_trial_down_and_lose_nothing(tmp_path):
    good = answering(0.7)
    busy = iter([error(429, "slow down", headers={"retry-after": "1"})] * 3)

    def answer(request):
        return next(busy, None) or good(request)

    with (
        LLMServer(answering(0.7)) as live,
        LLMServer(answer) as other,
        product(tmp_path, CONFIG.format(live=live.url, other=other.url)) as running,
    ):
        start(running, "polite", "--parallel", "1")
        send(running, range(15))
        running.until(lambda: tried(running, "polite") >= 15, 90, what="all were tried")
        (arm,) = report(running, "polite")["arms"]
    assert (arm["answered"], arm["not_answered"]) == (15, {})
    assert arm["usd"] == pytest.approx(15 * COST), "a refused call costs nothing"


def test_fewer_passages_are_what_the_app_itself_would_send(tmp_path):
    with (
        LLMServer(answering(0.7)) as live,
        LLMServer(answering(0.7)) as other,
        product(tmp_path, CONFIG.format(live=live.url, other=other.url)) as running,
    ):
        start(running, "fewer", candidate=("model=candidate-1", "max_contexts=1"))
        send(running, range(12), stream=True, stream_options={"include_usage": True})
        running.until(lambda: tried(running, "fewer") >= 12, 30, what="all were tried")
    wanted = {re.sub(r"\n\[2\] .*", "", request.text) for request in live.requests}
    assert {request.text for request in other.requests} == wanted
    assert not any(request.body.keys() & {"stream", "stream_options"} for request in other.requests)


REDACTED = "My mail is jane.roe@example.com. Where is the {thing}?"


@pytest.mark.parametrize(("mode", "tried_count"), [("redacted", 0), ("original", 5)])
def test_what_redaction_would_change_is_sent_only_where_the_user_says_so(tmp_path, monkeypatch, mode, tried_count):
    monkeypatch.setenv("GAUGEWAY_TRIALS_KEY", "a long passphrase of the operator")
    with (
        LLMServer(answering(0.7)) as live,
        LLMServer(answering(0.7)) as other,
        product(
            tmp_path,
            CONFIG.format(live=live.url, other=other.url).replace(
                "[prices", '[capture]\nredact = ["secret", "email"]\n\n[prices', 1
            ),
        ) as running,
    ):
        start(running, "private", "--send", mode, "--per-second", "1" if mode == "redacted" else "0.2")
        for number in range(5):
            text = REDACTED.format(thing=thing(number))
            body = {"model": "live-1", "messages": [{"role": "user", "content": text}]}
            headers = {"x-gaugeway-app": "shop", "authorization": "Bearer sk-the-clients-own"}
            httpx.post(f"{running.base_url}/chat/completions", json=body, headers=headers, timeout=30)
        if mode == "redacted":
            running.until(
                lambda: report(running, "private")["left_out"] == {"redacted": 5}, 60, what="they are counted"
            )
        else:
            running.until(lambda: report(running, "private")["waiting"] >= 1, 60, what="they wait")
        stored = b"".join(path.read_bytes() for path in running.data.glob("trials.db*"))
        if mode == "original":
            running.until(lambda: tried(running, "private") >= 2, 60, what="some were tried")
    assert b"jane.roe" not in stored
    assert b"clients-own" not in stored
    assert all("jane.roe@example.com" in request.text for request in other.requests)
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in other.requests)
    assert len(other.requests) <= tried_count


def test_two_monitors_share_a_trial_and_one_takes_over(tmp_path):
    url = postgres().database()
    engines = f'\n[queue]\nurl = "{url}"\n\n[store]\nurl = "{url}"\n'
    with LLMServer(answering(0.7)) as live, LLMServer(answering(0.7, salt="other")) as other:
        config = CONFIG.format(live=live.url, other=other.url) + engines
        (tmp_path / "second").mkdir()
        second = Product(tmp_path / "second", config, command="monitors")
        with contextlib.ExitStack() as stack, product(tmp_path, config) as first:
            stack.callback(second.stop)
            second.start()
            start(first, "shared", "--per-second", "10", "--parallel", "5")
            send(first, range(100))
            first.until(lambda: tried(first, "shared") >= 20, 60, what="it has begun")
            holder = postgres().ask(url, "SELECT holder FROM terms")[0][0]
            leads = int(holder.rpartition(":")[2])
            os.kill(leads, signal.SIGKILL)
            left = second if leads != second.pid else first
            left.until(lambda: len(other.requests) >= 99, 120, what="the other one goes on")
            left.until(lambda: left.get("/api/trials/shared")["waiting"] == 0, 60, what="nothing waits")
            (arm,) = left.get("/api/trials/shared")["arms"]
    asked = [request.text.rpartition("Question: ")[2] for request in other.requests]
    assert len(set(asked)) == len(asked) == 100, "none twice, none left"
    assert arm["tried"] == 100
    assert sum(arm["not_answered"].values()) <= 5, "those that were being sent when their process was killed"
