"""What is to be redacted is nowhere: not in the files, the logs, the metrics, the spans, nor with the judge."""

import contextlib
import json
from pathlib import Path

import httpx

from gaugeway.redaction import KINDS, Redactor
from tests.integration.test_opentelemetry import Collector
from tests.support.llm_server import LLMServer, Reply
from tests.support.product import product

CORPUS = Path(__file__).parents[1] / "corpora" / "redaction.jsonl"
CONFIG = """
[[upstreams]]
base_url = "{upstream}"

[capture]
content = {content}
redact = ["email", "phone", "card", "iban", "ip", "secret"]

[judge]
base_url = "{judge}"
model = "judge-1"

[metrics.faithfulness]
rate = 1.0

[telemetry]
otlp_endpoint = "{collector}"
content = true
"""


def planted():
    """Lines of the labelled list, with the values in them that the redactor finds."""
    redactor = Redactor(KINDS, (), "gaugeway")
    for line in CORPUS.read_text("utf-8").splitlines():
        entry = json.loads(line)
        redacted = redactor.redact(entry["text"])
        values = [value for _, value in entry["find"] if value not in redacted and len(value) > 6]
        if values:
            yield entry["text"], values


@contextlib.contextmanager
def running(tmp_path, *, content, answer):
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(LLMServer(answer))
        judge = stack.enter_context(LLMServer(Reply(content={"claims": []})))
        collector = stack.enter_context(contextlib.closing(Collector()))
        config = CONFIG.format(
            upstream=upstream.url, judge=judge.url, collector=collector.url, content=str(content).lower()
        )
        yield stack.enter_context(product(tmp_path, config)), judge, collector


def echo(request):
    """An answer that repeats what was asked: models do."""
    return Reply(content="You said: " + request.body["messages"][-1]["content"])


def send(running, index, text, **names):
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": f"You know: {text}"},
            {"role": "user", "content": f"Number {index}: {text}"},
        ],
        "gaugeway": {"contexts": [f"A passage. {text}"], "reference": text, **names},
    }
    response = httpx.post(f"{running.base_url}/chat/completions", json=body, headers={"authorization": "Bearer k"})
    assert response.status_code == 200
    feedback = {"exchange_id": response.headers["x-gaugeway-exchange-id"], "comment": text, "rating": 0.5}
    answer = httpx.post(f"http://127.0.0.1:{running.port}/gaugeway/v1/feedback", json=feedback)
    assert answer.status_code == 202


def everything_kept(running, judge, collector, log):
    files = [path.read_bytes() for path in running.data.rglob("*") if path.is_file()]
    asked = [json.dumps(request.body, ensure_ascii=False).encode() for request in judge.requests]
    metrics = [httpx.get(f"{plane}/metrics").content for plane in (running.admin, running.monitors)]
    return b"\n".join([*files, *asked, *metrics, collector.raw, log.read_bytes()])


def test_nothing_that_is_to_be_redacted_is_found_anywhere(tmp_path):
    chosen = list(planted())[::4]
    with running(tmp_path, content=True, answer=echo) as (gaugeway, judge, collector):
        for index, (text, _) in enumerate(chosen):
            send(gaugeway, index, text, session=text, tags={"note": text})
        gaugeway.until(
            lambda: (
                gaugeway.value(gaugeway.monitors, "gaugeway_evaluations_total", metric="lexical_groundedness")
                == len(chosen)
            ),
            60,
            what="all are evaluated",
        )
        gaugeway.until(
            lambda: gaugeway.value(gaugeway.monitors, "gaugeway_supplements_total", source="feedback") >= len(chosen),
            60,
            what="all feedback arrived",
        )
        gaugeway.until(lambda: b"gen_ai.evaluation.result" in collector.raw, 60, what="events are exported")
        kept = everything_kept(gaugeway, judge, collector, gaugeway.log)
    assert b"A passage." in kept
    assert judge.requests
    found = [value for _, values in chosen for value in values if value.encode() in kept]
    escaped = [value for _, values in chosen for value in values if json.dumps(value)[1:-1].encode() in kept]
    assert found + escaped == []


def test_without_content_the_store_has_scores_and_hashes_only(tmp_path):
    secret = "The launch of the glass bridge is on the ninth floor"
    with running(tmp_path, content=False, answer=echo) as (gaugeway, judge, _):
        send(gaugeway, 1, secret)
        gaugeway.until(
            lambda: gaugeway.value(gaugeway.monitors, "gaugeway_score_count", metric="lexical_groundedness") == 1,
            60,
            what="it is scored, which takes the texts",
        )
        gaugeway.until(
            lambda: gaugeway.value(gaugeway.monitors, "gaugeway_queue_depth") == 0, 60, what="it left the queue"
        )
        (point, *_) = gaugeway.get("/api/exchanges?metric=lexical_groundedness")
        sample = gaugeway.get(f"/api/exchanges/{point['sample_id']}")["sample"]
        store = b"".join(path.read_bytes() for path in gaugeway.data.glob("store.db*"))
        log = gaugeway.log.read_bytes()
    assert sample["question"].startswith("blake2b:")
    assert sample["response"].startswith("blake2b:")
    assert [one["text"][:8] for one in sample["contexts"]] == ["blake2b:"]
    assert [(one["kind"], one["text"]) for one in sample["capture"]["parts"]] == [
        ("instructions", ""),
        ("question", ""),
    ]
    assert any("glass bridge" in json.dumps(request.body) for request in judge.requests)
    assert b"glass bridge" not in store + log
