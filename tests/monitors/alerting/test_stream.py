"""Earlier incidents, as the cases of the engine know them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitors.alerting.stream import Case, Cases
from tests.support.receivers import alert


def at(onset, **changes):
    return alert(finding=replace(alert().finding, onset=onset), **changes)


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        ({"state": "resolved", "ended_at": 200.0}, ((100.0, 200.0),)),
        ({"state": "firing"}, ((100.0, 500.0),)),
        ({"state": "resolved", "ended_at": 900.0}, ((100.0, 500.0),)),
        ({"state": "pending"}, ()),
        ({"app": "other"}, ()),
        ({"metric": "context_relevancy"}, ()),
        ({"slice": "tag:tenant=a"}, ()),
    ],
)
def test_earlier_incidents_are_those_of_the_same_app_and_metric_up_to_the_onset(changes, times):
    cases, now = Cases(), at(500.0, fingerprint="now")
    cases.by_fingerprint = {"old": Case(alert=at(100.0, fingerprint="old", **changes)), "now": Case(alert=now)}
    assert cases.earlier(now) == times
