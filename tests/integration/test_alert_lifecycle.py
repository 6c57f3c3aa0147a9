"""A drop in real traffic: the webhook is told, with cause and worst answers, and told again when it is over."""

import contextlib
import itertools
import threading
import time

import httpx

from tests.support.product import Webhook, product
from tests.support.scripted_model import Model, serve

CONFIG = """
[[upstreams]]
base_url = "{url}"

[judge]
base_url = "{url}"
model = "judge-1"

[metrics.faithfulness]
rate = 1.0

[metrics.context_relevancy]
rate = 1.0

[alerts]
bucket_s = 1
watermark_s = 1

[[alerts.rules]]
metric = "faithfulness"
slo = 0.8
severity = "page"

[[notifiers]]
kind = "webhook"
url = "{hook}"
"""
GOOD = "Mars has two small moons. The moons of Mars are called Phobos and Deimos."
WRONG = "Saturn is known for its rings. The rings of Saturn are made mostly of ice."
QUESTION = "How many moons has Mars?"
PROMPT = (
    "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the "
    "question. If you don't know the answer, just say that you don't know.\n"
    "Question: {question} \nContext: {context} \nAnswer:"
)


class App:
    """A RAG app whose retrieval can break."""

    def __init__(self, base_url):
        self.broken = False
        self.statuses = []
        self._url = f"{base_url}/chat/completions"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with httpx.Client(timeout=60, headers={"x-gaugeway-app": "shop"}) as client:
            for number in itertools.count():
                content = PROMPT.format(question=QUESTION, context=WRONG if self.broken else GOOD)
                body = {"model": "m", "seed": number, "messages": [{"role": "user", "content": content}]}
                self.statuses.append(client.post(self._url, json=body).status_code)
                if self._stop.wait(0.03):
                    return

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def test_a_drop_is_told_with_its_cause_and_told_again_when_it_is_over(tmp_path):
    with serve(Model()) as url, contextlib.closing(Webhook()) as hook:
        with product(tmp_path, CONFIG.format(url=url, hook=hook.url)) as running, App(running.base_url) as app:
            running.until(lambda: mean(running, "n_eff") >= 120, 60, what="a healthy phase")
            assert mean(running, "mean") > 0.9
            assert hook.bodies == []
            broken_at = time.time()
            app.broken = True
            running.until(lambda: hook.bodies, 60, what="the alert is told")
            fired = running.get("/api/alerts")[0]
            app.broken = False
            running.until(lambda: hook.bodies[-1]["status"] == "resolved", 90, what="its end is told")
        assert set(app.statuses) == {200}
    told = [(body["status"], body["alerts"][0]) for body in hook.bodies]
    first, last = hook.bodies[0], hook.bodies[-1]
    alert = [one for status, one in told if status == "firing"][-1]  # where the cause took long, an update names it
    assert (first["version"], first["status"], alert["status"]) == ("4", "firing", "firing")
    assert alert["labels"]["alertname"] == "GaugewayQualityDrop"
    assert {key: alert["labels"][key] for key in ("metric", "app", "severity")} == {
        "metric": "faithfulness",
        "app": "shop",
        "severity": "page",
    }
    annotations = alert["annotations"]
    assert set(annotations) >= {"summary", "mean_before", "mean_since", "ci", "onset", "evidence", "likely_cause"}
    assert float(annotations["mean_before"]) > 0.9
    assert float(annotations["mean_since"]) < 0.5
    assert annotations["likely_cause"] in ("retrieval", "unknown")  # with very few scores it may be too early to say
    assert abs(fired["finding"]["onset"] - broken_at) < 5
    worst = annotations["worst_exchanges"].split(",")
    assert len(worst) == 3
    resolved = last["alerts"][0]
    assert resolved["status"] == "resolved"
    assert resolved["fingerprint"] == alert["fingerprint"]
    assert resolved["endsAt"] > resolved["startsAt"]
    assert list(dict.fromkeys(status for status, _ in told)) == ["firing", "resolved"]


def mean(running, key):
    rows = running.get("/api/metrics")
    return next((row[key] for row in rows if row["metric"] == "faithfulness" and row[key] is not None), 0.0)
