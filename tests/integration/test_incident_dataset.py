"""An incident in real traffic becomes a data set, and a gate that fails as long as it is back."""

import json
import subprocess
import sys
import threading
from string import ascii_lowercase

import httpx

from tests.support.llm_server import LLMServer, Reply
from tests.support.product import product

METRIC = "lexical_groundedness"
CONFIG = """
[[upstreams]]
base_url = "{url}"

[metrics.lexical_groundedness]
rate = 1.0

[alerts]
bucket_s = 1
watermark_s = 1

[[alerts.rules]]
metric = "lexical_groundedness"
slo = 0.8
severity = "page"
"""
THINGS = [letter * 5 for letter in ascii_lowercase]
FACTS = {f"Where is the {thing}?": f"The {thing} stands behind the old {thing} gate." for thing in THINGS}


class Model:
    """Answers from the passage of each question; ignores it once `broken`."""

    def __init__(self):
        self.broken = threading.Event()

    def __call__(self, request):
        return Reply(content="Bananas contain potassium." if self.broken.is_set() else FACTS[request.text])


class Traffic:
    """The questions by turns, with the passage that answers each."""

    def __init__(self, running):
        self._url, self._stop = f"{running.base_url}/chat/completions", threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with httpx.Client(timeout=60, headers={"x-gaugeway-app": "shop"}) as client:
            while True:
                for question, fact in FACTS.items():
                    told = {"question": question, "contexts": [fact]}
                    body = {"model": "m", "messages": [{"role": "user", "content": question}], "gaugeway": told}
                    assert client.post(self._url, json=body).status_code == 200
                    if self._stop.wait(0.03):
                        return

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def gaugeway(running, *words):
    options = ["--config", running.data.parent / "gaugeway.toml", "--data-dir", running.data]
    line = [sys.executable, "-m", "gaugeway", *words, *options]
    return subprocess.run([*map(str, line)], capture_output=True, text=True, check=False, timeout=120)


def scored(running):
    return sum(row["n"] for row in running.get("/api/metrics") if row["metric"] == METRIC)


def gate(running, *words):
    floor = ("--metrics", METRIC, "--fail-under", f"{METRIC}=0.8")
    outcomes = running.data.parent / "outcomes.db"
    return gaugeway(running, "evaluate", *words, "--run-file", outcomes, *floor)


def test_an_alerts_worst_answers_are_a_gate_that_good_answers_pass(tmp_path):
    model = Model()
    with LLMServer(model) as upstream, product(tmp_path, CONFIG.format(url=upstream.url)) as running:
        with Traffic(running):
            running.until(lambda: scored(running) >= 100, 60, what="a healthy phase")
            model.broken.set()
            running.until(lambda: running.get("/api/alerts"), 60, what="the alert fires")
            (alert,) = running.get("/api/alerts")
        wanted = {"alert": alert["fingerprint"], "by": "ana"}
        added = gaugeway(running, "dataset", "add", "incident", "--alert", alert["fingerprint"])
        assert added.returncode == 0, added.stderr
        (kept,) = running.get("/api/datasets")
        assert (kept["name"], kept["version"], kept["apps"]) == ("incident", 1, ["shop"])
        assert 5 <= kept["rows"] <= 20
        records = running.get("/api/datasets/incident")["records"]
        assert {record["response"] for record in records} == {"Bananas contain potassium."}
        assert {record["provenance"]["alert"] for record in records} == {alert["fingerprint"]}

        bad = gate(running, "--dataset", "incident@1")
        assert bad.returncode == 1, bad.stdout + bad.stderr
        answers = tmp_path / "answers.jsonl"
        good = [{"id": record["id"], "response": FACTS[record["user_input"]]} for record in records]
        answers.write_text("\n".join(map(json.dumps, good)))
        passed = gate(running, answers, "--dataset", "incident@1")
        assert passed.returncode == 0, passed.stdout + passed.stderr

        again = httpx.post(f"{running.monitors}/api/datasets/incident", json=wanted | {"limit": 3}).json()
        assert again["known"] >= 1
        assert (again["added"] <= 3, again["dataset"]["version"]) == (True, 1 + bool(again["added"]))
        fresh = httpx.post(
            f"{running.monitors}/api/datasets/good", json={"app": "shop", "metric": METRIC, "above": 0.9}
        )
        assert (fresh.status_code, fresh.json()["left_out"]) == (201, 0)
        good_ones = gate(running, "--dataset", "good")
        assert good_ones.returncode == 0, good_ones.stdout + good_ones.stderr
