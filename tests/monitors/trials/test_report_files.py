"""A trial's report as a file says the same in every form, whatever names hold."""

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from monitors.analysis.trial_result import Pair, TrialRules, trial_result
from monitors.trials.desk import ArmReport, TrialReport
from monitors.trials.report_files import SUFFIXES, sentence_of, written

EVIL = "<script>alert(1)</script>|*a*\n# b"


def result(live, candidate, count=400, margin=0.02):
    pairs = [Pair(f"x{n}", float(n), live(n), candidate(n)) for n in range(count)]
    return trial_result({"spoken": pairs}, TrialRules(primary="spoken", margin=margin))


BETTER = result(lambda n: n % 2 / 2, lambda n: 0.5 + n % 2 / 2)
WORSE = result(lambda n: 0.5 + n % 2 / 2, lambda n: n % 2 / 2)
EQUAL = result(lambda n: n % 2, lambda n: n % 2)
OPEN = result(lambda n: n % 2, lambda n: (n + n // 7) % 2, count=12)


def report(*results, **more):
    arms = tuple(
        ArmReport(
            name=f"candidate-{number}",
            host="127.0.0.1",
            changes=(f"model = {EVIL}",),
            tried=9,
            answered=7,
            not_answered={"failed:timeout": 2},
            unscored={"spoken: unreadable": 1},
            usd=0.5,
            judge_usd=0.25,
            result=made,
        )
        for number, made in enumerate(results)
    )
    said = [made.verdict for made in results]
    verdict = "ship" if "ship" in said else "not yet" if "not yet" in said else "do not ship"
    given = {"name": "t", "app": EVIL, "state": "running", "why": "", "primary": "spoken", "margin": 0.02}
    given |= {"alpha": 0.05, "started_at": 0.0, "until": 9.0, "usd": 1.0, "judge_usd": 1.0, "waiting": 0}
    return TrialReport(verdict=verdict, left_out={"redacted": 3}, arms=arms, **given | more)


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        ((BETTER,), "Ship candidate-0: its answers to the questions of shop are better"),
        ((WORSE, BETTER), "Ship candidate-1: its answers to the questions of shop are better"),
        ((EQUAL,), "Ship candidate-0: its answers to the questions of shop are within 0.02 of the live ones"),
        ((WORSE,), "Do not ship: the answers to the questions of shop get worse (spoken)"),
        ((WORSE, OPEN), "Not decided yet"),
    ],
    ids=["better", "the second", "equal", "worse", "open"],
)
def test_the_verdict_is_one_sentence(results, sentence):
    assert sentence_of(report(*results, app="shop")).startswith(sentence)


def test_how_many_more_are_needed_is_said_where_it_is_known():
    known = replace(OPEN, more=1234)
    assert sentence_of(report(known)) == "Not decided yet: about 1,234 more exchanges needed"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("made", [BETTER, WORSE, EQUAL, OPEN], ids=["better", "worse", "equal", "open"])
def test_every_form_can_be_written(suffix, made):
    text = written(report(made), suffix)
    assert text.endswith("\n")
    assert suffix == ".json" or "<script>" not in text
    assert "candidate-0" in text


def test_json_holds_the_whole_report():
    made = json.loads(written(report(BETTER, OPEN), ".json"))
    assert made["verdict"] == "ship"
    assert made["left_out"] == {"redacted": 3}
    (row,) = (row for row in made["arms"][0]["result"]["metrics"] if row["metric"] == "spoken")
    assert row["n"] == 400
    assert row["low"] <= row["difference"] <= row["high"]


def test_people_see_counts_and_what_is_left_out():
    for suffix in (".md", ".html"):
        text = written(report(WORSE, state="ended", why="decided"), suffix)
        for word in ("9 tried, 7 answered", "timeout", "unreadable", "3 redacted", "decided", "400"):
            assert word in text, (suffix, word)


def test_ci_fails_where_a_candidate_must_not_ship_and_what_is_open_is_an_error():
    suite = ET.fromstring(written(report(BETTER, WORSE, OPEN), ".xml")).find("testsuite")
    assert suite.attrib | {"name": ""} == {"name": "", "tests": "3", "errors": "1", "failures": "1", "skipped": "0"}
    kinds = [[child.tag for child in case] for case in suite]
    assert kinds == [[], ["failure"], ["error"]]
    assert suite[1][0].get("message") == "worse by spoken"


def test_another_suffix_is_refused():
    with pytest.raises(ValueError, match=r"'\.pdf': a report ends in \.html, \.json, \.md, \.xml"):
        written(report(OPEN), ".pdf")
