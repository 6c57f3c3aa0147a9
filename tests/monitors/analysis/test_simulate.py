"""Alert settings tried out on traffic: the streams that are made, what the detector does on them, what is shown."""

import json
from dataclasses import replace
from functools import partial
from itertools import islice
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs

from gaugeway.cli.main import main
from gaugeway.cli.simulate import timed
from gaugeway.storage.stores import Point
from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.baselines import build
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.analysis import simulate_report as simulating_report
from monitors.analysis.simulate import Plan, Setting, _Run, preset, simulate, traffic_of
from tests.support.scored import One, fill

PER_SCORE = 10 / 60 / 5e4
"""The budget of one false alarm in 50,000 scores at ten a minute."""
SMALL = Plan(streams=6, days=6, changes=6, seed=3)
TINY = Plan(streams=2, days=3, changes=3, seed=3)


def point(at, value, **fields):
    given = {"app": "shop", "model": "m", "metric": "faithfulness", "rate": 1.0, **fields}
    return Point(sample_id=str(at), started_at=at, outcome="score", value=value, reason="", **given)


def setting(tolerance=0.0, budget=PER_SCORE, rate=1.0, **baseline):
    kind = partial(build, "fixed", slo=0.85) if not baseline else partial(build, **baseline)
    return Setting(name="x", tolerance=tolerance, budget_per_s=budget, baseline=kind, rate=rate)


def tried(traffic, one, plan=SMALL):
    (result,) = simulate(traffic, [one], plan)
    return result


def by_drop(result):
    return {one.drop: one for one in result.found}


def swinging(days=4):
    """A score a minute that says which hour of the day it is, from somewhere within an hour on."""
    times = [1000.0 + 60.0 * minute for minute in range(1440 * days)]
    return [point(at, 0.5 + at // 3600 % 24 / 100) for at in times]


def test_only_whole_hours_are_taken_and_each_score_keeps_its_second():
    traffic = traffic_of(swinging(), flipped=False)
    assert traffic.hours == 24 * 4 - 1
    assert set(traffic.lengths.tolist()) == {60}
    assert traffic.at[:2].tolist() == [40.0, 100.0]
    assert traffic_of(swinging(), flipped=True).mean == pytest.approx(1.0 - traffic.mean)


@pytest.mark.parametrize("points", [[], swinging()[:300], [point(3600.0 * h, 0.5) for h in range(100)]])
def test_too_little_traffic_is_refused(points):
    with pytest.raises(ValueError, match=r"no scores|not enough data"):
        traffic_of(points, flipped=False)


def test_rare_answers_weigh_more_in_the_mean():
    points = [point(60.0 * k, float(k % 2), rate=0.5 if k % 2 else 0.25) for k in range(1200)]
    traffic = traffic_of(points, flipped=False)
    assert traffic.mean == pytest.approx(1 / 3, abs=1e-3)
    assert traffic.weights.max() == 1.0


def test_simulated_hours_are_at_their_time_of_the_day_and_come_in_runs():
    traffic = traffic_of(swinging(days=10), flipped=False)
    run = _Run(traffic, setting(), Plan(streams=5))
    days = np.stack(list(islice(run._days(5, 7), 48)))
    assert ((days - np.arange(7, 55)[:, None]) % 24 == 0).all()
    assert (np.diff(days[:6], axis=0) == 1).all()
    assert len(np.unique(days[:, 0] // 24)) > 1


@pytest.mark.parametrize("rate", [0.5, 1.0, 3.0])
def test_more_judging_is_more_scores_of_the_same_hours(rate):
    traffic = traffic_of(swinging(), flipped=False)
    run = _Run(traffic, setting(rate=rate), Plan(streams=200))
    hours = next(run._days(200, 0))
    scored = run._scores(hours)
    assert scored.x.size == pytest.approx(200 * 60 * rate, rel=0.05)
    assert scored.x.tolist() == traffic.x[traffic.begins[hours[scored.stream]]].tolist()
    assert (np.diff(scored.stream * 60 + scored.bucket) >= 0).all()


@pytest.mark.parametrize(("independent", "spread"), [(True, 0.0), (False, 0.0), (True, 0.02), (False, 0.02)])
def test_all_streams_at_once_alarm_exactly_as_the_detector_does(independent, spread):
    traffic = structs.replace(preset("llm", 5.0, seed=4), independent=independent)
    run = _Run(traffic, setting(budget=1e-4), Plan(streams=3))
    assert run._effect >= 1.0
    run._effect = 1.0 if independent else 1.3
    m0, variance = np.array([0.88, 0.9, 0.92]), np.array([0.0, 0.5, 1.0]) * spread**2
    detectors = [MixtureESR(m0=mean, budget_per_s=1e-4) for mean in m0.tolist()]
    log_m, total, expected = np.full((3, 8), -np.inf), 0, 0
    for hour, chosen in enumerate(islice(run._days(3, 0), 60)):
        scored = run._scores(chosen)
        log_m, _, count = run._watch(log_m, m0, variance, scored)
        total += count
        for stream, detector in enumerate(detectors):
            for bucket in range(60):
                here = (scored.stream == stream) & (scored.bucket == bucket)
                x, w = tuple(scored.x[here].tolist()), tuple(scored.w[here].tolist())
                made = Bucket(start=3600.0 * hour + 60.0 * bucket, seconds=60.0, scores=x, weights=w)
                made = replace(made, design_effect=run._effect, m0_variance=float(variance[stream]))
                expected += detector.update(made) is not None
    assert total == expected > 5
    assert log_m == pytest.approx(np.stack([detector._log_m for detector in detectors]))


@pytest.mark.full
def test_false_alarms_at_the_boundary_stay_within_the_promise():
    result = tried(preset("llm", 10.0), setting(), Plan(streams=10, days=15, changes=1, drops=()))
    expected = result.promised * result.months
    assert result.months == pytest.approx(5.0)
    assert 0.4 * expected < result.alarms < expected + 2.0 * expected**0.5


@pytest.mark.full
def test_delays_are_those_of_the_detectors_own_benchmark():
    found = by_drop(tried(preset("binary", 10.0), setting(), Plan(streams=16, days=6, changes=6)))
    assert 480 < found[0.05].scores < 800
    assert 150 < found[0.10].scores < 230
    assert 50 < found[0.20].scores < 95
    assert found[0.10].scores_90 > found[0.10].scores
    assert found[0.10].seconds == pytest.approx(found[0.10].scores * 6.0, rel=0.15)


@pytest.mark.full
def test_what_is_within_the_tolerance_is_not_found_and_more_judging_finds_the_rest_sooner():
    traffic = preset("binary", 10.0)
    wide, more = tried(traffic, setting(tolerance=0.06)), tried(traffic, setting(tolerance=0.06, rate=3.0))
    assert by_drop(wide)[0.05].scores is by_drop(wide)[0.05].seconds_90 is None
    assert by_drop(more)[0.20].seconds < 0.7 * by_drop(wide)[0.20].seconds


@pytest.mark.full
def test_a_baseline_is_learned_from_the_traffic_before_anything_is_counted():
    result = tried(preset("llm", 10.0), setting(kind="window"))
    assert 0.81 < result.m0 < 0.85
    assert result.months >= 6 * 6 / 30
    never = tried(preset("llm", 0.02), setting(kind="window"), Plan(streams=1, days=2, changes=1, drops=(0.2,)))
    assert (never.m0, never.months, never.found[0].scores) == (None, 0.0, None)


def test_the_same_seed_gives_the_same():
    traffic = preset("beta", 2.0)
    assert tried(traffic, one := setting(), TINY) == tried(traffic, one, TINY)


@pytest.mark.full
def test_a_report_is_a_table_a_drawing_and_a_page():
    rows = tuple(simulate(preset("beta", 5.0), [setting(), setting(tolerance=0.3)], TINY))
    report = simulating_report.Report(title="a < b", about=("one | two",), rows=rows)
    lines = simulating_report.markdown(report).splitlines()
    assert len({line.count("|") for line in lines[4:8]}) == 1
    drawing = ET.fromstring(simulating_report.svg(report))
    circles = [one for one in drawing.iter() if one.tag.endswith("circle")]
    assert len(circles) == sum(found.seconds is not None for row in rows for found in row.found) == 4
    page = simulating_report.html(report)
    assert "a &lt; b" in page
    assert "not found" in page
    assert simulating_report.plain(report)["rows"][0]["found"][2]["drop"] == 0.1


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(1)
    scores = [One(f"s{at}", float(rng.random() < 0.8), 200.0 * (900 - at)) for at in range(900)]
    scores += [One(f"o{at}", 0.1, 60.0 + at, app="other") for at in range(5)]
    fill(tmp_path / "store.db", scores)
    return tmp_path


def run(store, *arguments):
    words = ["simulate", "--data-dir", str(store), "--streams", "2", "--days", "4", *arguments]
    return CliRunner().invoke(main, words)


@pytest.mark.full
def test_the_command_tries_the_rules_out_on_captured_scores(store, tmp_path):
    config = tmp_path / "gaugeway.toml"
    config.write_text('[alerts]\nrules = [{metric = "lexical_groundedness", slo = 0.8, severity = "warn"}]\n')
    page = tmp_path / "report.html"
    words = ["--metric", "faithfulness", "--drop", "0.3", "--output", str(page), "--format", "json"]
    result = run(store, *words, "--config", str(config))
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert "900 in" not in said["about"][0]
    assert "faithfulness in shop" in said["about"][0]
    assert "5 scores of other apps" in said["about"][1]
    names = [row["setting"]["name"] for row in said["rows"]]
    assert names[0] == "as configured: tolerance 0.01"
    assert "3 x as many judged" not in names
    assert said["rows"][0]["months"] > 0
    assert "<svg" in page.read_text()


@pytest.mark.full
def test_the_command_tries_an_slo_out_on_made_up_scores(tmp_path):
    config = tmp_path / "gaugeway.toml"
    config.write_text('[alerts]\nrules = [{metric = "lexical_groundedness", slo = 0.8}]\n')
    result = run(tmp_path, "--preset", "binary", "--rate", "2", "--drop", "0.3", "--config", str(config))
    assert result.exit_code == 0, result.output
    assert "slo 0.8" in result.output
    table, *_ = result.output.partition("Synthetic scores")
    assert max(len(line) for line in table.splitlines()) <= 80
    assert "…" not in table
    assert "min (" in result.output
    assert "They are independent: no sessions." in result.output
    shown = run(tmp_path, "--preset", "binary", "--rate", "2", "--drop", "0.3", "--format", "json")
    assert json.loads(shown.stdout)["about"][1].startswith("They are independent: no sessions.")


@pytest.mark.full
def test_captured_scores_are_not_called_independent(store):
    result = run(store, "--metric", "faithfulness", "--drop", "0.3", "--format", "json")
    assert "independent" not in result.stdout


@pytest.mark.parametrize(("seconds", "hint"), [(3.4, "7 settings take about 30 s"), (2.0, "")])
def test_a_long_simulation_says_how_long_after_the_first_setting(capsys, seconds, hint):
    times = iter(number * seconds for number in range(8))
    found = timed(iter("abcdefg"), 7, lambda: next(times))
    assert next(found) == "a"
    said = capsys.readouterr().err
    assert said.startswith(hint)
    assert bool(said) == bool(hint)
    assert list(found) == list("bcdefg")
    assert capsys.readouterr().err == ""


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metric", "unheard"], "no scores of unheard"),
        (["--metric", "faithfulness", "--app", "other"], "not enough data"),
        (["--metric", "faithfulness", "--output", "x.pdf"], "must end in one of"),
        (["--metric", "faithfulness", "--since", "soon"], "expected a span"),
    ],
)
def test_bad_input_is_named(store, arguments, said):
    result = run(store, *arguments)
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_a_rule_with_another_detector_cannot_be_simulated(store, tmp_path):
    config = tmp_path / "gaugeway.toml"
    rule = '{metric = "lexical_groundedness", slo = 0.8, detector = "threshold"}'
    config.write_text(f"[alerts]\nrules = [{rule}]\n")
    result = run(store, "--config", str(config))
    assert (result.exit_code, "detector esr" in result.output) == (2, True)


def test_a_preset_has_no_metric(tmp_path):
    result = run(tmp_path, "--preset", "beta", "--metric", "faithfulness")
    assert (result.exit_code, "--metric is not used with --preset" in result.output) == (2, True)
