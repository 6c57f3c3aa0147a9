"""Two versions on the same traffic: the verdicts, what is compared with what, and the command and page around them."""

import asyncio
import itertools
import json
import re
from itertools import chain

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from litestar import Litestar
from msgspec.structs import replace

from gaugeway.cli.main import main
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Point, ScoreHistogram
from monitors.analysis.ab_binned import Parts
from monitors.analysis.ab_compare import Sides, compare, decision, overlap_of, served_apart, sides
from monitors.api import openapi
from monitors.api import reports as compare_api
from monitors.api.reports import compare_handlers
from tests.support.running import serving
from tests.support.scored import One, fill

MODELS = ("old", "new")


def point(name, at, value, **fields):
    given = {"app": "shop", "model": "m", "metric": "faithfulness", "rate": 1.0, "version": "1", "cluster": f"s:{name}"}
    given |= fields
    return Point(sample_id=name, started_at=float(at), outcome="score", value=float(value), reason="", **given)


def arm(prefix, values, **fields):
    return [point(f"{prefix}{at}", at, value, **fields) for at, value in enumerate(values)]


def passes(rng, share, n):
    return (rng.random(n) < share) * 1.0


def decided(a, b, **options):
    (row,) = compare(sides(a, b), **options)
    return row


@pytest.mark.parametrize(("share", "expected"), [(0.6, "roll back"), (0.95, "ship")])
def test_a_clear_difference_is_decided_and_the_means_are_told(share, expected):
    rng = np.random.default_rng(1)
    row = decided(arm("a", passes(rng, 0.85, 800)), arm("b", passes(rng, share, 800)))
    assert row.decision == str(row) == expected
    assert row.overlap == 1.0
    assert served_apart([row]) is None
    assert row.difference == pytest.approx(share - 0.85, abs=0.06)
    assert row.challenger.ci_low < share < row.challenger.ci_high
    assert decision([row]) == expected


@pytest.mark.parametrize(("begins", "overlap"), [(300, 0.25), (400, 0.0), (100, 0.75)])
def test_versions_that_served_at_different_times_say_so(begins, overlap):
    old, new = arm("a", [1.0] * 400), [point(f"b{at}", begins + 3 * at, 0.5) for at in range(100)]
    row = decided(old, new)
    assert row.overlap == pytest.approx(overlap, abs=0.01)
    assert served_apart([row]) == (row.overlap if overlap < 0.5 else None)


def test_a_metric_with_few_scores_does_not_say_that_versions_ran_apart():
    row = decided(arm("a", [1.0] * 400), arm("b", [1.0] * 400))
    few = decided(arm("a", [1.0] * 2), [point(f"b{at}", 5000 + at, 0.5) for at in range(2)])
    assert few.overlap == 0.0
    assert served_apart([row, few]) is None


def test_counted_scores_say_how_far_they_overlap():
    def bin_of(hour, n):
        fields = {"app": "shop", "metric": "faithfulness", "slice": "m", "version": "1", "judge": None, "rate": 1.0}
        return ScoreHistogram(
            since=3600.0 * hour, until=3600.0 * (hour + 1), n=n, x=float(n), x2=float(n), bins=b"", **fields
        )

    old, new = [bin_of(hour, 10) for hour in range(10)], [bin_of(hour, 10) for hour in range(8, 12)]
    one = Parts(app="shop", metric="faithfulness", champion=old, challenger=new)
    assert overlap_of(one) == pytest.approx(0.2)


def test_a_version_like_the_old_one_waits_and_says_for_how_long():
    rng = np.random.default_rng(2)
    row = decided(arm("a", passes(rng, 0.85, 300)), arm("b", passes(rng, 0.85, 300)), margin=0.05)
    assert row.decision == "not enough data"
    assert row.more is None or f"needs about {row.more:,} more" in str(row)


@pytest.mark.full
def test_equal_versions_are_rolled_back_hardly_ever_however_many_metrics_are_looked_at():
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(15):
        a, b = [], []
        for metric in ("m1", "m2", "m3"):
            a += arm(metric + "a", passes(rng, 0.8, 120), metric=metric)
            b += arm(metric + "b", passes(rng, 0.8, 120), metric=metric)
        wrong += decision(compare(sides(a, b), margin=0.0, alpha=0.05)) == "roll back"
    assert wrong <= 2


def test_the_interval_of_pairs_is_that_of_their_differences_and_the_pairs_are_counted():
    rng = np.random.default_rng(4)
    hard = rng.random(100) * 0.6
    a = [point(f"a{at}", at, value) for at, value in enumerate(hard)]
    b = [point(f"b{at}", at + 0.5, value + (0.2 if at % 4 else 0.0)) for at, value in enumerate(hard)]
    keys = {f"{side}{at}": f"question {at}" for side in "ab" for at in range(100)}
    row, alone = decided(a, b, keys=keys), decided(a, b)
    assert (row.pairs, row.wins, row.losses, row.ties) == (100, 75, 0, 25)
    assert row.difference == pytest.approx(0.15)
    assert 0.05 < row.ci_low < 0.15 < row.ci_high < 0.25
    assert alone.wins is None
    assert alone.ci_high - alone.ci_low > 1.1 * (row.ci_high - row.ci_low)
    worse = decided(a, b, keys=keys, lower_is_better=lambda _: True)
    assert (worse.wins, worse.losses) == (0, 75)


def sessions(prefix, rng, mean, n):
    """Sessions of five answers, each with a mean of its own: a correlation of about .3."""
    found = []
    for session in range(n):
        own = mean + rng.choice([-0.2, 0.2])
        found += arm(f"{prefix}{session}-", passes(rng, own, 5), cluster=f"s:{prefix}{session}")
    return found


@pytest.mark.full
def test_sessions_whose_answers_are_alike_are_one_bet_each():
    rng, wrong, alone = np.random.default_rng(8), 0, 0
    for _ in range(25):
        a, b = sessions("a", rng, 0.75, 60), sessions("b", rng, 0.75, 60)
        wrong += decided(a, b, margin=0.0, alpha=0.05).decision == "roll back"
        apart = [[replace(one, cluster=None) for one in side] for side in (a, b)]
        alone += decided(*apart, margin=0.0, alpha=0.05).decision == "roll back"
    assert wrong <= 3
    assert wrong <= alone


@pytest.mark.parametrize("conversations", [1, 3])
def test_a_few_conversations_decide_nothing(conversations):
    def side(prefix, value):
        made = (arm(f"{prefix}{k}-", [value] * 60, cluster=f"s:{prefix}{k}") for k in range(conversations))
        return list(itertools.chain.from_iterable(made))

    assert decided(side("a", 1.0), side("b", 0.0)).decision == "not enough data"


def test_a_clear_difference_between_sessions_is_decided_in_numbers_of_scores():
    rng = np.random.default_rng(9)
    found = decided(sessions("a", rng, 0.75, 400), sessions("b", rng, 0.45, 400))
    assert found.decision == "roll back"
    assert (found.champion.n, found.challenger.n) == (2_000, 2_000)


def test_the_sides_say_how_many_sessions_they_have_and_what_their_scores_are_worth():
    rng = np.random.default_rng(21)
    row = decided(sessions("a", rng, 0.75, 60), arm("b", passes(rng, 0.75, 300)))
    assert (row.champion.n, row.champion.clusters, row.challenger.clusters) == (300, 60, None)
    assert 1.2 < row.champion.design_effect < 3.0
    assert row.champion.n_eff == pytest.approx(300 / row.champion.design_effect)
    assert row.challenger.n_eff == pytest.approx(300 / (row.challenger.design_effect or 1.0))
    assert (row.challenger.design_effect or 1.0) < 1.3


def test_each_metric_more_asks_for_more_evidence():
    rng = np.random.default_rng(4)
    a, b = arm("a", passes(rng, 0.9, 100)), arm("b", passes(rng, 0.7, 100))
    others = [arm("a", [0.5], metric=f"x{i}") for i in range(20)], [arm("b", [0.5], metric=f"x{i}") for i in range(20)]
    alone = decided(a, b)
    among = compare(sides([*a, *chain(*others[0])], [*b, *chain(*others[1])]))
    (row,) = [one for one in among if one.metric == "faithfulness"]
    assert row.for_roll_back == pytest.approx(alone.for_roll_back - np.log10(21), abs=1e-9)


def test_where_0_is_best_less_is_better():
    rng = np.random.default_rng(5)
    a, b = arm("a", passes(rng, 0.4, 400)), arm("b", passes(rng, 0.1, 400))
    row = decided(a, b, lower_is_better=lambda _: True)
    assert (row.decision, row.difference < -0.2) == ("ship", True)
    assert decided(a, b).decision == "roll back"


def test_scores_of_different_judges_are_not_compared():
    rng = np.random.default_rng(6)
    a = arm("a", passes(rng, 0.9, 200), judge="one")
    b = arm("b", passes(rng, 0.3, 150), judge="two")
    row = decided(a, b)
    assert (row.decision, row.left_out, row.challenger.n) == ("not enough data", 350, 0)
    assert "judge" in row.reason
    both = decided(a, b + arm("c", passes(rng, 0.9, 40), judge="one"))
    assert (both.champion.n, both.challenger.n, both.left_out) == (200, 40, 150)


def test_the_same_questions_are_compared_in_pairs_with_fewer_scores():
    rng = np.random.default_rng(7)
    easy = passes(rng, 0.8, 150)
    worse = np.where(rng.random(150) < 0.18, 0.0, easy)
    a, b = arm("a", easy), arm("b", worse)
    keys = {f"{side}{at}": f"question {at}" for at in range(150) for side in "ab"}
    apart, paired = decided(a, b), decided(a, b, keys=keys)
    assert (apart.pairs, apart.decision) == (None, "not enough data")
    assert (paired.pairs, paired.decision) == (150, "roll back")


def test_a_few_common_questions_make_no_pairs_unless_asked_for():
    rng = np.random.default_rng(8)
    a, b = arm("a", passes(rng, 0.8, 50)), arm("b", passes(rng, 0.8, 50))
    keys = {"a1": "hello", "b7": "hello"}
    assert decided(a, b, keys=keys).pairs is None
    row = decided(a, b, keys=keys, pairing="always")
    assert (row.pairs, row.left_out, row.champion.n) == (1, 98, 1)


def test_rare_scores_count_for_more_in_the_mean_and_no_weight_is_above_1():
    values = [1.0] * 100 + [0.0] * 50
    rates = [0.5] * 100 + [0.1] * 50
    a = [point(f"a{at}", at, value, rate=rate) for at, (value, rate) in enumerate(zip(values, rates, strict=True))]
    row = decided(a, arm("b", [0.5] * 50))
    assert row.champion.mean == pytest.approx(200 / 700)


def captured(share_old, share_new, n=250, **fields):
    rng = np.random.default_rng(11)
    for at in range(n):
        for model, share in zip(MODELS, (share_old, share_new), strict=True):
            value = float(rng.random() < share)
            named = {"model": model, "question": f"{model}{at}", "cluster": f"s:{model}{at}"}
            yield One(f"{model}{at}", value, 3600.0 - at, fields=named | fields)


def run(tmp_path, *arguments):
    words = ["compare", "--by", "model", "--a", "old", "--b", "new", "--data-dir", str(tmp_path), *arguments]
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize(("new", "code", "word"), [(0.55, 1, "roll back"), (1.0, 0, "ship")])
def test_the_command_decides_on_a_real_store(tmp_path, new, code, word):
    fill(tmp_path / "store.db", captured(0.9, new))
    result = run(tmp_path)
    assert result.exit_code == code, result.output
    assert result.output.splitlines()[-1] == word
    assert "faithfulness" in result.output


def test_the_command_warns_of_versions_that_served_at_different_times(tmp_path):
    some = [One(f"old{n}", 1.0, 7200.0 + n, fields={"model": "old", "question": f"old{n}"}) for n in range(60)]
    some += [One(f"new{n}", 0.0, 60.0 + n, fields={"model": "new", "question": f"new{n}"}) for n in range(60)]
    fill(tmp_path / "store.db", some)
    result = run(tmp_path)
    assert "the versions served mostly at different times (0% of the scores" in result.stderr
    assert json.loads(run(tmp_path, "--format", "json").stdout)["rows"][0]["overlap"] == 0.0


def test_the_command_says_in_json_how_many_more_it_takes(tmp_path):
    fill(tmp_path / "store.db", captured(0.9, 0.82, n=60))
    result = run(tmp_path, "--format", "json", "--metric", "faithfulness", "--app", "shop")
    said = json.loads(result.output)
    assert result.exit_code == 3
    assert said["decision"] == said["rows"][0]["decision"] == "not enough data"
    assert said["rows"][0]["champion"]["n"] == 60


def test_the_command_shows_sessions_where_there_are_any(tmp_path):
    rows = list(captured(0.9, 0.82, n=60))
    alike = [
        one._replace(fields={**one.fields, "cluster": f"s:{one.fields['model']}{at // 10}"})
        for at, one in enumerate(rows)
    ]
    (tmp_path / "plain").mkdir()
    fill(tmp_path / "plain" / "store.db", rows)
    fill(tmp_path / "store.db", alike)
    shown = run(tmp_path).output
    assert "12 (A) and 12 (B) sessions, users or single scores" in " ".join(shown.split())
    arms = json.loads(run(tmp_path, "--format", "json").output)["rows"][0]
    assert (arms["champion"]["clusters"], arms["champion"]["design_effect"] >= 1.0) == (12, True)
    assert arms["champion"]["n_eff"] == pytest.approx(60 / arms["champion"]["design_effect"])
    assert max(len(line) for line in shown.splitlines() if "sessions" not in line) <= 80
    assert "…" not in shown
    assert re.search(r"n_eff \d+, \d+; design effect \d\.\d\d, \d\.\d\d", shown)
    assert "shop faithfulness" in shown.splitlines()
    assert re.search(r"B - A +[+-]0\.\d{3} +[+-]0\.\d{3} to [+-]?0\.\d{3} +not enough data", shown), shown
    assert re.search(r"A +60 +[01]\.\d{3} +[01]\.\d{3} to [01]\.\d{3}", shown), shown
    assert "sessions" not in run(tmp_path / "plain").output


def test_the_command_pairs_what_was_asked_of_both(tmp_path):
    same = [one._replace(fields={**one.fields, "question": one.sample.lstrip("oldnew")}) for one in captured(0.9, 0.6)]
    fill(tmp_path / "store.db", same)
    assert json.loads(run(tmp_path, "--format", "json").output)["rows"][0]["pairs"] == 250
    assert json.loads(run(tmp_path, "--format", "json", "--pair-by", "off").output)["rows"][0]["pairs"] is None


def test_versions_are_told_apart_by_a_tag_too(tmp_path):
    tagged = (
        one._replace(fields={"tags": {"release": one.fields["model"]}, "cluster": one.fields["cluster"]})
        for one in captured(0.9, 0.4, n=120)
    )
    fill(tmp_path / "store.db", tagged)
    words = ["--by", "tag:release", "--a", "old", "--b", "new", "--data-dir", str(tmp_path)]
    assert CliRunner().invoke(main, ["compare", *words]).exit_code == 1


def test_periods_are_compared_whatever_the_version(tmp_path):
    draw = np.random.default_rng(6)
    rows = [
        One(f"x{at}", float(draw.random() < (0.5 if at < 120 else 0.9)), 60.0 * at, fields={"cluster": f"s:{at}"})
        for at in range(300)
    ]
    fill(tmp_path / "store.db", rows)

    def compared(a, b):
        words = ["--by", "period", "--a", a, "--b", b, "--data-dir", str(tmp_path), "--format", "json"]
        return CliRunner().invoke(main, ["compare", *words])

    found = json.loads(compared("5h..2h", "2h..now").output)
    (row,) = found["rows"]
    assert (found["decision"], row["champion"]["n"] > 150, row["challenger"]["n"] > 100) == ("roll back", True, True)
    assert row["ci_low"] < row["difference"] < row["ci_high"] < -0.1
    overlapping, wrong = compared("5h..1h", "2h..now"), compared("5h", "2h..now")
    assert (overlapping.exit_code, "overlap" in overlapping.output) == (2, True)
    assert (wrong.exit_code, "SINCE..UNTIL" in wrong.output) == (2, True)


def test_a_metric_of_ones_own_says_in_the_configuration_that_less_is_better(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    lines = ["class Wordy:", "    name, version, lower_is_better = 'wordy', '1', True"]
    lines += ["    async def score(self, sample): return None"]
    (tmp_path / "wordy_metric.py").write_text("\n".join(lines))
    config = tmp_path / "gaugeway.toml"
    judge = '[judge]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
    config.write_text(judge + '[metrics."wordy_metric:Wordy"]\nenabled = true\n')
    fill(tmp_path / "store.db", [one._replace(metric="wordy") for one in captured(0.6, 0.2)])
    assert run(tmp_path, "--config", str(config)).exit_code == 0
    assert run(tmp_path).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--b", "newer"], "available: new, old"),
        (["--b", "old"], "the two versions are the same"),
        (["--by", "colour"], "--by: expected model, prompt or tag:NAME, got 'colour'"),
        (["--pair-by", "luck"], "--pair-by"),
        (["--metric", "unheard"], "no scores of unheard for model 'old' in this period"),
        (["--since", "yesterday"], "expected a span"),
    ],
)
def test_bad_input_is_named(tmp_path, arguments, said):
    fill(tmp_path / "store.db", captured(0.9, 0.9, n=3))
    result = run(tmp_path, *arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_before_the_new_version_has_a_score_the_plan_comes_from_the_old_one(tmp_path):
    fill(tmp_path / "store.db", captured(0.9, 0.9, n=100))
    found = run(tmp_path, "--b", "newer", "--delta", "0.05")
    needed = int(re.search(r"scores of each: ([\d,]+) for\s+faithfulness of shop", found.output)[1].replace(",", ""))
    assert (found.exit_code, 500 < needed < 5_000) == (2, True)
    assert "scores of each" not in run(tmp_path, "--a", "older").output


def test_without_a_store_there_is_nothing_to_compare(tmp_path):
    result = run(tmp_path / "elsewhere")
    assert (result.exit_code, "nothing was captured here" in result.output) == (2, True)
    assert "--by: expected model" in run(tmp_path / "elsewhere", "--by", "colour").output


def described(path):
    """The fields of an answer in the OpenAPI document."""
    operation = openapi.document(compare_handlers(None))["paths"][path]["get"]
    return operation["responses"]["200"]["content"]["application/json"]["schema"]["properties"].keys()


def test_the_api_says_the_same_and_refuses_what_it_does_not_know(tmp_path, monkeypatch):
    fill(tmp_path / "store.db", captured(0.9, 0.5))
    monkeypatch.setattr(compare_api, "WITHIN_S", 60.0)

    async def scenario():
        store = SQLiteStore(tmp_path / "store.db")
        app = Litestar(compare_handlers(store), openapi_config=None, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            query = {"by": "model", "a": "old", "b": "new"}
            good = await client.get("/api/compare", params=query)
            unknown = await client.get("/api/compare", params=query | {"b": "newest"})
            narrow = await client.get("/api/compare", params=query | {"metric": "none", "since_s": "60"})
            bad = await client.get("/api/compare", params=query | {"by": "period"})
        await store.aclose()
        return good, unknown, narrow, bad

    good, unknown, narrow, bad = asyncio.run(scenario())
    assert (bad.status_code, "SINCE..UNTIL" in bad.json()["detail"]) == (400, True)
    assert good.status_code == 200, good.text
    assert good.json()["decision"] == "roll back"
    assert good.json().keys() == described("/api/compare")
    (row,) = good.json()["rows"]
    assert row["challenger"]["mean"] == pytest.approx(0.5, abs=0.1)
    assert -1.0 < row["ci_low"] < row["difference"] < row["ci_high"] < 0.0
    assert (unknown.status_code, narrow.status_code) == (400, 400)
    assert "available: new, old" in unknown.json()["detail"]


def test_the_api_says_when_it_has_not_counted_all(tmp_path, monkeypatch):
    draw = np.random.default_rng(12)
    rows = [
        One(f"{model}{at}", float(draw.random() < share), 6 * 3600.0 - 50.0 * at, fields={"model": model})
        for at in range(420)
        for model, share in zip(MODELS, (0.9, 0.5), strict=True)
    ]
    fill(tmp_path / "store.db", rows)
    monkeypatch.setattr(compare_api, "MOST_QUESTIONS", 10)

    async def scenario():
        store = SQLiteStore(tmp_path / "store.db")
        app = Litestar(compare_handlers(store), openapi_config=None, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            found = []
            for within_s in (-1.0, 60.0):
                monkeypatch.setattr(compare_api, "WITHIN_S", within_s)
                found.append((await client.get("/api/compare", params={"by": "model", "a": "old", "b": "new"})).json())
        await store.aclose()
        return found

    some, everything = asyncio.run(scenario())
    assert (some["partial"], everything["partial"]) == (True, False)
    assert 0 < some["rows"][0]["champion"]["n"] < everything["rows"][0]["champion"]["n"] == 420
    assert everything["decision"] == "roll back"


def test_signals_without_a_better_direction_are_no_part_of_the_decision():
    """They get "differs" or "within the margin", whichever side is larger, and no share of alpha."""

    def side(metric, value, name):
        about = {"app": "a", "model": "m", "outcome": "score", "reason": "", "rate": 1.0, "metric": metric}
        return [
            Point(sample_id=f"{name}{n}", started_at=float(n), value=min(1.0, value + 0.01 * (n % 3)), **about)
            for n in range(900)
        ]

    some = [
        *(("faithfulness", 0.9, 0.9), ("contexts_per_answer", 0.3, 0.8), ("retriever_score", 0.5, 0.5)),
    ]
    everything = [
        Sides(app="a", metric=metric, champion=side(metric, a, "a"), challenger=side(metric, b, "b"))
        for metric, a, b in some
    ]
    rows = {one.metric: one for one in compare(everything, margin=0.1)}
    assert rows["contexts_per_answer"].decision == "differs"
    assert rows["contexts_per_answer"].wins is None
    assert rows["retriever_score"].decision == "within the margin"
    assert not rows["retriever_score"].directed
    (alone,) = compare(everything[:1], margin=0.1)
    assert rows["faithfulness"] == alone
    assert decision(list(rows.values())) == "within the margin"
    assert decision([rows["contexts_per_answer"]]) == "not enough data"


def unnamed(rng, n, correlation):
    """Passes of conversations of 1 to 60 turns without a name, each with one version: n of each version."""
    both = [], []
    while min(map(len, both)) < n:
        length, own = rng.integers(1, 61), rng.normal()
        latent = np.sqrt(correlation) * own + np.sqrt(1.0 - correlation) * rng.normal(size=length)
        both[rng.integers(2)].extend((latent > -1.04) * 1.0)
    return [arm(name, scores[:n], cluster=None) for name, scores in zip("ab", both, strict=True)]


def test_conversations_that_nothing_names_do_not_decide_too_early():
    """Independent scores would be wrong in a third of these runs."""
    rng = np.random.default_rng(31)
    rows = [decided(*unnamed(rng, 1_000, 0.6)) for _ in range(40)]
    assert [row.decision for row in rows].count("roll back") <= 1
    assert np.median([row.champion.design_effect for row in rows]) > 6.0


def test_few_scores_without_a_name_are_not_decided():
    rng = np.random.default_rng(32)
    a, b = passes(rng, 0.9, 400), passes(rng, 0.3, 400)
    assert decided(arm("a", a[:390], cluster=None), arm("b", b[:390], cluster=None)).decision == "not enough data"
    assert decided(arm("a", a, cluster=None), arm("b", b, cluster=None)).decision == "roll back"
    assert decided(arm("a", a[:100]), arm("b", b[:100])).decision == "roll back"


def test_an_equal_version_is_within_the_margin_and_counts_as_one_to_ship():
    rng = np.random.default_rng(33)
    row = decided(arm("a", passes(rng, 0.9, 3_000)), arm("b", passes(rng, 0.9, 3_000)), margin=0.06)
    assert row.decision == "within the margin"
    better = decided(arm("a", passes(rng, 0.6, 500)), arm("b", passes(rng, 0.9, 500)), margin=0.06)
    assert (decision([row]), decision([row, better])) == ("within the margin", "ship")


def test_a_plan_comes_from_the_champions_scores():
    rng = np.random.default_rng(34)
    a = arm("a", 0.8 + 0.02 * rng.normal(size=60).clip(-3, 3))
    steady, wild = (decided(a, arm("b", passes(rng, 0.8, 30))), decided(arm("a", passes(rng, 0.8, 60)), a))
    assert steady.needed < 1_000
    assert wild.needed > 5_000
    assert decided(arm("a", passes(rng, 0.8, 5)), a).needed is None
