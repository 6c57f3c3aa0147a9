"""Events for PagerDuty, against a server that takes nothing but what its Events API takes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
import pytest

from monitors.alerting.notifiers import NotDeliveredError
from monitors.alerting.notifiers.message import RUNBOOK
from monitors.alerting.notifiers.pagerduty import PagerDutyNotifier
from tests.support.receivers import Strict, alert, receiver, strict

Text = Annotated[str, msgspec.Meta(min_length=1)]
Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-z]{32}$")]
KEY = "r0ut1ngk3y" + "0" * 22


class Payload(Strict):
    summary: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    source: Text
    severity: Literal["critical", "error", "warning", "info"]
    timestamp: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")] = (
        "1970-01-01T00:00:00Z"
    )
    component: str = ""
    group: str = ""
    class_: str = msgspec.field(name="class", default="")
    custom_details: dict[str, Any] = msgspec.field(default_factory=dict)


class Link(Strict):
    href: Annotated[str, msgspec.Meta(pattern="^https?://")]
    text: str = ""


class Trigger(Strict, tag_field="event_action", tag="trigger"):
    routing_key: Key
    payload: Payload
    dedup_key: Annotated[str, msgspec.Meta(max_length=255)] = ""
    client: str = ""
    client_url: str = ""
    links: list[Link] = msgspec.field(default_factory=list)
    images: list[dict[str, str]] = msgspec.field(default_factory=list)


class Resolve(Strict, tag_field="event_action", tag="resolve"):
    routing_key: Key
    dedup_key: Text


class Acknowledge(Strict, tag_field="event_action", tag="acknowledge"):
    routing_key: Key
    dedup_key: Text


pagerduty = strict(
    Trigger | Resolve | Acknowledge,
    (202, {"status": "success", "message": "Event processed", "dedup_key": "x"}),
    lambda reason: (400, {"status": "invalid event", "message": "Event object is invalid", "errors": [reason]}),
)


def send(*steps, answer=pagerduty, **options):
    async def main():
        async with receiver(answer) as (origin, received):
            notifier = PagerDutyNotifier(**{"routing_key": KEY, "url": f"{origin}/v2/enqueue", **options})
            assert KEY not in repr(notifier)
            for method, one in steps:
                await getattr(notifier, method)(one)
            return [request.json for request in received]

    return asyncio.run(main())


def test_an_incident_is_triggered_acknowledged_and_resolved_under_one_key():
    events = send(("notify", alert()), ("acknowledge", alert()), ("notify", alert("resolved")))
    assert [event["event_action"] for event in events] == ["trigger", "acknowledge", "resolve"]
    assert {event["dedup_key"] for event in events} == {"0123456789abcdef"}
    payload = events[0]["payload"]
    assert payload["summary"].startswith("faithfulness of shop fell from 0.91 to 0.62")
    assert (payload["component"], payload["group"], payload["class"]) == ("faithfulness", "shop", "GaugewayQualityDrop")
    assert payload["custom_details"]["likely_cause"] == "retrieval"
    assert payload["custom_details"]["mean_since"] == "0.620"
    assert events[0]["links"] == [{"href": RUNBOOK, "text": "the runbook"}]


@pytest.mark.parametrize(
    ("ours", "theirs"), [("page", "critical"), ("warn", "warning"), ("error", "error"), ("whatever", "info")]
)
def test_severities_are_theirs(ours, theirs):
    (event,) = send(("notify", alert(severity=ours)))
    assert event["payload"]["severity"] == theirs


def test_links_lead_to_the_alert_and_its_worst_exchanges():
    options = {"public_url": "https://quality.example", "runbook_url": "https://wiki.example/rag"}
    (event,) = send(("notify", alert(worst_exchanges=("x/1",))), **options)
    assert event["client_url"] == "https://quality.example/alerts/0123456789abcdef"
    assert [one["href"] for one in event["links"]] == [
        "https://quality.example/alerts/0123456789abcdef",
        "https://wiki.example/rag",
        "https://quality.example/exchanges/x%2F1",
    ]


def test_a_long_name_does_not_make_the_event_too_long():
    names = {"app": "a" * 100_000, "slice": "tag:tenant=" + "b" * 100_000, "affected": ("c" * 100_000,)}
    (event,) = send(("notify", alert(**names)))
    assert len(event["payload"]["summary"]) <= 1024
    assert len(event["payload"]["group"]) == 200
    assert len(str(event)) < 5000


def test_what_is_refused_is_not_delivered_and_the_key_is_not_told(caplog):
    caplog.set_level("DEBUG")
    with pytest.raises(NotDeliveredError, match="answered 400") as raised:
        send(("notify", alert()), routing_key="s3cret")
    with pytest.raises(NotDeliveredError, match="answered 429"):
        send(("notify", alert()), answer=lambda _: (429, {}))
    assert "s3cret" not in str(raised.value) + caplog.text
