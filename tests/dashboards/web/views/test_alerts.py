"""What the page says of an alert, and what people may do about it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from importlib.resources import files
from urllib.parse import parse_qsl

import pytest

from dashboards.web.charts import Dot
from dashboards.web.events import digests
from dashboards.web.format import plain_names, reasons
from dashboards.web.incident.timeline import notified, unreached
from dashboards.web.views import alerts as alerts_view
from dashboards.web.views.alerts import chart, silence_of, span, units_of
from gaugeway.records import Change
from monitors.alerting.acknowledgements import UndeliveredNotification
from monitors.alerting.delivery import Delivery
from monitors.alerting.engine import StreamStatus
from monitors.alerting.notifiers import Route
from monitors.alerting.notifiers.message import at_onset, headline, labels_of, strength, summary, verdict
from monitors.alerting.repeat_policy import Progress
from monitors.analysis.incident.reading import incident_query
from tests.support.alerting import People
from tests.support.incidents import incident
from tests.support.pages import ALERTS, EVIL, world
from tests.support.receivers import alert as an_alert


async def fired(w, **about):
    """An alert that fires, described."""
    await w.drop(**about)
    return next(one for one in w.engine.alerts() if one.state == "firing" and not one.slice)


async def test_without_alerts_the_page_says_so(tmp_path):
    async with world(tmp_path) as w:
        page = await w.page("/alerts")
    assert "no alert is open" in page.words
    assert "No silences" in page.words


async def test_an_unknown_alert_is_404_in_words(tmp_path):
    async with world(tmp_path) as w:
        page = await w.page("/alerts/nowhere", status=404)
    assert "no alert has the fingerprint nowhere" in page.words


async def test_an_alert_says_what_happened_since_when_why_and_what_to_read(tmp_path):
    async with world(tmp_path) as w:
        alert = await fired(w, bad=400)
        page, listed = await w.page(f"/alerts/{alert.fingerprint}"), await w.page("/alerts")
    assert "faithfulness of shop fell from 0.9" in page.words
    assert f"{alert.mean_before:.2f}" in page.words
    assert f"({alert.ci[0]:.2f} to {alert.ci[1]:.2f})" in page.words
    assert plain_names(alert.cause_detail) in page.text
    links = [one.get("href", "").split("?")[0] for one in page.all("a")]
    assert all(f"/exchanges/{one}" in links for one in alert.worst_exchanges[:5])
    assert any("around the onset" in one.get("aria-label", "") for one in page.all("svg"))
    assert {"href": f"/runbook#{alert.likely_cause}"} in page.all("a")
    assert "people: “firing” delivered" in page.words
    assert f"/alerts/{alert.fingerprint}" in [one.get("href") for one in listed.all("a")]


async def test_an_alert_opens_the_dashboard_of_its_app_at_its_time(tmp_path):
    """The link names a dashboard that is shipped, with variables that it has."""
    async with world(tmp_path, grafana_url="https://grafana.example/g/") as w:
        alert = await fired(w, bad=400)
        page = await w.page(f"/alerts/{alert.fingerprint}")
    async with world(tmp_path / "without") as w:
        without = await w.page(f"/alerts/{(await fired(w, bad=400)).fingerprint}")
    (link,) = [one["href"] for one in page.all("a") if one.get("href", "").startswith("https://grafana.example")]
    address, fields = link.split("?")[0], dict(parse_qsl(link.split("?")[1]))
    shipped = json.loads(files("dashboards").joinpath("grafana/app.json").read_text())
    assert address == f"https://grafana.example/g/d/{shipped['uid']}"
    assert {name[4:] for name in fields if name.startswith("var-")} == {"app", "metric"}
    assert {"app", "metric"} <= {variable["name"] for variable in shipped["templating"]["list"]}
    assert (fields["var-app"], fields["var-metric"]) == ("shop", "faithfulness")
    assert float(fields["from"]) < 1000.0 * alert.finding.onset < float(fields["to"])
    assert "Open in Grafana" not in without.words


async def test_a_resolved_alert_says_when_it_recovered_and_which_slices_fell_too(tmp_path, monkeypatch):
    alert = replace(an_alert("resolved"), affected=("model=_other", "model=m-2"))
    alert = replace(alert, ended_at=alert.finding.onset + 496.0)

    async with world(tmp_path) as w:
        monkeypatch.setattr(w.engine, "alerts", lambda: [alert])
        first = await w.page(f"/alerts/{alert.fingerprint}")
        monkeypatch.setattr(w.engine, "alerts", lambda: [replace(alert, unwatched=True)])
        page, unwatched = first, await w.page(f"/alerts/{alert.fingerprint}")
    assert "recovered after 8 min 16 s" in page.words
    assert "no longer watched after 8 min 16 s" in unwatched.words


async def test_an_alert_says_how_strong_the_evidence_for_its_cause_is_and_what_it_rests_on(tmp_path):
    async with world(tmp_path) as w:
        now = time.time()
        for index in range(320):  # the passages stop fitting when the answers drop
            await w.add(0.9 if index < 200 else 0.05, at=now - 7200.0 * (1 - index / 320), metric="context_relevancy")
        alert = await fired(w)
        page = await w.page(f"/alerts/{alert.fingerprint}")
    assert alert.likely_cause == "retrieval"
    assert strength(alert) in page.words
    assert alert.cause_evidence[0].startswith("sizes of the falls of ")
    assert f"Cause rests on {reasons(alert.cause_evidence)}" in page.words
    assert "how far context_relevancy" in page.words


async def test_it_is_acknowledged_and_taken_back(tmp_path):
    async with world(tmp_path) as w:
        where = f"/alerts/{(await fired(w)).fingerprint}"
        answer = await w.send(where, f"{where}/acknowledge", by="Sam", comment="on it")
        after = await w.page(answer.headers["location"])
        await w.send(where, f"{where}/unacknowledge")
        later = await w.page(where)
    assert "Acknowledged: repeat notifications are off" in after.words
    assert "Acknowledged by Sam" in after.words
    assert "on it" in after.words
    assert "Acknowledged by Sam" not in later.words
    assert "acknowledgement undone by Sam" in later.words


async def test_notes_and_an_assignee_are_kept_with_the_alert_and_in_the_api(tmp_path, caplog):
    caplog.set_level("INFO", "gaugeway.audit")
    async with world(tmp_path) as w:
        where = f"/alerts/{(await fired(w)).fingerprint}"
        answer = await w.send(where, f"{where}/note", by="Sam", text=f"index rebuilt\nat 9 {EVIL}")
        noted = await w.page(answer.headers["location"])
        await w.send(where, f"{where}/assign", to="Kim")
        page, listed = await w.page(where), await w.page("/alerts")
        (alert,) = [one for one in (await w.client.get("/api/alerts")).json() if one["assignee"]]
        await w.send(where, f"{where}/assign", to="")
        freed = await w.page(where)
    assert "Note added." in noted.words
    assert f"index rebuilt at 9 {EVIL} Sam, 20" in page.words
    assert "Assigned to Kim" in page.words
    assert "assigned to Kim by Sam" in page.words
    assert not page.all("img")
    assert "Kim" in listed.words
    assert alert["assignee"] == "Kim"
    assert [(note["by"], note["text"]) for note in alert["notes"]] == [("Sam", f"index rebuilt\nat 9 {EVIL}")]
    assert "Unassigned" in freed.words
    assert "no longer assigned by Sam" in freed.words
    assert audited(caplog) == [("note", "ok"), ("assign", "ok"), ("assign", "ok")]


async def test_a_note_without_name_or_text_or_too_long_is_refused_and_so_is_one_too_many(tmp_path):
    async with world(tmp_path) as w:
        fingerprint = (await fired(w)).fingerprint
        where = f"/alerts/{fingerprint}"
        await w.send(where, f"{where}/note", 400, by="Sam", text=" ")
        await w.send(where, f"{where}/note", 400, by="", text="x")
        await w.send(where, f"{where}/note", 400, by="Sam", text="x" * 2001)
        await w.send(where, f"{where}/assign", 400, to="x" * 201)
        for n in range(20):
            await w.engine.acknowledgements.note(fingerprint, str(n), "Sam")
        await w.send(where, f"{where}/note", 409, by="Sam", text="x")
        assert len(w.engine.acknowledgements.history.notes(fingerprint)) == 20


def test_the_headline_names_what_moved_how_far_and_the_changes_before():
    alert = replace(
        an_alert(),
        slice="model=mini",
        changes=(
            Change(kind="prompt", value="v12", replaced="v11", before=0.0, since=1.0),
            Change(kind="tag:release", value="42", before=0.05, since=0.4),
            *(Change(kind="source", value=f"s{n}", before=0.0, since=1.0) for n in range(2)),
        ),
    )
    assert headline(alert) == (
        "faithfulness of shop (model mini) fell from 0.91 to 0.62 after prompt v12, release 42 (40 % of answers) "
        "and 2 more changes"
    )
    ended = replace(alert, state="resolved", changes=())
    assert headline(ended) == "faithfulness of shop (model mini) fell from 0.91 to 0.62; recovered"
    assert headline(replace(ended, unwatched=True)) == "faithfulness of shop (model mini) is no longer watched"


def without_means(text):
    return re.sub(r"\b[01]\.\d\d\b", "#", text)


async def test_page_api_and_notification_have_one_text_which_waits_for_the_cause(tmp_path):
    async with world(tmp_path) as w:
        alert = await fired(w)
        where = f"/alerts/{alert.fingerprint}"
        page, answer = await w.page(where), (await w.client.get(f"/api{where}")).json()
        assert (answer["title"], answer["summary"]) == (headline(alert), summary(alert))
        for text in (headline(alert), verdict(alert), at_onset(alert)):  # the page has the means up to now
            assert without_means(text) in without_means(page.words)
        (case,) = [case for case in w.engine._cases if case.alert.fingerprint == alert.fingerprint]  # noqa: SLF001
        case.alert = replace(alert, changes=None, likely_cause="unknown", cause_detail="", at_alarm=None)
        page = await w.page(where)
        assert "The cause is still being computed" in page.words
        assert "no other cause" not in page.words


@pytest.mark.full
async def test_the_claims_that_failed_are_marked_in_the_answers_and_the_share_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(alerts_view, "COMPARED_S", 60.0)
    async with world(tmp_path) as w:
        alert = await incident(w, good=600, since=400, clusters=True)
        page, listed = await w.page(f"/alerts/{alert.fingerprint}"), await w.page("/alerts")
    marks = [one for one in page.all("mark") if one["class"] == "claim contradicted"]
    assert len(marks) == 5
    assert marks[0]["title"].startswith("A passage says otherwise: within two years")
    share, bad, n = re.search(r"Answers affected (\d+) % (\d+) of (\d+)", page.words).groups()
    assert 190 <= int(bad) <= 200
    assert int(share) == round(100 * int(bad) / int(n))
    assert f"Requests about {bad}" in page.words
    assert 95 <= int(re.search(r"Sessions (\d+)", page.words)[1]) <= 100
    assert f" {share} % " in listed.words


def audited(caplog):
    return [(one.audit["action"], one.audit["outcome"]) for one in caplog.records if hasattr(one, "audit")]


async def test_a_silence_covers_the_alert_and_is_removed_on_the_list(tmp_path, caplog):
    caplog.set_level("INFO", "gaugeway.audit")

    async with world(tmp_path) as w:
        alert = await fired(w)
        where = f"/alerts/{alert.fingerprint}"
        await w.send(where, f"{where}/silence", seconds="3600", by="Sam", comment="release")
        (silence,) = await w.engine.acknowledgements.silences()
        silenced, listed = await w.page(where), await w.page("/alerts")
        await w.send("/alerts", f"/silences/{silence.id}/remove")
        left = await w.engine.acknowledgements.silences()
    assert silence.mutes(labels_of(alert), time.time())
    assert not silence.mutes(labels_of(replace(alert, app="other")), time.time())
    assert abs(silence.ends - silence.starts - 3600.0) < 1.0
    assert "Silenced until" in silenced.words
    assert "release" in listed.words
    assert [(one.removed, one.state(time.time())) for one in left] == [(True, "expired")]
    assert audited(caplog) == [("silence", "ok"), ("unsilence", "ok")]


async def test_a_silence_without_a_name_or_with_a_length_of_its_own_is_refused(tmp_path):
    async with world(tmp_path) as w:
        where = f"/alerts/{(await fired(w)).fingerprint}"
        await w.send(where, f"{where}/silence", 400, seconds="3600", by="  ")
        await w.send(where, f"{where}/silence", 400, seconds="9999999", by="Sam")
        assert not (await w.engine.acknowledgements.silences())


def test_a_slices_silence_is_only_about_the_slice():
    whole, part = an_alert(), replace(an_alert(), slice="model=m-1")
    made = silence_of(part, now=0.0, seconds=60.0, by="Sam", comment="")
    assert made.mutes(labels_of(part), 1.0)
    assert not made.mutes(labels_of(whole), 1.0)
    assert not silence_of(whole, now=0.0, seconds=60.0, by="Sam", comment="").mutes(labels_of(part), 1.0)


async def test_a_rule_with_an_slo_shows_it_and_has_no_baseline_to_reset(tmp_path):
    async with world(tmp_path) as w:
        where = f"/alerts/{(await fired(w)).fingerprint}"
        page, asked = await w.page(where), await w.page(f"{where}/rebaseline", 409)
        key = page.form(f"{where}/silence")["csrf"]
        sent = await w.post(f"{where}/rebaseline", {"csrf": key}, 409)
        w.learns()
        sent, learned = sent.text, await w.page(where)
    assert "SLO 0.85" in page.words
    assert "Baseline" not in page.words
    assert "Reset baseline" not in page.words
    assert "compares with an SLO of 0.85 and learns no baseline" in asked.words
    assert "learns no baseline" in sent
    assert "Baseline 0.85" in learned.words
    assert "Reset baseline" in learned.words


async def test_a_rule_learns_afresh(tmp_path):
    async with world(tmp_path) as w:
        w.learns()
        where = f"/alerts/{(await fired(w)).fingerprint}"
        told, real = [], w.engine.rebaseline
        w.engine.rebaseline = lambda *what: told.append((*what, real(*what)))
        answer = await w.send(f"{where}/rebaseline", f"{where}/rebaseline")
        location = answer.headers["location"]
    assert location.endswith("?done=rebaselined")
    assert told == [("answers", "shop", 1)]


async def test_a_message_that_could_not_be_delivered_is_shown_and_sent_again(tmp_path, caplog):
    caplog.set_level("INFO", "gaugeway.audit")

    async with world(tmp_path) as w:
        alert = await fired(w)
        letter = UndeliveredNotification(
            id="d1",
            notifier="people",
            alert=alert,
            error="OSError: nobody at home",
            attempts=9,
            since=0.0,
            at=time.time(),
        )
        w.engine.acknowledgements.add_undelivered(letter)
        shown = [await w.page("/alerts"), await w.page(f"/alerts/{alert.fingerprint}")]
        w.people.failures = 1
        await w.send("/alerts", "/dead-letters/d1/retry", 502)
        await w.send("/alerts", "/dead-letters/d1/retry")
        left = await w.engine.acknowledgements.undelivered()
    assert all("nobody at home" in page.words for page in shown)
    assert not left
    assert audited(caplog) == [("redeliver", "failed"), ("redeliver", "ok")]


async def test_what_clients_and_people_write_is_text(tmp_path):
    async with world(tmp_path, alerts=ALERTS) as w:
        alert = await fired(w, app=EVIL, model=EVIL, question=EVIL, response=EVIL, tags={"version": EVIL})
        where = f"/alerts/{alert.fingerprint}"
        await w.send(where, f"{where}/acknowledge", by=EVIL, comment=EVIL)
        await w.send(where, f"{where}/silence", seconds="3600", by=EVIL, comment=EVIL)
        pages = [await w.page(path) for path in (where, "/alerts", "/", f"{where}?done={EVIL}")]
    for page in pages:
        assert all("src" in one for one in page.all("script"))
        assert not page.all("img")
        assert EVIL in page.text


def test_the_picture_reaches_as_far_back_as_the_drop_is_old():
    alert = replace(an_alert(), ended_at=None)
    onset = alert.finding.onset
    assert span(alert, onset + 7200.0) == (onset - 7200.0, onset + 7200.0)
    assert span(alert, onset + 10.0) == (onset - 600.0, onset + 10.0)
    ended = replace(alert, ended_at=onset + 3600.0)
    assert span(ended, onset + 90_000.0) == (onset - 3600.0, onset + 3960.0)


def test_the_query_of_a_slice_asks_for_the_slice_alone():
    alert = replace(an_alert(), slice="tag:tenant=a=b")
    assert incident_query(alert, 0.0, 1.0).tag == ("tenant", "a=b")
    assert incident_query(replace(alert, slice="model=m"), 0.0, 1.0).model == "m"
    assert incident_query(replace(alert, slice="model=_other"), 0.0, 1.0).model is None
    assert incident_query(replace(alert, app="*"), 0.0, 1.0).app is None


def test_a_picture_marks_onset_and_end():
    alert = replace(an_alert(), ended_at=an_alert().finding.onset + 60.0)
    onset = alert.finding.onset
    drawn = chart(alert, [Dot(at=onset + n, mean=0.5) for n in range(3)], onset - 60.0, onset + 100.0, 0.85)
    assert "onset</text>" in drawn
    assert "end</text>" in drawn
    assert chart(alert, [], 0.0, 1.0, None) == ""


def test_what_became_of_each_notification_is_told_in_words():
    never = {"attempts": 4, "since": 60.0, "outcome": "unheard"}
    heard = {"outcome": "delivered", "reached_at": 5.0}
    progress = {
        "a": Progress(told="firing", at=5.0, acknowledged=True, **heard),
        "b": Progress(told="firing", at=5.0, failing="resolved", attempts=3, not_before=90.0, **heard),
        "c": Progress(held="firing"),
        "d": Progress(),
        "e": Progress(told="resolved", at=100.0, **never),
        "f": Progress(told="resolved", at=100.0, outcome="unheard"),
        "g": Progress(told="resolved", at=100.0, outcome="unwanted", reached_at=5.0),
        "h": Progress(told="firing", at=100.0, outcome="given_up", attempts=9),
        "i": Progress(told="resolved", outcome="before"),
        "j": Progress(failing="firing", held="firing", attempts=1),
        "k": Progress(told="firing", at=5.0, acknowledged=True, acknowledgement_given_up=True, **heard),
    }
    told = {one.notifier: one for one in notified(progress, 60.0)}
    assert list(told) == list("abcefghijk")
    assert "".join(name for name, one in told.items() if one.trouble) == "behj"
    words = {name: " ".join(re.sub("<[^>]*>", "", one.words).split()) for name, one in told.items()}
    assert words["a"] == "“firing” delivered 1970-01-01 00:00:05 UTC (55 s ago), acknowledgement too"
    assert words["b"] == (
        "“resolved” not delivered: 3 attempts since 1970-01-01 00:00:00 UTC; next attempt 1970-01-01 00:01:30 UTC "
        "(in 30 s); “firing” was delivered 1970-01-01 00:00:05 UTC"
    )
    assert words["c"] == "suppressed by a silence"
    assert words["e"] == "“resolved” not sent: “firing” was never delivered (4 failed attempts)"
    assert words["f"] == "“resolved” not sent: “firing” was never delivered (suppressed by a silence)"
    assert words["g"].startswith("“resolved” not sent: this notifier takes no resolved alerts; “firing” was delivered")
    assert words["h"].startswith("“firing” not delivered: given up after 9 attempts")
    assert "ended before" in words["i"]
    assert "suppressed by a silence now" in words["j"]
    assert words["k"].endswith("acknowledgement given up")
    assert all(one.words.count("<time") == one.words.count(" UTC") for one in told.values()), "shown in local time too"
    assert unreached(progress) == "“firing” never reached 5 of 9 notifiers: c, e, f, h and j."
    assert unreached({"a": progress["a"], "i": progress["i"]}) == ""


async def test_after_the_end_the_page_still_says_who_acknowledged_and_what_was_never_sent(tmp_path):
    """The alert was silenced and acknowledged; one of three receivers never accepted anything."""

    async with world(tmp_path) as w:
        deaf, terse = People(failures=1000), People()
        terse.route = Route(send_resolved=False)
        w.engine._delivery = replace_notifiers(w.engine, {"people": w.people, "deaf": deaf, "terse": terse})  # noqa: SLF001
        alert = await fired(w)
        where = f"/alerts/{alert.fingerprint}"
        seen = [digests(w.site)["alerts"]]
        await w.send(where, f"{where}/acknowledge", by="O'Brien", comment="mine")
        seen.append(digests(w.site)["alerts"])
        await w.send(where, f"{where}/silence", seconds="3600", by="Kim")
        seen.append(digests(w.site)["alerts"])
        open_page = await w.page("/")
        case = w.engine._cases.by_fingerprint[alert.fingerprint]  # noqa: SLF001 - as if it had recovered
        case.alert = replace(case.alert, state="resolved", ended_at=time.time())
        await w.look()
        (silence,) = await w.engine.acknowledgements.silences()
        await w.send("/alerts", f"/silences/{silence.id}/remove")
        await w.look()
        (first, second, third), page, listed, overview = (
            seen,
            await w.page(where),
            await w.page("/alerts"),
            await w.page("/"),
        )
    assert "acknowledged by O'Brien" in open_page.words
    assert re.search(r"fell from 0\.\d{2} to 0\.\d{2} since ", open_page.words)
    assert "silenced by Kim until" in open_page.words
    assert first != second != third, "open pages follow both acts"
    assert "“firing” never reached 1 of 3 notifiers: deaf." in page.words
    assert "deaf: “resolved” not sent: “firing” was never delivered (1 failed attempt)" in page.words
    assert "terse: “resolved” not sent: this notifier takes no resolved alerts" in page.words
    assert "people: “resolved” delivered" in page.words
    timeline = page.words[page.words.index("most likely onset") :]
    for said in (
        "“firing” delivered to people: mean 0.",
        "“firing” notification to deaf failed (1 attempt): OSError: nobody at home",
        "acknowledged by O'Brien: mine",
        "silenced by Kim until",
        "silence removed by Kim",
        "“resolved” not sent to deaf: “firing” was never delivered",
        "recovered: resolved",
    ):
        assert said in timeline, said
    assert "“resolved” delivered to deaf" not in page.words
    assert "Acknowledged by O'Brien" in page.words
    assert "O'Brien" in listed.words
    assert "removed" in listed.words
    assert "no one" not in listed.words
    assert "acknowledged by O'Brien" in overview.words


def replace_notifiers(engine, notifiers):
    """A delivery to these notifiers in place of the engine's."""
    old = engine._delivery  # noqa: SLF001
    made = Delivery(notifiers, old.state_store, old.clock, old.observer, old.config)
    made.restore({}, [])
    return made


async def test_where_another_process_leads_every_form_says_so(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        alert = next(one for one in w.engine.alerts() if one.state == "firing" and not one.slice)
        path = f"/alerts/{alert.fingerprint}"
        fields = (await w.page(path)).form(f"{path}/acknowledge")
        w.learns()
        await w.engine.follow()
        own = {"accept": "text/html", "origin": str(w.client.base_url)}
        for action in ("acknowledge", "silence", "assign", "note", "rebaseline"):
            sent = fields | {"by": "Sam", "seconds": "3600", "to": "Kim", "text": "x"}
            answer = await w.client.post(f"{path}/{action}", data=sent, headers=own)
            assert (answer.status_code, "another process" in answer.text) == (503, True), action


def stream(app, *, part="", named=0.0, effect=1.0, rule="r"):
    about = {"metric": "faithfulness", "m0": 0.8, "evidence_log10": -9.0, "state": "quiet", "closed_until": 0.0}
    return StreamStatus(rule=rule, app=app, slice=part, named=named, design_effect=effect, **about)


def test_what_an_app_s_alerts_count_as_one_observation_is_that_of_its_least_favourable_rule():
    streams = [stream("shop", named=0.9), stream("shop", named=0.2, effect=3.0, rule="s"), stream("desk", named=1.0)]
    assert units_of([*streams, stream("shop", part="model=x", effect=9.0)]) == [
        ("desk", 1.0, 1.0),
        ("shop", 0.2, 3.0),
    ]


async def test_the_page_says_what_counts_as_one_observation_and_how_to_name_a_conversation(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        page = await w.page("/alerts")
    assert "shop a score, " in page.words
    assert "0 % of the scores name their conversation" in page.words
    assert "x-gaugeway-session: <id of the conversation>" in page.words


async def test_the_worst_answers_become_a_data_set_and_a_resolved_alert_suggests_it(tmp_path, monkeypatch):
    async with world(tmp_path) as w:
        alert = await incident(w)
        page = f"/alerts/{alert.fingerprint}"
        assert "This alert is resolved" not in (await w.page(page)).text
        answer = await w.send(page, "/datasets", name="refunds")
        assert answer.headers["location"] == f"{page}?done=kept"
        made, records = await w.datasets.read("refunds")
        assert 1 <= made.rows <= 20
        assert {record["id"].partition("-")[0] for record in records} == {"bad"}
        assert {record["provenance"]["alert"] for record in records} == {alert.fingerprint}
        ended = replace(alert, state="resolved", ended_at=time.time())
        monkeypatch.setattr(w.engine, "alerts", lambda: [ended])
        assert "This alert is resolved: add its worst answers to a data set" in (await w.page(page)).text
