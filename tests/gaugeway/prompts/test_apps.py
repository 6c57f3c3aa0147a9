"""Requests as finished apps send them (`corpora/apps.jsonl`): through the whole chain, passages to the letter."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from gaugeway.exchange import Request, Response
from gaugeway.extensions import load, registered
from gaugeway.prompts import default_order, trace
from gaugeway.records import Context

CASES = [
    json.loads(line) for line in (Path(__file__).parents[2] / "corpora" / "apps.jsonl").read_text("utf-8").splitlines()
]
EXTRACTORS = [load(name, registered("readers"))() for name in default_order()]


@pytest.mark.parametrize("case", CASES, ids=[f"{case['app']}: {case['case']}" for case in CASES])
def test_an_apps_request_gives_its_question_and_passages(case):
    request = Request(route=case["route"], headers={}, body=case["body"])
    name, found = trace(request, Response(status=200, body={}), EXTRACTORS)[-1]
    assert (name, found.source, found.question) == ("templates", case["app"], case["question"])
    assert found.contexts == tuple(Context(**passage) for passage in case["passages"])


def test_every_app_has_three_cases_or_more_one_of_them_hostile():
    assert min(Counter(case["app"] for case in CASES).values()) >= 3
    hostile = {case["app"] for case in CASES if "closes" in case["case"]}
    assert hostile == {"dify", "open_webui", "ragflow", "anythingllm", "flowise", "librechat"}
