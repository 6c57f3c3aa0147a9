"""Messages for Slack, against a server that takes nothing but what Slack takes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
import pytest

from gaugeway.records import Example
from monitors.alerting.notifiers import NO_PAGE, Links, NotDeliveredError
from monitors.alerting.notifiers.slack import SlackNotifier, message
from tests.support.receivers import Strict, alert, sent, strict


def text(most):
    return Annotated[str, msgspec.Meta(min_length=1, max_length=most)]


class Plain(Strict):
    type: Literal["plain_text"]
    text: text(150)
    emoji: bool = True


class Markdown(Strict):
    type: Literal["mrkdwn"]
    text: text(3000)
    verbatim: Literal[True]


class Field(Strict):
    type: Literal["mrkdwn"]
    text: text(2000)
    verbatim: Literal[True]


class Header(Strict, tag="header"):
    text: Plain


class Section(Strict, tag="section"):
    text: Markdown
    fields: Annotated[list[Field], msgspec.Meta(min_length=1, max_length=10)] | msgspec.UnsetType = msgspec.UNSET


class Context(Strict, tag="context"):
    elements: Annotated[list[Markdown], msgspec.Meta(min_length=1, max_length=10)]


class Message(Strict):
    text: text(40_000)
    blocks: Annotated[list[Header | Section | Context], msgspec.Meta(min_length=1, max_length=50)]
    unfurl_links: Literal[False]
    unfurl_media: Literal[False]


class Posted(Message):
    channel: Annotated[str, msgspec.Meta(min_length=1)]


incoming = strict(Message, (200, {}), lambda _: (400, {"error": "invalid_payload"}))
web_api = strict(
    Posted, (200, {"ok": True, "ts": "1.2"}), lambda reason: (200, {"ok": False, "error": f"invalid_blocks {reason}"})
)


def send(*alerts, answer=incoming, path="/services/T0/B0/s3cret", links=NO_PAGE, **options):
    def build(origin):
        return SlackNotifier(url=origin + path, **options)

    return asyncio.run(sent(build, *alerts, answer=answer, links=links))


def everything(sent: Any) -> str:
    return msgspec.json.encode(sent).decode()


def test_a_message_has_the_numbers_the_cause_and_links_to_the_worst_exchanges():
    (request,) = send(alert(cause_detail="fewer passages fit"), links=Links("https://quality.example"))
    assert request.line == "POST /services/T0/B0/s3cret HTTP/1.1"
    header, section, context, runbook = request.json["blocks"]
    assert "|Runbook>" in runbook["elements"][0]["text"]
    assert header["text"]["text"] == "Firing: faithfulness of shop fell from 0.91 to 0.62"
    assert "fell from 0.91 to 0.62" in section["text"]["text"]
    assert "<https://quality.example/alerts/0123456789abcdef|Open>" in section["text"]["text"]
    fields = {one["text"].partition("\n")[0]: one["text"].partition("\n")[2] for one in section["fields"]}
    assert fields["*Since*"] == "0.620"
    assert fields["*95 % interval*"] == "0.550 to 0.690"
    assert fields["*Likely cause*"] == "retrieval"
    assert fields["*Why*"] == "fewer passages fit"
    assert "<https://quality.example/exchanges/x1|x1>" in context["elements"][0]["text"]


def test_what_clients_choose_is_never_markup():
    names = {"app": "<!channel> & <http://evil.example|click>", "worst_exchanges": ("<@U1>|x",)}
    examples = (Example(id="<@U1>|x", value=0.1, question="<!here> why?", faults=("says <b>",)),)
    (request,) = send(alert(**names, examples=examples), links=Links("https://quality.example"))
    sent = everything(request.json)
    for markup in ("<!channel>", "<!here>", "<http://evil", "<@U1>", "<b>"):
        assert markup not in sent
    assert "&lt;!channel&gt; &amp;" in sent
    assert "0.100 · &lt;!here&gt; why? · says &lt;b&gt;" in sent


def test_a_resolved_alert_says_so():
    (request,) = send(alert("resolved"))
    assert (
        request.json["blocks"][0]["text"]["text"] == "Resolved: faithfulness of shop fell from 0.91 to 0.62; recovered"
    )
    assert ":large_green_circle:" in everything(request.json)


def test_a_large_group_of_long_alerts_is_one_message_within_slacks_limits():
    examples = tuple(Example(id="x" * 300, value=0.1, question="q" * 5000, faults=("f" * 5000,)) for _ in range(5))
    many = [alert(app="<" * 3000, fingerprint=f"{i:016}", examples=examples) for i in range(40)]
    (request,) = send(*many, links=Links("https://quality.example"))
    assert request.json["blocks"][0]["text"]["text"] == "40 firing: GaugewayQualityDrop"
    assert "and 30 more" in everything(request.json)


def test_a_large_group_stays_below_what_all_blocks_may_have_together():
    many = [alert(app="a" * 60, fingerprint=f"{i:016}", cause_detail="c" * 150) for i in range(40)]
    assert len(everything(message(many, Links("https://quality.example"))["blocks"])) < 13_000


def test_a_bots_token_posts_to_a_channel():
    (request,) = send(alert(), answer=web_api, path="/api/chat.postMessage", token="xoxb-s3cret", channel="#quality")
    assert request.headers["authorization"] == "Bearer xoxb-s3cret"
    assert request.json["channel"] == "#quality"


def test_slacks_no_in_an_answer_of_200_is_a_no(caplog):
    caplog.set_level("DEBUG")
    options = {"path": "/api/chat.postMessage", "token": "xoxb-s3cret", "channel": "#quality"}
    with pytest.raises(NotDeliveredError, match="channel_not_found"):
        send(alert(), answer=lambda _: (200, {"ok": False, "error": "channel_not_found"}), **options)
    with pytest.raises(NotDeliveredError, match="is not Slack"):
        send(alert(), answer=lambda _: (200, {"ok": "perhaps"}), **options)
    with pytest.raises(NotDeliveredError, match="answered 404") as raised:
        send(alert(), answer=lambda _: (404, {}))
    assert "s3cret" not in str(raised.value) + caplog.text


@pytest.mark.parametrize(
    ("options", "field"),
    [({}, "url:"), ({"token": "t"}, "channel:"), ({"url": "http://x", "channel": "c"}, "channel:")],
)
def test_what_cannot_work_is_refused(options, field):
    with pytest.raises(ValueError, match=f"^{field}"):
        SlackNotifier(**options)
