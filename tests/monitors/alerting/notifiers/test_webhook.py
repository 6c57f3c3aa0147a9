"""Signed webhooks, groups in one message, links, and receivers that ask to be left alone."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from pathlib import Path

import pytest

from monitors.alerting.notifiers import NO_PAGE, Links, NotDeliveredError
from monitors.alerting.notifiers.webhook import WebhookNotifier, group_body
from tests.support.alerting import webhook_body
from tests.support.receivers import alert, sent

GUIDE = Path(__file__).parents[4] / "docs" / "how-to" / "get-notified.md"


def post(*alerts, answer=lambda _: (200, {}), headers=None, links=NO_PAGE, **options):
    def build(origin):
        return WebhookNotifier(f"{origin}/hook", **options)

    return asyncio.run(sent(build, *alerts, answer=answer, links=links, headers=headers))


def test_a_signature_covers_the_time_and_every_byte_of_the_body():
    (request,) = post(alert(), secret="s3cret", clock=lambda: 1_760_000_200.9)
    found = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", request.headers["x-gaugeway-signature"])
    assert found[1] == "1760000200"
    assert found[2] == hmac.new(b"s3cret", b"1760000200." + request.body, hashlib.sha256).hexdigest()


def test_the_snippet_of_the_guide_accepts_our_signature_and_no_other():
    (request,) = post(alert(), secret="s3cret", clock=lambda: 1_760_000_200.0)
    (snippet,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names = {}
    exec(snippet, names)
    signature = request.headers["x-gaugeway-signature"]
    check = names["is_genuine"]
    assert check(b"s3cret", signature, request.body, now=1_760_000_230.0)
    assert not check(b"another", signature, request.body, now=1_760_000_230.0)
    assert not check(b"s3cret", signature, request.body + b" ", now=1_760_000_230.0)
    assert not check(b"s3cret", signature, request.body, now=1_760_009_000.0), "an old message sent again"
    for wrong in ("", "t=x,v1=y", "v1=" + "0" * 64, "t=1760000200"):
        assert not check(b"s3cret", wrong, request.body, now=1_760_000_230.0)


def test_without_a_secret_nothing_is_signed():
    (request,) = post(alert())
    assert "x-gaugeway-signature" not in request.headers


def test_alerts_of_one_group_come_in_one_message():
    two = alert(fingerprint="f" * 16, metric="answer_relevancy", state="resolved")
    (request,) = post(alert(), two, links=Links("https://quality.example/g/"), group_by=("app", "slice"))
    body = request.json
    assert (body["status"], body["groupLabels"]) == ("firing", {"app": "shop", "slice": ""})
    assert body["groupKey"] == '{}:{app="shop", slice=""}'
    assert body["commonLabels"] == {
        "alertname": "GaugewayQualityDrop",
        "app": "shop",
        "rule": "answers",
        "severity": "page",
    }
    assert [one["status"] for one in body["alerts"]] == ["firing", "resolved"]
    assert body["externalURL"] == "https://quality.example/g/"
    assert [one["generatorURL"] for one in body["alerts"]] == [
        "https://quality.example/g/alerts/0123456789abcdef",
        "https://quality.example/g/alerts/" + "f" * 16,
    ]


def test_a_single_alert_links_to_its_page_and_carries_its_slice_only_if_it_has_one():
    body = webhook_body(alert(slice="model=m1"), Links("https://quality.example"))
    assert body["externalURL"] == body["alerts"][0]["generatorURL"] == "https://quality.example/alerts/0123456789abcdef"
    assert body["groupLabels"]["slice"] == "model=m1"
    assert "slice" not in webhook_body(alert())["commonLabels"]
    assert "(model m1) fell" in body["commonAnnotations"]["summary"]


def test_the_cause_and_the_other_slices_are_annotations():
    notes = webhook_body(alert(cause_detail="m1 answers worse", affected=("model=m1", "tag:tenant=a")))
    assert notes["commonAnnotations"]["cause_detail"] == "m1 answers worse"
    assert notes["commonAnnotations"]["affected_slices"] == "model=m1,tag:tenant=a"


def test_a_group_of_resolved_alerts_is_resolved():
    assert group_body([alert("resolved"), alert("resolved", metric="x")])["status"] == "resolved"


@pytest.mark.parametrize(("said", "waits"), [("7", 7.0), ("999999", 3600.0), ("Fri, 21 Nov 2025 00:00:00 GMT", 0.0)])
def test_how_long_to_wait_is_passed_on(said, waits):
    with pytest.raises(NotDeliveredError, match="429") as raised:
        post(alert(), answer=lambda _: (429, {}), headers={"retry_after": said})
    assert raised.value.retry_after_s == waits
