"""Notifications about names and texts that strangers chose, and about very many alerts at once."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace

import msgspec
import pytest

from gaugeway.records import Evaluation, Example, Sample, Score
from gaugeway.redaction import Redactor
from gaugeway.settings.shared import Alerts
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores.hashing_store import HashingStore
from monitors.alerting.delivery import MAX_GROUPS, MAX_IN_MESSAGE, MAX_MESSAGES
from monitors.alerting.description import Describer
from monitors.alerting.notifiers import NO_PAGE, Links, Route
from monitors.alerting.notifiers.email import MAX_ALERTS, html_of, text_of
from monitors.alerting.notifiers.factory import LogNotifier
from monitors.alerting.notifiers.message import MAX_LABEL, MAX_WORST
from monitors.alerting.notifiers.slack import message
from monitors.alerting.notifiers.webhook import group_body
from tests.support.alerting import Crowd, People, webhook_body
from tests.support.delivering import delivering
from tests.support.receivers import alert

T0 = 1_760_000_000.0
HUGE = "x" * 500_000
QUOTED = Example(id="x1", value=0.1, question="Where is it?", answer="In the\nshed.", faults=("no passage says so",))


def annotations(one, links=NO_PAGE):
    return webhook_body(one, links)["alerts"][0]["annotations"]


def test_the_body_quotes_the_worst_answers_and_links_to_them_and_to_the_runbook():
    told = annotations(alert(examples=(QUOTED,)), links=Links("https://q.example/", "https://q.example/runbook"))
    assert told["worst_answers"] == "x1: 0.100 · Where is it? · → In the shed. · no passage says so"
    assert told["worst_exchanges"] == "x1,x2"
    assert told["worst_exchange_links"] == "https://q.example/exchanges/x1,https://q.example/exchanges/x2"
    assert told["runbook"] == "https://q.example/runbook"


def test_where_nothing_may_be_quoted_the_body_has_ids_only():
    told = annotations(alert(examples=(Example(id="x1", value=0.1), Example(id="x2", value=0.2))))
    assert (told["worst_answers"], told["worst_exchanges"]) == ("", "x1,x2")


@pytest.mark.parametrize(("quotes", "stored"), [(True, True), (False, True), (True, False)])
async def test_texts_are_quoted_only_where_alerts_and_the_store_may_have_them(tmp_path, quotes, stored):
    store = SQLiteStore(tmp_path / "store.db")
    keeping = store if stored else HashingStore(store, Redactor((), (), "salt"), window_s=60.0)
    sample = Sample(id="x1", started_at=T0 + 10.0, app="shop", question="Where is Jane?", response="In the shed.")
    outcome = Score(0.1, evidence=({"claim": "Jane is in the shed", "verdict": "not_mentioned"},))
    await keeping.add(sample, [Evaluation(sample_id="x1", metric="faithfulness", version="1", outcome=outcome)])
    one = alert(finding=replace(alert().finding, onset=T0), worst_exchanges=())
    described = Describer(store, lower_is_better=lambda _: False, content=quotes)
    try:
        found = await described.describe(one, T0 + 100.0, ())
    finally:
        await store.aclose()
    told = annotations(found)
    assert found.worst_exchanges == ("x1",)
    assert told["worst_exchanges"] == "x1"
    if quotes and stored:
        assert told["worst_answers"] == "x1: 0.100 · Where is Jane? · → In the shed. · Jane is in the shed"
    else:
        assert told["worst_answers"] == ""
        everything = json.dumps([webhook_body(found), message([found], NO_PAGE), text_of([found], NO_PAGE)])
        for text in ("Jane", "shed", "blake2b"):
            assert text not in everything


def hostile(n=1):
    example = Example(id="x1", value=0.1, question=HUGE, answer=HUGE, faults=(HUGE,) * 5)
    return [
        alert(
            app=f"{number}{HUGE}",
            slice=f"tag:tenant={HUGE}",
            affected=(HUGE,),
            fingerprint=f"{number:016x}",
            examples=(example,) * 3,
        )
        for number in range(n)
    ]


def test_what_is_sent_is_bounded_whatever_the_names_and_texts():
    (one,) = hostile()
    body = webhook_body(one)
    assert len(body["alerts"][0]["labels"]["app"]) == MAX_LABEL
    assert len(body["alerts"][0]["annotations"]["worst_answers"]) <= MAX_WORST
    assert len(msgspec.json.encode(body)) < 20_000
    assert len(msgspec.json.encode(group_body(hostile(20)))) < 20 * 10_000
    many = hostile(3) * 40
    assert len(text_of(many[:MAX_ALERTS], NO_PAGE)) < MAX_ALERTS * 10_000
    assert len(html_of(many[:MAX_ALERTS], NO_PAGE)) < MAX_ALERTS * 12_000
    assert len(msgspec.json.encode(message(many, Links("https://q.example")))) < 40_000


def test_two_long_names_stay_two_names():
    one, other = (webhook_body(alert(app=HUGE + end))["commonLabels"]["app"] for end in "ab")
    assert one != other


def test_slack_makes_no_link_or_mention_of_what_strangers_wrote():
    name = "https://evil.example @here #general <!channel> <https://evil.example|click>"
    sent = message([alert(app=name, examples=(replace(QUOTED, question=name),))], Links("https://q.example"))
    texts = [block.get("text") for block in sent["blocks"]] + [
        one for block in sent["blocks"] for one in (*block.get("fields", ()), *block.get("elements", ()))
    ]
    for text in filter(None, texts):
        assert text["type"] == "plain_text" or text["verbatim"] is True
        assert "<!" not in text["text"]
        assert "<https://evil" not in text["text"]
    assert (sent["unfurl_links"], sent["unfurl_media"]) == (False, False)


def test_control_characters_in_texts_make_no_lines_and_turn_no_text_around():
    example = replace(QUOTED, question="a\r\nBcc: all\x1b[2J\u202egnp", answer="b\x00c")
    told = annotations(alert(examples=(example,)))["worst_answers"]
    assert told.isprintable()
    assert "a Bcc: all [2J gnp" in told


def storm(path, apps=2000, rounds=1, **notifiers):
    """So many apps fire at once, for so many rounds of deliveries."""

    async def main():
        async with delivering(path, Alerts(group_wait_s=0.0, group_interval_s=1.0), **notifiers) as world:
            for _ in range(rounds):
                await world.tick(*(alert(app=f"app-{n}", fingerprint=f"{n:016x}") for n in range(apps)), after=1.0)

    asyncio.run(main())


def test_two_thousand_apps_that_fire_at_once_are_ten_messages(tmp_path):
    crowd = Crowd()
    storm(tmp_path, crowd=crowd, rounds=3)
    assert len(crowd.messages) == 2000 / MAX_IN_MESSAGE
    assert max(map(len, crowd.messages)) == MAX_IN_MESSAGE
    assert len({one.fingerprint for one in crowd.alerts}) == 2000


def test_a_few_apps_have_a_message_each(tmp_path):
    crowd = Crowd()
    storm(tmp_path, crowd=crowd, apps=MAX_GROUPS)
    assert [len(one) for one in crowd.messages] == [1] * MAX_GROUPS


def test_who_is_told_one_by_one_is_told_in_rounds(tmp_path):
    people = People()
    storm(tmp_path, people=people, apps=500)
    assert len(people.alerts) == MAX_MESSAGES
    people = People()
    storm(tmp_path / "again", people=people, apps=500, rounds=3)
    assert len({one.fingerprint for one in people.alerts}) == len(people.alerts) == 500


def test_a_receiver_that_is_down_is_one_line_a_round(tmp_path, caplog):
    storm(tmp_path, people=People(failures=10_000), crowd=Crowd(failures=10_000), apps=300)
    lines = [one.getMessage() for one in caplog.records if "rejected" in one.getMessage()]
    assert sorted(line.partition(", the first")[0] for line in lines) == [
        "notifier crowd rejected 300 alerts",
        f"notifier people rejected {MAX_MESSAGES} alerts",
    ]


def test_the_heartbeat_comes_before_the_storm(tmp_path):
    people = People()
    people.route = Route(heartbeat=True)
    storm(tmp_path, people=people, apps=300)
    assert people.alerts[0].rule == "watchdog"


async def test_an_alert_is_a_line_of_the_log_beside_any_other_notifier(tmp_path, caplog):
    caplog.set_level(logging.INFO, "gaugeway.alerts")
    evil = "shop\n2026-01-01 WARNING gaugeway.alerts forged \u202e" + HUGE
    firing = alert(app=evil)
    notifiers = {"hook": Crowd(), "log-0": LogNotifier()}
    async with delivering(tmp_path, Alerts(group_wait_s=0.0), **notifiers) as world:
        for one in (firing, firing, replace(firing, state="resolved", ended_at=T0)):
            await world.tick(one)
    lines = [record for record in caplog.records if record.name == "gaugeway.alerts"]
    assert [record.levelname for record in lines] == ["WARNING", "INFO"]
    for record in lines:
        assert record.getMessage().isprintable()
        assert len(record.getMessage()) < 1000
