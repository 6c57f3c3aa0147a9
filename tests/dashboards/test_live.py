"""Every query of every dashboard, asked of a real Prometheus that scrapes the real product, has an answer."""

import copy
import itertools
import time
from types import SimpleNamespace

import pytest

from tests.dashboards.prometheus import prometheus
from tests.dashboards.reading import ANY, FOLDER, LABEL_VALUES, Asked, asked, load, sent, targets, text_of, variables
from tests.dashboards.scene import TRACE, scene

pytestmark = pytest.mark.timeout(900)  # the scene is acted out first, beside other programs too
DASHBOARDS = load()
LONGER_THAN_THE_SCENE = "20m"
"""The range of rates: what had an answer once has one until the end, however slow the machine."""
RULES = FOLDER / "prometheus" / "gaugeway.rules.yml"

# Series that cannot be brought about from outside a healthy product within a test -> why.
UNPROVOKED = {
    "gaugeway_quality_corrected": "labels of people are counted every five minutes",
    "gaugeway_judge_agreement_kappa": "as above",
    "gaugeway_worker_errors_total": "a store or a queue that fails",
    "gaugeway_capture_audited": "audits follow a part of the day, the shortest of which takes half an hour",
}


def chosen(server, dashboard):
    """What Grafana would put in place of each variable, asked in their order; those with All stand for everything."""
    values, empty = {}, []
    for variable in variables(dashboard, "query"):
        name = variable["name"]
        match = LABEL_VALUES.fullmatch(text_of(variable))
        found = server.values(sent(match["selector"], {**ANY, **values}), match["label"])
        if not found:
            empty.append(Asked(f"{dashboard['title']}: variable {name}", text_of(variable), "variable"))
        values[name] = variable["allValue"] if variable["multi"] else max(found, key=lambda one: one == "shop")
    return values, empty


def unanswered(server, dashboard, allowed=UNPROVOKED):
    """The queries without a single number."""
    values, empty = chosen(server, dashboard)
    queries = [
        one
        for one in asked(dashboard, values, rate_interval=LONGER_THAN_THE_SCENE)
        if not any(series in one.expr for series in allowed)
    ]
    return empty + [one for one in queries if not server.shows(one.expr)]


def still_unanswered(server, boards):
    """The boards from the first that has an unanswered query; what has an answer once has one from then on."""
    return list(itertools.dropwhile(lambda board: not unanswered(server, board), boards))


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    directory = tmp_path_factory.mktemp("live")
    with scene(directory) as (running, traffic):
        jobs = {"gaugeway-gateway": running.admin, "gaugeway-monitors": running.monitors}
        jobs = {name: at.removeprefix("http://") for name, at in jobs.items()}
        rules = directory / "gaugeway.rules.yml"
        rules.write_text(RULES.read_text("utf-8").replace("    interval: 1m\n", ""), "utf-8")  # as often as it scrapes
        with prometheus(directory, jobs, rules) as server:
            running.until(server.ready, 60, what="Prometheus scrapes")
            traffic.everything()
            running.until(traffic.scored, 400, what="all is scored")
            deadline = time.monotonic() + 300  # on a busy machine estimates come seldom
            waiting = list(DASHBOARDS.values())
            while (waiting := still_unanswered(server, waiting)) and time.monotonic() < deadline:
                traffic.again()
                time.sleep(8)  # asking costs more, the longer it goes on
            yield SimpleNamespace(server=server, running=running)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_has_an_answer(live, name):
    missing = unanswered(live.server, DASHBOARDS[name])
    assert not missing, "\n".join(f"{one.where}\n    {one.expr}" for one in missing)


def test_a_typo_in_a_panel_or_a_variable_is_reported(live):
    before = unanswered(live.server, DASHBOARDS["quality.json"])
    board = copy.deepcopy(DASHBOARDS["quality.json"])
    panel, target = next(targets(board))
    target["expr"] = target["expr"].replace("gaugeway_quality_alarm", "gaugeway_quality_alarms")
    wrong = next(one for one in variables(board, "query") if one["name"] == "metric")
    wrong["query"]["query"] = wrong["query"]["query"].replace(", metric)", ", metrics)")
    where = [one.where for one in unanswered(live.server, board) if one not in before]
    assert where == [f"{board['title']}: variable metric", f"{board['title']}: {panel['title']} A"]


def test_exemplars_lead_from_scores_to_traces(live):
    board = DASHBOARDS["app.json"]
    values, _ = chosen(live.server, board)
    shown = [
        sent(target["expr"], values, rate_interval=LONGER_THAN_THE_SCENE)
        for _, target in targets(board)
        if target.get("exemplar")
    ]
    assert len(shown) == 3
    for expr in shown:
        assert {"trace_id": TRACE} in live.server.exemplars(expr), expr


def test_the_rules_are_evaluated_without_an_error(live):
    live.running.until(lambda: "unknown" not in live.server.rules().values(), 60, what="every rule was evaluated")
    assert set(live.server.rules().values()) == {"ok"}, live.server.rules()
    assert live.server.shows("app_metric:gaugeway_verdicts_fail:ratio_rate1h")
    assert live.server.shows('ALERTS{alertname="GaugewayQualityDrop", app="shop", metric="lexical_groundedness"}')


def test_what_is_not_brought_about_is_a_series_that_a_dashboard_asks_for():
    text = "".join(target["expr"] for board in DASHBOARDS.values() for _, target in targets(board))
    assert all(series in text for series in UNPROVOKED)
