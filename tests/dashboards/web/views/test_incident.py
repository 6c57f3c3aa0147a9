"""An alert's page leads to all bad answers of what is to blame, and shows nothing that clients wrote as markup."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace as replace_struct

from dashboards.web.format import at, plain_names
from dashboards.web.incident.alert_answers import Levels, is_recovering
from dashboards.web.incident.timeline import timeline_of
from dashboards.web.site import OPERATOR_COOKIE
from dashboards.web.views import alerts as alerts_view
from gaugeway.records import Evaluation, Score
from gaugeway.settings.shared import Rule
from monitors.alerting.acknowledgements import Matcher, Silence
from monitors.alerting.alert_history import AlertHistory, Event
from monitors.alerting.repeat_policy import Progress
from monitors.analysis.incident import reading
from monitors.analysis.incident.reading import incident_span
from monitors.statistics.confidence_sequence import Level
from tests.support.incidents import BAD, incident
from tests.support.pages import ALERTS, EVIL, Parsed, world
from tests.support.receivers import alert as an_alert


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """The comparison may take longer than a page waits for it: these tests wait."""
    monkeypatch.setattr(alerts_view, "COMPARED_S", 60.0)


def links(page, start):
    return [one["href"] for one in page.all("a") if one.get("href", "").startswith(start)]


def listed(page):
    return [urlsplit(one).path.removeprefix("/exchanges/") for one in links(page, "/exchanges/")]


def filtered(page, **wanted):
    """The links to Explore with these fields."""
    found = []
    for one in links(page, "/explore?"):
        fields = {name: values[0] for name, values in parse_qs(urlsplit(one).query).items()}
        if all(fields.get(name) == value for name, value in wanted.items()):
            found.append((one, fields))
    return found


async def every_page(w, address):
    """The exchanges of a list, page after page."""
    found = []
    while address:
        page = await w.page(address)
        found += listed(page)
        address = next((one["href"] for one in page.all("a") if one.get("rel") == "next"), None)
    return found


async def test_what_moved_with_the_metric_is_named_and_what_did_not_is_not(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w)
        for index in range(320):
            name = f"{'bad' if index >= 200 and index % 2 == 0 else 'good'}-{index}"
            sample, _ = await w.store.sample(name)
            scores = {
                "abstained": float(sample.id.startswith("bad")),
                "answer_relevancy": 0.9 + 0.01 * (len(sample.id) % 2),
            }
            await w.store.add(
                sample,
                [
                    Evaluation(sample_id=sample.id, metric=name, version="3", outcome=Score(value))
                    for name, value in scores.items()
                ],
            )
        page = await w.page(f"/alerts/{alert.fingerprint}")
    assert re.search(r"Moved with it: abstained 0\.00 to 0\.\d\d\.", page.words)


async def test_the_source_and_the_release_of_the_bad_answers_are_named_and_lead_to_all_of_them(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w)
        page = await w.page(f"/alerts/{alert.fingerprint}")
        by_source = next(one for one, fields in filtered(page, source=BAD) if "below" in fields)
        by_tag = next(one for one, fields in filtered(page, tag="release=42") if "below" in fields)
        by_source, by_tag = await every_page(w, by_source), await every_page(w, by_tag)
    bad = {f"bad-{index}" for index in range(200, 320, 2)}
    assert len(by_source) == len(set(by_source))
    assert set(by_source) == set(by_tag) == bad
    assert "source faq.md" in page.words
    assert "tag release = 42" in page.words
    assert any("by suspect" in one.get("aria-label", "") for one in page.all("svg"))


async def test_means_before_since_and_now_have_intervals_and_numbers(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w, good=300, since=240)
        page = await w.page(f"/alerts/{alert.fingerprint}")
    for words in ("Before [(][^)]*[)]", "Since the onset", "Now [(]last [^)]*[)]"):
        assert re.search(words + r" 0\.\d{2}\s*0\.\d{2} to 0\.\d{2}; n = \d{3}", page.words), words


async def test_the_worst_answers_stand_beside_good_ones(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w)
        shown = listed(await w.page(f"/alerts/{alert.fingerprint}"))
    assert len([one for one in shown if one.startswith("bad-")]) == 5
    assert len([one for one in shown if one.startswith("good-")]) == 2


async def test_the_cause_at_the_alarm_stays_beside_the_current_one(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w)
        case = w.engine._cases.by_fingerprint[alert.fingerprint]  # noqa: SLF001 - the state after later scores
        case.alert = replace(case.alert, likely_cause="judge", cause_detail="The anchors drifted.", cause_source=None)
        page = await w.page(f"/alerts/{alert.fingerprint}")
    assert alert.at_alarm is not None
    assert alert.at_alarm.cause == alert.likely_cause != "judge"
    assert re.search(r"Cause at the alarm \w+ \(\d+ %\), from the scores before", page.words)
    assert plain_names(alert.at_alarm.detail) in page.text
    assert "The anchors drifted." in page.text


async def test_later_descriptions_keep_the_cause_of_the_alarm(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w)
        now = time.time()
        for index in range(400):
            await w.add(0.1, at=now - 20.0 + index / 20)
        await w.look()
        first, later = alert, next(one for one in w.engine.alerts() if one.fingerprint == alert.fingerprint)
    assert later.at_alarm == first.at_alarm


async def test_an_acknowledgement_remembers_the_name_for_one_click(tmp_path):
    async with world(tmp_path) as w:
        where = f"/alerts/{(await incident(w)).fingerprint}"
        answer = await w.send(where, f"{where}/acknowledge", by="Sam Ö", comment="")
        await w.send(where, f"{where}/unacknowledge")
        page = await w.page(where)
        await w.send(where, f"{where}/acknowledge")  # the form carries the name by itself
        acks = dict(w.engine.acknowledgements.acks())
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{OPERATOR_COOKIE}=Sam%20%C3%96;")
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert "Acknowledge as Sam Ö" in page.words
    assert [one.by for one in acks.values()] == ["Sam Ö"]


@pytest.mark.full
@pytest.mark.parametrize("value", ["%3Cscript%3E", "%FF%FE", "%00%0a%0dSet-Cookie", "a" * 9000, "%E2%80%AE", ""])
async def test_any_cookie_is_harmless(tmp_path, value):
    async with world(tmp_path) as w:
        where = f"/alerts/{(await incident(w, good=100, since=100)).fingerprint}"
        page = await w.page(where, cookie=f"{OPERATOR_COOKIE}={value}")
    assert all("src" in one for one in page.all("script"))
    names = [one["value"] for one in page.all("input") if one.get("name") == "by" and "value" in one]
    assert all(len(one) <= 200 and one.isprintable() for one in names)


async def test_nothing_of_the_data_becomes_markup(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w, app=EVIL, evil=EVIL)
        where = f"/alerts/{alert.fingerprint}"
        await w.send(where, f"{where}/acknowledge", by=EVIL, comment=EVIL)
        page = await w.page(where)
        pages = [page, *[await w.page(one) for one in links(page, "/explore?")[:6]]]
    assert len(pages) == 7
    for page in pages:
        assert all("src" in one for one in page.all("script"))
        assert not page.all("img")
        assert not [one for _, one in page.elements if "onerror" in one]
        assert EVIL in page.text


async def test_a_drop_that_is_confined_to_nothing_says_so(tmp_path):
    async with world(tmp_path) as w:
        await w.drop(bad=200)
        alert = next(one for one in w.engine.alerts() if one.state == "firing" and not one.slice)
        assert "No single value stands out." in (await w.page(f"/alerts/{alert.fingerprint}")).words


async def test_while_the_answers_are_compared_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(alerts_view, "COMPARED_S", 0.0)

    async with world(tmp_path) as w:
        alert = await incident(w, good=100, since=100)
        first = await w.page(f"/alerts/{alert.fingerprint}")
        for _ in range(100):
            later = await w.page(f"/alerts/{alert.fingerprint}")
            if "are being compared" not in later.words:
                break
            await asyncio.sleep(0.1)
    assert "are being compared" in first.words
    assert "source faq.md" in later.words


def test_as_much_time_before_the_onset_as_since_is_compared_within_bounds():
    alert = replace(an_alert(), ended_at=None)
    onset = alert.finding.onset
    before, _, until = incident_span(alert, onset + 90_000.0)
    assert (onset - before, until - onset) == (86_400.0, 90_000.0)
    assert incident_span(alert, onset + 10.0)[0] == onset - 3600.0
    assert incident_span(alert, onset + 30 * 86_400.0)[2] == onset + 7 * 86_400.0


def test_the_timeline_has_notifications_acts_and_what_is_to_come():
    alert = replace(an_alert(), ended_at=an_alert().since + 900.0, state="resolved")
    silence = Silence(
        id="1",
        matchers=(Matcher(name="app", op="=", value="shop"),),
        starts=alert.since + 60,
        ends=alert.since + 5000,
        by="Kim",
    )
    history = [
        Event.of_delivery("failed", alert.since + 20, notifier="mail", task="firing", alert=alert, error="HTTP 500"),
        Event(at=alert.since + 30, kind="acknowledged", by="Sam", comment="on it"),
        Event.of_delivery("delivered", alert.since + 950, notifier="slack", task="resolved", alert=alert),
    ]
    found = timeline_of(
        alert,
        now=alert.since + 1000,
        progress={"mail": Progress(failing="firing", attempts=1, not_before=alert.since + 1100)},
        history=history,
        silences=[silence, replace_struct(silence, id="2", starts=alert.since + 2000, by="another time")],
    )
    words = [one.words for one in found]
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert words[0] == "most likely onset"
    assert "acknowledged by Sam: on it" in words
    assert [one for one in words if one.startswith("silenced by")] == [
        f"silenced by Kim until {at(alert.since + 5000)}"
    ]
    assert "“resolved” delivered to slack" in words
    assert [one.words for one in found if one.ahead] == ["silence ends"]
    assert [(one.trouble, one.at) for one in found if "mail" in one.words] == [(True, alert.since + 20)]


def test_a_failed_delivery_stands_at_its_latest_attempt_and_names_the_next_one():
    alert = an_alert()
    history = AlertHistory()
    for index in range(4):
        event = Event.of_delivery(
            "failed", alert.since + index, notifier="mail", task="firing", alert=alert, error="HTTP 500"
        )
        history.record("f", event)

    def shown(**progress):
        progress = {"mail": Progress(failing="firing", attempts=4, not_before=alert.since + 60.0, **progress)}
        found = timeline_of(
            alert,
            now=alert.since + 5.0,
            progress=progress,
            history=history.of("f"),
            silences=[],
        )
        return [(one.at, one.words) for one in found if "mail" in one.words]

    words = f"“firing” notification to mail failed (4 attempts since {at(alert.since)}): HTTP 500"
    assert shown() == [(alert.since + 3, f"{words}; next attempt at {at(alert.since + 60)}")]
    assert shown(held="firing") == [(alert.since + 3, words)]


def test_names_in_the_timeline_are_text():
    alert = an_alert()
    events = [
        Event(at=alert.since, kind="acknowledged", by=EVIL, comment=EVIL),
        Event(at=alert.since, kind="unacknowledged", by=EVIL),
        Event(at=alert.since, kind="silenced", by=EVIL, comment=EVIL, silence="1", until=alert.since + 9),
        Event(at=alert.since, kind="unsilenced", by=EVIL, silence="1"),
        Event.of_delivery("failed", alert.since, notifier=EVIL, task="firing", alert=alert, error=EVIL),
    ]
    found = timeline_of(alert, now=alert.since, progress={}, history=events, silences=[])
    assert len([one for one in found if "&lt;script&gt;" in one.words]) == 5
    assert not [one for one in found if "<script" in one.words or "<img" in one.words]


@pytest.mark.parametrize(
    ("recovery", "mean", "began_s_ago", "shown"),
    [
        (0.37, 0.53, 200.0, False),
        (0.37, 0.85, 200.0, True),
        (0.60, 0.53, 400.0, False),
        (0.60, 0.53, 200.0, True),
        (0.00, 0.85, 200.0, False),
        (0.60, None, 200.0, False),
    ],
)
def test_a_recovery_is_shown_only_where_the_mean_or_half_of_the_evidence_says_so(recovery, mean, began_s_ago, shown):
    now = 10_000.0
    alert = replace(an_alert(), recovery=recovery, recovering_since=now - began_s_ago, direction="drop")
    level = None if mean is None else Level(mean=mean, n=100)
    levels = Levels(before=level, since=level, now=level, now_s=300.0, before_s=3600.0)
    assert is_recovering(alert, levels, 0.8, now) == shown
    flipped = replace(alert, direction="rise")
    mirrored = levels if mean is None else replace_struct(levels, now=Level(mean=1.0 - mean, n=100))
    assert is_recovering(flipped, mirrored, 0.2, now) == shown


async def test_while_the_mean_is_low_the_page_shows_no_recovery_and_one_mean_since_the_onset(tmp_path):
    async with world(tmp_path) as w:
        alert = await incident(w)
        case = w.engine._cases.by_fingerprint[alert.fingerprint]  # noqa: SLF001 - some evidence by chance
        case.alert = replace(case.alert, recovery=0.37, recovering_since=time.time() - 9000.0)
        for index in range(100):  # later scores, which the alert's description has not
            await w.add(0.1, at=time.time() - 20.0 + index / 10)
        page = await w.page(f"/alerts/{alert.fingerprint}")
    assert "Recovery none yet" in page.words
    assert "37 %" not in page.words
    assert "began to grow" not in page.words
    since = re.search(r"Since the onset (0\.\d{2})", page.words)[1]
    title = re.search(r"faithfulness of shop fell from (0\.\d{2}) to (0\.\d{2})", page.words)
    assert title[2] == since != f"{alert.mean_since:.2f}"
    assert re.search(rf"First notified 0\.\d{{2}} before, {alert.mean_since:.2f} since.* scores; sent 20", page.words)
    assert "Notified means" not in page.words
    assert f": mean {alert.at_alarm.mean_since:.2f}" in page.words


async def test_of_a_sample_no_link_promises_a_number_of_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_ANSWERS", 80)

    async with world(tmp_path) as w:
        answer = await w.client.get(f"/alerts/{(await incident(w)).fingerprint}", headers={"accept": "text/html"})
        text, page = answer.text, Parsed(answer.text)
    assert "Compared: a sample, " in page.words
    assert "The lists have all answers, so they are longer." in page.words
    assert "bad among those compared" in page.words
    assert ">all bad<span" in text
    assert not re.search(r"<a [^>]*>\d+ bad", text)
    assert "Bad: a score below 0." in page.words


async def test_the_bad_answers_of_a_metric_whose_best_value_is_0_are_the_highest(tmp_path):
    rules = (Rule(metric="hallucination", slo=0.15, name="answers"),)
    async with world(tmp_path, alerts=replace_struct(ALERTS, rules=rules)) as w:
        alert = await incident(w, metric="hallucination")
        page = await w.page(f"/alerts/{alert.fingerprint}")
        address = next(one for one, fields in filtered(page, source=BAD) if "above" in fields)
        found = await every_page(w, address)
    assert alert.direction == "rise"
    assert set(found) == {f"bad-{index}" for index in range(200, 320, 2)}
