"""What notifiers send, to whom, and what they never write down."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

import pytest

from gaugeway.records import Alert, Finding
from monitors.alerting.notifiers import NotDeliveredError
from monitors.alerting.notifiers.factory import LogNotifier
from monitors.alerting.notifiers.message import facts, strength, summary
from monitors.alerting.notifiers.webhook import WebhookNotifier
from tests.support.alerting import webhook_body

FIRING = Alert(
    fingerprint="0123456789abcdef",
    rule="answers",
    metric="faithfulness",
    app='say "hi"',
    severity="page",
    state="firing",
    since=1_760_000_100.0,
    finding=Finding(evidence_log10=0.25, baseline=0.85, onset=1_760_000_040.0, n=120, estimate=0.62),
    mean_before=0.91,
    mean_since=0.62,
    ci=(0.55, 0.69),
    likely_cause="retrieval",
    worst_exchanges=("x1", "x2"),
)
RESOLVED = Alert(
    fingerprint="0123456789abcdef",
    rule="answers",
    metric="faithfulness",
    app="shop",
    severity="page",
    state="resolved",
    since=1_760_000_100.0,
    ended_at=1_760_003_700.0,
    finding=Finding(evidence_log10=0.25, baseline=0.85, onset=1_760_000_040.0, n=12),
)


@asynccontextmanager
async def receiver(status=200, silent_s=0.0):
    """A real HTTP server on loopback that keeps what it was sent: (request line, headers, JSON)."""
    received, serving = [], set()

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        received.append((head[0], headers, json.loads(body)))
        try:
            await asyncio.sleep(silent_s)
            writer.write(f"HTTP/1.1 {status} X\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".encode())
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", received
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    await asyncio.sleep(0)  # their connections are closed with the loop's next step


def notify(url, status=200, silent_s=0.0, timeout_s=5.0):
    async def main():
        async with receiver(status, silent_s) as (address, received):
            await WebhookNotifier(url.format(address), timeout_s=timeout_s).notify(FIRING)
            return received

    return asyncio.run(main())


def test_a_firing_alert_is_told_in_alertmanagers_words():
    body = webhook_body(FIRING)
    labels = {
        "alertname": "GaugewayQualityDrop",
        "metric": "faithfulness",
        "app": 'say "hi"',
        "rule": "answers",
        "severity": "page",
    }
    assert set(body) == {
        *("version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels"),
        *("commonAnnotations", "externalURL", "alerts"),
    }
    assert (body["version"], body["status"], body["commonLabels"]) == ("4", "firing", labels)
    assert body["groupLabels"].items() <= labels.items()
    assert body["groupKey"].startswith('{}:{alertname="GaugewayQualityDrop", app="say \\"hi\\""')
    (alert,) = body["alerts"]
    assert alert["labels"] == labels
    assert alert["annotations"] == body["commonAnnotations"]
    assert alert["fingerprint"] == "0123456789abcdef"
    assert alert["startsAt"] == "2025-10-09T08:55:00.000Z"
    assert alert["endsAt"] == "0001-01-01T00:00:00Z"
    assert (alert["generatorURL"], body["externalURL"]) == ("", "")
    assert alert["annotations"] == {
        "summary": summary(FIRING),
        "mean_before": "0.910",
        "mean_since": "0.620",
        "ci": "0.550 to 0.690",
        "changed": "",
        "onset": "2025-10-09T08:54:00.000Z",
        "evidence": "0.25",
        "likely_cause": "retrieval",
        "cause_detail": "",
        "cause_strength": "",
        "cause_evidence": "",
        "cause_hop": "",
        "cause_tool": "",
        "source": "",
        "first_cause": "",
        "affected_slices": "",
        "worst_exchanges": "x1,x2",
        "worst_exchange_links": "",
        "worst_answers": "",
        "runbook": "http://127.0.0.1:9465/runbook",
    }


def test_a_cause_is_sent_with_its_strength_and_what_it_rests_on():
    alert = replace(FIRING, cause_strength=0.97, cause_evidence=("sizes of the falls of faithfulness", "anchors"))
    notes = webhook_body(alert)["commonAnnotations"]
    assert notes["cause_strength"] == "strong (0.97)"
    assert notes["cause_evidence"] == "sizes of the falls of faithfulness; anchors"
    assert notes["summary"].endswith(". Retrieval: the passages got worse (strong evidence).")
    assert ("Evidence for it", "strong (0.97)") in facts(alert)
    assert strength(replace(FIRING, cause_strength=0.9999)) == "strong (0.99)"
    assert strength(replace(FIRING, cause_strength=0.7)) == "weak (0.70)"
    assert strength(FIRING) == ""


def test_what_is_not_known_is_said_and_every_annotation_is_a_string():
    body = webhook_body(RESOLVED)
    notes = body["commonAnnotations"]
    assert all(isinstance(value, str) for value in notes.values())
    assert notes["mean_since"] == notes["ci"] == "insufficient data"
    assert notes["worst_exchanges"] == ""
    assert body["status"] == body["alerts"][0]["status"] == "resolved"
    assert datetime.fromisoformat(body["alerts"][0]["endsAt"]).timestamp() == RESOLVED.ended_at
    assert body["externalURL"] == body["alerts"][0]["generatorURL"] == ""


def test_the_summary_is_one_plain_sentence_with_its_numbers_and_interval():
    assert summary(FIRING) == (
        'faithfulness of say "hi" fell from 0.91 to 0.62 (95 % interval 0.550 to 0.690, 120 scores; '
        "began about 2025-10-09 08:54:00 UTC). Retrieval: the passages got worse."
    )
    first = replace(FIRING, mean_before=None, mean_since=1.0, ci=None)
    assert " is 1.000, with no scores before (120 scores, too few for an interval; began about" in summary(first)
    thin = replace(FIRING, ci=None)
    assert "fell from 0.91 to 0.62 (120 scores, too few for an interval; began" in summary(thin)
    assert summary(RESOLVED) == (
        "faithfulness of shop recovered at 2025-10-09T09:55:00.000Z after a drop that began about "
        "2025-10-09T08:54:00.000Z; its worst answers as a data set: gaugeway dataset add NAME --alert 0123456789abcdef"
    )


def test_the_webhook_posts_the_body_as_json():
    ((line, headers, body),) = notify("http://{}/hooks/a%20b?x=1&y=%2F")
    assert line == "POST /hooks/a%20b?x=1&y=%2F HTTP/1.1"
    assert headers["content-type"] == "application/json"
    assert "authorization" not in headers
    assert body == webhook_body(FIRING)


@pytest.mark.parametrize("status", [302, 404, 500])
def test_any_answer_but_success_means_not_delivered(status):
    with pytest.raises(NotDeliveredError, match=f"answered {status}"):
        notify("http://{}/hooks", status=status)


def test_a_receiver_that_does_not_answer_in_time_means_not_delivered():
    with pytest.raises(NotDeliveredError, match="Timeout"):
        notify("http://{}/hooks", silent_s=2.0, timeout_s=0.2)


def test_nobody_listening_means_not_delivered():
    with pytest.raises(NotDeliveredError, match="ConnectError"):
        asyncio.run(WebhookNotifier("http://127.0.0.1:1/hooks").notify(FIRING))


@pytest.mark.parametrize("status", [200, 500])
def test_no_secret_of_the_url_reaches_a_log_or_an_error(caplog, status):
    caplog.set_level(logging.DEBUG)
    error = ""
    try:
        ((line, headers, _),) = notify("http://robot:hunter2@{}/s3cret-path?token=s3cret-token", status=status)
    except NotDeliveredError as raised:
        error = str(raised)
    else:
        assert line == "POST /s3cret-path?token=s3cret-token HTTP/1.1"
        assert headers["authorization"] == "Basic " + base64.b64encode(b"robot:hunter2").decode()
    assert "httpx" in {record.name for record in caplog.records}
    for secret in ("robot", "hunter2", "s3cret"):
        assert secret not in caplog.text
        assert secret not in error


@pytest.mark.parametrize("url", ["ftp://x/y", "hooks.example/s3cret", "", "http://", "http://x:s3cret/"])
def test_a_url_that_is_none_is_refused_without_being_repeated(url):
    with pytest.raises(ValueError, match="webhook") as raised:
        WebhookNotifier(url)
    assert "s3cret" not in str(raised.value)


def test_the_log_gets_a_warning_when_it_fires_and_information_when_it_is_over(caplog):
    caplog.set_level(logging.INFO, logger="gaugeway.alerts")
    asyncio.run(LogNotifier().notify(FIRING))
    asyncio.run(LogNotifier().notify(RESOLVED))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "fell from 0.91 to 0.62" in caplog.text
    assert "x1, x2" in caplog.text
