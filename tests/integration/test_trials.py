"""Trials in the running product: a worse candidate is refused, a better one shipped, an equal one called equal."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

import httpx
import pytest

from tests.support.llm_server import LLMServer, Reply
from tests.support.product import product

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
    sources = f"[1] {RIGHT.format(thing=name)}\n[2] Tides turn twice a day."
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
        said = start(running, "candidate")
        assert other.url in said
        send(running, range(400))
        running.until(lambda: is_over(running, "candidate"), 120, what="a verdict")
        found = report(running, "candidate")
        gate = gaugeway(running, "gate", "candidate", "--output", tmp_path / "gate.xml", "--output", tmp_path / "g.md")
        stored = b"".join(path.read_bytes() for path in running.data.glob("*.db*"))
        metrics = running.get("/api/metrics")
        log = running.log.read_text()
    assert found["verdict"] == verdict, found
    assert (gate.returncode, found["left_out"]) == (code, {}), gate.stderr
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
    assert {row["metric"] for row in metrics if row["app"] == "shop"} >= {METRIC}
    assert sum(row["n"] for row in metrics if row["metric"] == METRIC and not row.get("slice")) <= 400
    assert KEY.encode() not in stored
    assert KEY not in log
