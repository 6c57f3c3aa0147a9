"""Cards for Microsoft Teams, against a workflow that takes nothing but what Teams shows."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
import pytest

from gaugeway.records import Example
from monitors.alerting.notifiers import NO_PAGE, Links, NotDeliveredError
from monitors.alerting.notifiers.factory import NotifierTests
from monitors.alerting.notifiers.teams import MAX_BYTES, TeamsNotifier, message
from tests.support.receivers import Strict, alert, receiver, sent, strict
from tests.support.running import tcp_server

PATH = "/workflows/0a/triggers/manual/paths/invoke?api-version=1&sp=%2Ftriggers%2Fmanual%2Frun&sig=s3cret-_"
PAGE = "https://quality.example"


class OpenUrl(Strict, tag="Action.OpenUrl"):
    title: Annotated[str, msgspec.Meta(min_length=1)]
    url: Annotated[str, msgspec.Meta(pattern="^https?://")]


class TextRun(Strict, tag="TextRun"):
    text: Annotated[str, msgspec.Meta(min_length=1)]
    size: Literal["Large"] = ""
    weight: Literal["Bolder"] = ""
    color: Literal["Attention", "Good", "Default"] = ""
    selectAction: OpenUrl | None = None  # noqa: N815 - the schema's name


class RichTextBlock(Strict, tag="RichTextBlock"):
    inlines: Annotated[list[TextRun], msgspec.Meta(min_length=1)]
    separator: bool = False


class Width(Strict):
    width: Literal["Full"]


class Card(Strict, tag="AdaptiveCard", rename={"schema": "$schema"}):
    schema: Literal["http://adaptivecards.io/schemas/adaptive-card.json"]
    version: Literal["1.4"]
    msteams: Width
    body: Annotated[list[RichTextBlock], msgspec.Meta(min_length=1)]
    actions: Annotated[list[OpenUrl], msgspec.Meta(max_length=6)]


class Attachment(Strict):
    contentType: Literal["application/vnd.microsoft.card.adaptive"]  # noqa: N815 - the schema's name
    contentUrl: None  # noqa: N815 - the schema's name
    content: Card


class Message(Strict, tag="message"):
    attachments: Annotated[list[Attachment], msgspec.Meta(min_length=1, max_length=1)]


taken = strict(Message, (202, {}), lambda reason: (400, {"error": reason}))


def workflow(request):
    """Accept what fits; the real one accepts larger messages too, and drops them."""
    return (413, {}) if len(request.body) > 28 * 1024 else taken(request)


def send(*alerts, answer=workflow, links=NO_PAGE, headers=None):
    def build(origin):
        return TeamsNotifier(url=origin + PATH)

    return asyncio.run(sent(build, *alerts, answer=answer, links=links, headers=headers))


def lines(body: bytes) -> list[str]:
    """The text of each block."""
    card = msgspec.json.decode(body, type=Message).attachments[0].content
    return ["".join(run.text for run in block.inlines) for block in card.body]


def links(body: bytes) -> dict[str, str]:
    """What can be clicked -> the address that it opens."""
    card = msgspec.json.decode(body, type=Message).attachments[0].content
    runs = [run for block in card.body for run in block.inlines if run.selectAction]
    return {run.text: run.selectAction.url for run in runs} | {action.title: action.url for action in card.actions}


def test_a_card_has_the_numbers_the_cause_and_links_to_the_worst_exchanges():
    (request,) = send(alert(cause_detail="fewer passages fit"), links=Links(PAGE, f"{PAGE}/runbook"))
    assert request.line == f"POST {PATH} HTTP/1.1"
    assert request.headers["content-type"] == "application/json"
    title, summary, *rest = lines(request.body)
    assert title == "Firing: faithfulness of shop fell from 0.91 to 0.62"
    assert "fell from 0.91 to 0.62" in summary
    assert {"Since: 0.620", "95 % interval: 0.550 to 0.690", "Likely cause: retrieval", "x1"} <= set(rest)
    assert "Why: fewer passages fit" in rest
    opened = links(request.body)
    assert opened[summary] == opened["Open alert"] == f"{PAGE}/alerts/0123456789abcdef"
    assert opened["x1"] == f"{PAGE}/exchanges/x1"
    assert opened["Runbook"] == f"{PAGE}/runbook"


def test_what_clients_choose_is_text_and_nothing_else():
    hostile = "[click](http://evil.example) **b** <at>all</at> {{DATE(2026-01-01T00:00:00Z)}} \u202e\ud800\x00\nx"
    examples = (Example(id="[a](http://evil.example)", value=0.1, question=hostile, faults=(hostile,)),)
    (request,) = send(alert(app=hostile, cause_detail=hostile, examples=examples), links=Links(PAGE))
    shown = lines(request.body)  # strict: every text is a run, in which there is no Markdown
    assert "Why: [click](http://evil.example) **b** <at>all</at> {{DATE(2026-01-01T00:00:00Z)}} x" in shown
    assert all(line.isprintable() for line in shown)
    assert all(url.startswith((PAGE, "http://127.0.0.1:9465/")) for url in links(request.body).values())
    assert "entities" not in request.json["attachments"][0]["content"]["msteams"], "so nobody is mentioned"


def test_a_resolved_alert_says_so():
    (request,) = send(alert("resolved"))
    title, summary, *_ = lines(request.body)
    assert title == "Resolved: faithfulness of shop fell from 0.91 to 0.62; recovered"
    assert "recovered at" in summary
    assert request.json["attachments"][0]["content"]["body"][1]["inlines"][0]["color"] == "Good"


@pytest.mark.parametrize("character", ["a", "ü", "説", "😀", '"'])
def test_no_message_is_larger_than_teams_takes(character):
    long = character * 5000
    examples = tuple(Example(id=long, value=0.1, question=long, answer=long, faults=(long,)) for _ in range(5))
    sources = {"cause_detail": long, "cause_source": long, "cause_evidence": (long,) * 5, "affected": (long,) * 5}
    many = [alert(app=long, slice=long, fingerprint=f"{i:016}", examples=examples, **sources) for i in range(40)]
    address = f"https://{'a' * 60}.example/{'b' * 300}"
    for some in (many[:1], many):
        (request,) = send(*some, links=Links(address, address))
        assert len(request.body) <= MAX_BYTES
        assert "fell from" in request.body.decode()
    assert any(line.startswith("… and 3") for line in lines(request.body)), "and 30 more, or a few more than that"


def test_a_few_usual_alerts_are_shown_in_full():
    examples = tuple(Example(id=f"x{i}", value=0.1, question="q" * 150, faults=("f" * 150,)) for i in range(3))
    (request,) = send(*(alert(fingerprint=f"{i:016}", examples=examples) for i in range(5)), links=Links(PAGE))
    shown = lines(request.body)
    assert sum("fell from" in line for line in shown) == 5
    assert not any("more" in line for line in shown)


def test_links_are_left_out_without_an_address():
    body = message([alert()], Links(None, ""))
    assert links(body) == {}


@pytest.mark.parametrize(("status", "retry_after", "wait_s"), [(400, "", 0.0), (401, "", 0.0), (429, "30", 30.0)])
def test_a_rejection_is_not_a_delivery_and_names_no_secret(status, retry_after, wait_s, caplog):
    caplog.set_level("DEBUG")
    headers = {"retry_after": retry_after} if retry_after else {}
    with pytest.raises(NotDeliveredError, match=f"answered {status}") as raised:
        send(alert(), answer=lambda _: (status, {"error": "s3cret"}), headers=headers)
    assert raised.value.retry_after_s == wait_s
    assert "s3cret" not in str(raised.value) + caplog.text


def test_a_workflow_that_never_answers_is_given_up(caplog):
    caplog.set_level("DEBUG")

    async def main():
        left = asyncio.Event()

        async def hang(reader: Any, writer: Any) -> None:
            await reader.read()  # until the notifier leaves
            writer.close()
            await writer.wait_closed()
            left.set()

        async with tcp_server(hang) as port:
            try:
                await TeamsNotifier(url=f"http://127.0.0.1:{port}{PATH}", timeout_s=0.2).notify(alert())
            finally:
                await left.wait()

    with pytest.raises(NotDeliveredError, match="Timeout") as raised:
        asyncio.run(main())
    assert "s3cret" not in str(raised.value) + caplog.text


async def test_a_test_notification_is_one_card_that_says_so():
    async with receiver(workflow) as (origin, received):
        tests = NotifierTests({"chat": TeamsNotifier(url=origin + PATH)}, lambda: 1000.0)
        result = await tests.send("chat")
        (request,) = received
    assert result.error == ""
    title, summary, *_ = lines(request.body)
    assert title == "Firing: GaugewayTest"
    assert summary.startswith("TEST of this notifier")
