"""Requests that the judge marks for the gateways: asked once, exactly as they stand, within its budget."""

import asyncio

import msgspec
import pytest

from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.erase import Subject
from gaugeway.storage.templates import StoredTemplate, Templates, meant, only_templates
from monitors.evaluation.judge_marks import APP_EVERY_S, MAX_REQUEST_KEPT_S, TIMES_ASKED, PromptMarking, located
from monitors.judges import JudgeError
from monitors.judges.scripted import Scripted
from monitors.metrics.judged.schemas import PassageMarks, PromptMarks

TEXT = "\x01Be kind.\x02Notes\nThe lamp lasts 12 hours. It is blue.\nRain harms the lamp.\nShe asks: Is it blue?\x04"
MARKS = {
    "question": "Is it blue?",
    "passages": [
        {"begins": "The lamp lasts", "ends": "It is blue."},
        {"begins": "Rain harms the", "ends": "harms the lamp."},
    ],
}
NOW = 1_000_000.0


def request(version="v1", **fields):
    base = {"app": "shop", "kind": "chat:su", "literals": (TEXT,), "slots": (), "split": {}, "seen": 20}
    return StoredTemplate(**{"version": version, "learned_at": NOW, "state": "asked"} | base | fields)


def run(tmp_path, scenario, *requests, answers=MARKS, clock=lambda: NOW, **how):
    async def main():
        templates = Templates(SQLiteDocuments(tmp_path))
        judge = Scripted({"prompt_marks": answers})
        outcomes = []
        how.setdefault("retention_s", 1e9)
        marking = PromptMarking(templates, judge, on_outcome=outcomes.append, clock=clock, **how)
        try:
            for one in requests:
                await templates.put_template(one)
            await scenario(marking, templates)
            return judge, outcomes, await templates.templates()
        finally:
            await templates.aclose()

    return asyncio.run(main())


async def twice(marking, _):
    await marking.tick()
    await marking.tick()


def test_of_an_app_one_request_an_hour_is_sent_and_of_all_apps_so_many_a_day(tmp_path):
    clock = [NOW]
    requests = [request(f"v{number}", app=f"app-{number % 3}") for number in range(6)]

    async def for_hours(marking, templates):
        seen = []
        for _ in range(4):
            await marking.tick()
            await marking.tick()
            seen.append([stored.app for stored in await templates.templates() if stored.state == "marked"])
            clock[0] += APP_EVERY_S + 1
        assert [len(apps) for apps in seen] == [3, 4, 4, 4]
        assert sorted(seen[0]) == ["app-0", "app-1", "app-2"]
        clock[0] += 86_400
        await marking.tick()

    _, outcomes, kept = run(tmp_path, for_hours, *requests, per_day=4, clock=lambda: clock[0])
    assert outcomes == ["marked"] * 6
    assert {stored.state for stored in kept} == {"marked"}


def test_a_request_is_marked_once_and_its_text_reaches_the_judge_as_data(tmp_path):
    judge, outcomes, (kept,) = run(tmp_path, twice, request())
    assert outcomes == ["marked"]
    assert len(judge.asked) == 1
    assert "Rain harms the lamp." in judge.asked[0].user
    assert "Rain harms the lamp." not in judge.asked[0].system
    assert kept.state == "marked"
    passages = ["The lamp lasts 12 hours. It is blue.", "Rain harms the lamp."]
    assert kept.split == {"question": "Is it blue?", "passages": passages}
    assert kept.literals == (TEXT,)


@pytest.mark.parametrize(
    ("question", "passages"),
    [
        ("Is it red?", [("The lamp lasts", "It is blue.")]),
        ("", [("The lamp lasts", "It is blue.")]),
        ("Is it blue?", []),
        ("Is it blue?", [("", "It is blue.")]),
        ("Is it blue?", [("The lamp lasts", "")]),
        ("Is it blue?", [("Rain harms", "lamp."), ("The lamp lasts", "It is blue.")]),
        ("Is it blue?", [("The lamp lasts", "It is green.")]),
    ],
)
def test_marks_that_do_not_stand_in_the_request_are_of_no_use(tmp_path, question, passages):
    marks = PromptMarks(question, [PassageMarks(*one) for one in passages])
    assert located(TEXT, marks) is None
    judge, outcomes, (kept,) = run(tmp_path, twice, request(), answers=marks)
    assert (len(judge.asked), outcomes, kept.state, kept.split) == (1, ["unusable"], "marked", {})


def test_while_the_judge_may_not_be_asked_the_request_waits(tmp_path):
    judge, outcomes, (kept,) = run(tmp_path, twice, request(), allowed=lambda: False)
    assert (judge.asked, outcomes, kept.state) == ([], [], "asked")


def test_a_judge_that_fails_is_asked_a_few_times(tmp_path):
    async def scenario(marking, _):
        for _ in range(TIMES_ASKED + 3):
            await marking.tick()

    judge, outcomes, (kept,) = run(tmp_path, scenario, request(), answers=JudgeError("timeout"))
    assert (len(judge.asked), outcomes, kept.state) == (TIMES_ASKED, ["failed"], "marked")


def test_a_judge_that_refuses_is_asked_once(tmp_path):
    judge, outcomes, (kept,) = run(tmp_path, twice, request(), answers=JudgeError("refused"))
    assert (len(judge.asked), outcomes, kept.state) == (1, ["failed"], "marked")


@pytest.mark.parametrize(("retention_s", "age_s"), [(1e9, MAX_REQUEST_KEPT_S + 1), (100.0, 101.0)])
@pytest.mark.parametrize("state", ["asked", "marked"])
def test_old_requests_are_dropped_unasked_and_templates_stay(tmp_path, retention_s, age_s, state):
    old = request(state=state, learned_at=NOW - age_s)
    learned = request("v2", state="learned", literals=("a", "b"), slots=("passages",), learned_at=NOW - age_s)
    judge, _, kept = run(tmp_path, twice, old, learned, retention_s=retention_s)
    assert judge.asked == []
    assert [one.version for one in kept] == ["v2"]


def test_nobody_takes_a_request_for_a_template_and_forgetting_a_session_forgets_it():
    learned = request("v2", state="learned")
    assert only_templates([request(), request(state="marked"), learned]) == [learned]
    assert meant([request(), learned], Subject(session="s-1")) == [request()]
    assert meant([request(), learned], Subject(match="Rain harms")) == [request(), learned]


def test_it_survives_the_store_as_it_is():
    assert msgspec.json.decode(msgspec.json.encode(request()), type=StoredTemplate) == request()
