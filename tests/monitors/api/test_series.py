"""`GET /api/series`: what it answers, its bounds, and which parameter an error names."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
from litestar import Litestar

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.settings.shared import Rule
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.changes import Version
from monitors.analysis.series import SeriesReader
from monitors.api import openapi
from monitors.api.errors import on_error
from monitors.api.series import SeriesSources, series_handlers
from tests.support.running import serving

HOUR = 3600.0


class Watched:
    """An engine without alerts, for which a version appeared half an hour ago."""

    def __init__(self):
        self.versions = self

    def alerts(self):
        return ()

    def streams(self):
        return ()

    def changes(self):
        return [Version(app="shop", kind="model", value="m-2", first_seen=time.time() - 1800.0, exchanges=50)]


async def whole(client, query):
    """The answer that is left when the store was read in full, as a client repeats the request until then."""
    async with asyncio.timeout(60.0):
        while True:
            answer = await client.get("/api/series", params=query)
            if answer.status_code != 200 or answer.json()["complete"]:
                return answer
            await asyncio.sleep(0.02)


def ask(tmp_path, *queries, count=120):
    """The whole answers to queries about two hours of scores."""

    async def main():
        store = SQLiteStore(tmp_path / "store.db")
        now = time.time()
        for index in range(count):
            at = now - 2 * HOUR * (1 - index / count)
            sample = Sample(id=f"x{index}", started_at=at, app="shop", model=f"m-{index % 2 + 1}")
            one = Evaluation(
                sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(0.5 + index % 2 / 4)
            )
            await store.add(sample, [one])
        sources = SeriesSources(
            reader=SeriesReader(store),
            watched=Watched(),
            rules=(Rule(metric="faithfulness", slo=0.8, name="answers"),),
        )
        app = Litestar(
            series_handlers(sources),
            exception_handlers={400: on_error(None, ())},
            openapi_config=None,
            logging_config=None,
        )
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            answers = [await whole(client, one) for one in queries]
        await store.aclose()
        return answers

    return asyncio.run(main())


THIS = {"app": "shop", "metric": "faithfulness"}


def test_a_series_has_its_steps_lines_and_marks(tmp_path):
    (answer,) = ask(tmp_path, THIS | {"since": "3h", "step": "30m"})
    found = answer.json()
    assert answer.status_code == 200
    assert (found["step_s"], found["step_enlarged"], found["complete"]) == (1800.0, False, True)
    (group,) = found["groups"]
    assert (group["slice"], group["n"], group["total"]["mean"]) == ("", 120, pytest.approx(0.625))
    assert sum(one["n"] for one in group["points"]) == 120
    assert all(one["at"] % 1800.0 == 0.0 for one in group["points"])
    assert found["lines"] == [{"kind": "slo", "value": 0.8, "rule": "answers"}]
    assert [(one["kind"], one["value"]) for one in found["marks"]] == [("model", "m-2")]


def test_by_model_there_is_a_group_for_each(tmp_path):
    (answer,) = ask(tmp_path, THIS | {"by": "model", "since": "3h"})
    groups = {one["slice"]: one["total"]["mean"] for one in answer.json()["groups"]}
    assert groups == {"m-1": pytest.approx(0.5), "m-2": pytest.approx(0.75)}


def test_a_range_too_long_for_its_step_gets_a_larger_one_and_says_so(tmp_path):
    short, never = ask(tmp_path, THIS | {"since": "7d", "step": "60"}, THIS | {"since": "3660d"})
    assert (short.json()["step_s"], short.json()["step_enlarged"]) == (1800.0, True)
    assert never.status_code == 200
    found = never.json()
    assert (found["until"] - found["since"]) / found["step_s"] <= 401
    assert found["groups"][0]["n"] == 120


def test_a_metric_without_scores_in_the_range_has_no_group(tmp_path):
    answers = ask(tmp_path, THIS | {"since": "9d", "until": "8d"}, {"app": "other", "metric": "faithfulness"})
    assert [(one.status_code, one.json()["groups"], one.json()["complete"]) for one in answers] == [(200, [], True)] * 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"metric": ""}, "metric: "),
        ({"app": ""}, "app: "),
        ({"app": "x" * 301}, "app: "),
        ({"by": "colour"}, "by: expected model, prompt or tag:NAME"),
        ({"by": "tag:"}, "by: "),
        ({"since": "yesterday"}, "since: 'yesterday': expected a span"),
        ({"since": "1h", "until": "2h"}, "since: must be before until"),
        ({"since": "2999-01-01"}, "since: must be before until"),
        ({"until": "x"}, "until: "),
        ({"since": "0001-01-01"}, "since: '0001-01-01' is before 1970"),
        ({"since": "99999d"}, "since: '99999d' is before 1970"),
        ({"since": "3661d"}, "since: a time range has at most 3,660 days (10 years)"),
        ({"step": "often"}, "step: expected a number of seconds"),
        ({"step": "0"}, "step: "),
        ({"step": "-5"}, "step: "),
        ({"metric": "faithfulnes"}, "metric: unknown metric 'faithfulnes'"),
    ],
)
def test_an_error_names_the_parameter(tmp_path, wrong, said):
    (answer,) = ask(tmp_path, THIS | wrong, count=0)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(said), answer.json()


def test_the_openapi_document_describes_the_answer():
    reader = SeriesReader(None)
    sources = SeriesSources(reader, Watched(), ())
    found = openapi.document(series_handlers(sources))
    operation = found["paths"]["/api/series"]["get"]
    assert {one["name"] for one in operation["parameters"]} == {"app", "metric", "by", "since", "until", "step"}
    assert {one["name"] for one in operation["parameters"] if one["required"]} == {"app", "metric"}
    schemas = found["components"]["schemas"]
    assert set(schemas["SeriesPoint"]["properties"]) == {"at", "n", "n_eff", "mean", "ci_low", "ci_high"}
