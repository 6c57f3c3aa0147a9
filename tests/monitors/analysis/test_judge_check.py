"""Judge and people on a real store: agreement, slices, disagreements, calibration, wordings; and how they are shown."""

import asyncio
import json
import time
import tomllib

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from litestar import Litestar

from gaugeway.cli.main import main
from gaugeway.records import Context, Evaluation, Sample, Score, Supplement
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Metric
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query
from monitors.analysis.judge_check import MAX_CASES, MAX_LABELS, _proposal, compare_wordings, judge_checks
from monitors.api.reports import label_handlers
from monitors.metrics.registry import build
from monitors.statistics.calibration import Calibration, digest
from tests.support.commands import problems_of
from tests.support.llm_server import LLMServer, Reply
from tests.support.running import serving

TOPICS = ("invoice payment refund money account", "parcel delivery courier shipping address")


def answers(n, *, seed=3, confident=True):
    """The judge's probability x of answers that people pass with probability x**2: it is over-confident."""
    rng = np.random.default_rng(seed)
    x = rng.random(n)
    return list(zip(x.tolist(), (rng.random(n) < (x**2 if confident else x)).tolist(), strict=True))


def sample_of(number, began, **fields):
    words = TOPICS[number % 2].split()
    return Sample(
        id=f"s{number}",
        started_at=began + number,
        app="shop" if number % 3 else "desk",
        question=f"How do I get the {words[number % 5]} with my {words[(number + 1) % 5]} number {number}?",
        response=f"You will get the {words[number % 5]} within {number} days.",
        contexts=(Context(text=f"Passage {number}.", source=f"doc-{number % 4}"),),
        **fields,
    )


def fill(path, pairs, *, metric="faithfulness", version="1", judge="luna", also=None):
    """Store answers with a score and a label each, and return the time of the first."""
    began = time.time() - 3600.0

    async def work():
        store = SQLiteStore(path)
        labels = []
        for number, (value, good) in enumerate(pairs):
            sample = sample_of(number, began)
            claim = {"claim": f"claim {number}", "verdict": "not_mentioned"}
            scores = [
                Evaluation(
                    sample_id=sample.id,
                    metric=metric,
                    version=version,
                    judge=judge,
                    outcome=Score(value, f"because {number}", (claim,)),
                )
            ]
            if also is not None:
                scores.append(
                    Evaluation(sample_id=sample.id, metric=also, version="9", judge="sol", outcome=Score(1.0 * good))
                )
            await store.add(sample, scores)
            word = "pass" if good else "fail"
            label = Supplement(
                id=f"l{number}", received_at=began + number, source="feedback", exchange_id=sample.id, label=word
            )
            labels.append(label)
        if also is None:
            await store.supplement(labels)
        await store.aclose()

    asyncio.run(work())
    return began


def checked(path, began, **options):
    async def work():
        store = SQLiteStore(path)
        query = Query(since=began - 1.0, until=began + 7200.0, metric=options.pop("metric", None))
        found = await judge_checks(store, query, **options)
        await store.aclose()
        return found

    return asyncio.run(work())


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    path = tmp_path_factory.mktemp("labelled") / "store.db"
    return path, fill(path, answers(600))


def groups_of(check, by):
    return {group.name: group.agreement for group in check.groups if group.by == by}


def test_agreement_by_class_and_slice(labelled):
    (check,) = checked(*labelled)
    pairs = answers(600)
    agree = [(x >= 0.7) == good for x, good in pairs]
    assert (check.metric, check.judge, check.version, check.truth, check.labels) == (
        "faithfulness",
        "luna",
        "1",
        "rating",
        600,
    )
    assert groups_of(check, "all")[""].value == pytest.approx(np.mean(agree))
    passed = [ok for ok, (_, good) in zip(agree, pairs, strict=True) if good]
    assert groups_of(check, "label")["pass"].value == pytest.approx(np.mean(passed))
    assert {name: one.n for name, one in groups_of(check, "app").items()} == {"shop": 400, "desk": 200}
    assert set(groups_of(check, "source")) == {f"doc-{number}" for number in range(4)}
    assert len(groups_of(check, "topic")) >= 2
    assert not groups_of(check, "language")  # all are in one
    for by in ("label", "app", "source"):
        alone = groups_of(check, by)
        assert sum(one.n for one in alone.values()) == 600
        assert all(one.low < one.value < one.high for one in alone.values())
    assert check.kappa.low < check.kappa.value < check.kappa.high


def test_the_cases_are_sure_different_disagreements(labelled):
    (check,) = checked(*labelled)
    pairs = answers(600)
    assert len(check.cases) == MAX_CASES
    for case in check.cases:
        value, good = pairs[int(case.id[1:])]
        assert (case.score, case.people) == (value, "pass" if good else "fail")
        assert case.judge != case.people
        assert case.reason == f"because {case.id[1:]}"
        assert case.evidence[0]["claim"] == f"claim {case.id[1:]}"
        assert case.question
        assert case.answer
    worst = max(abs(x - good) for x, good in pairs if (x >= 0.7) != good)
    first = check.cases[0]
    assert abs(first.score - (first.people == "pass")) == pytest.approx(worst)


def test_alike_disagreements_are_shown_once_before_others(tmp_path):
    path = tmp_path / "store.db"
    began = time.time() - 3600.0

    async def work():
        store = SQLiteStore(path)
        for number in range(30):
            text = "The very same answer." if number < 25 else f"{'abcde'[number - 25] * 7} {'vwxyz'[number - 25] * 5}"
            sample = Sample(id=f"s{number}", started_at=began, app="shop", question=text, response=text)
            value = 0.99 if number < 25 else 0.8
            one = Evaluation(sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(value))
            await store.add(sample, [one])
            said = Supplement(
                id=f"l{number}", received_at=began, source="feedback", exchange_id=sample.id, label="fail"
            )
            await store.supplement([said])
        await store.aclose()

    asyncio.run(work())
    (check,) = checked(path, began)
    assert {case.id for case in check.cases[:6]} >= {f"s{number}" for number in range(25, 30)}
    assert check.kappa is None  # people fail all
    assert check.proposal is None  # 30 pairs leave none to check a map


def test_a_map_is_proposed_when_later_labels_show_that_it_is_better(labelled):
    (check,) = checked(*labelled)
    proposal = check.proposal
    assert proposal.fitted == 240
    assert proposal.after.n == proposal.before.n == 360
    assert proposal.calibration.startswith(f"isotonic {digest('faithfulness', '1', 'luna')}:")
    assert proposal.better
    assert proposal.after.ece < proposal.before.ece
    assert check.reliability.low > 0.03  # |x - x^2| is 1/6 on average
    assert check.reliability.low < 1.0 / 6.0 < check.reliability.high
    assert check.in_force is None


def test_a_map_of_scores_that_are_right_is_not_proposed():
    """Of 60 judges that are calibrated, at most 5 % and chance get a map."""
    proposed = 0
    for seed in range(60):
        pairs = np.array(answers(200, seed=seed, confident=False), dtype=np.float64)
        proposed += _proposal(pairs[:, 0], pairs[:, 1], "0" * 8).better
    assert proposed <= 6


def test_the_map_is_a_version_of_the_metric_and_is_checked_in_its_turn(tmp_path, labelled):
    (check,) = checked(*labelled)
    path = tmp_path / "store.db"
    mapped = Calibration.parse(check.proposal.calibration)
    began = time.time() - 3600.0

    async def work():
        store = SQLiteStore(path)
        for number, (value, good) in enumerate(answers(300, seed=11)):
            sample, raw = sample_of(number, began), {"raw": value, "calibration": str(mapped)}
            outcome = Score(float(mapped.apply([value])[0]), "calibrated", (raw,))
            version = f"1~{digest(str(mapped))}"
            one = Evaluation(sample_id=sample.id, metric="faithfulness", version=version, judge="luna", outcome=outcome)
            await store.add(sample, [one])
            label = "pass" if good else "fail"
            said = Supplement(
                id=f"l{number}", received_at=began + number, source="feedback", exchange_id=sample.id, label=label
            )
            await store.supplement([said])
        await store.aclose()

    asyncio.run(work())
    (after,) = checked(path, began)
    assert after.version == "1"  # the instrument is the same
    assert after.in_force.n == after.reliability.n == 300
    assert after.in_force.ece < after.reliability.ece
    assert after.in_force.high < after.reliability.high


def test_the_truth_may_be_the_score_of_another_metric(tmp_path):
    path = tmp_path / "store.db"
    began = fill(path, answers(150), metric="lexical_groundedness", judge=None, also="faithfulness")
    assert checked(path, began) == []  # no labels
    (check,) = checked(path, began, metric="lexical_groundedness", truth="faithfulness")
    assert (check.truth, check.labels, check.judge) == ("faithfulness", 150, None)
    assert check.proposal.calibration.startswith(f"platt {digest('lexical_groundedness', '1', None)}:")


def test_where_0_is_best_the_labels_are_turned(tmp_path):
    path = tmp_path / "store.db"
    began = fill(path, [(1.0 - x, good) for x, good in answers(300)], metric="hallucination")
    (check,) = checked(path, began)
    assert groups_of(check, "all")[""].value > 0.6
    rising = Calibration.parse(check.proposal.calibration).apply([0.1, 0.9])
    assert rising[0] < rising[1]


def test_scores_of_another_version_are_left_out_and_counted(tmp_path, labelled):
    path = tmp_path / "store.db"
    began = fill(path, answers(60))

    async def work():
        store = SQLiteStore(path)
        sample = sample_of(1000, began)
        one = Evaluation(sample_id=sample.id, metric="faithfulness", version="2", judge="luna", outcome=Score(0.5))
        await store.add(sample, [one])
        said = Supplement(id="new", received_at=began, source="feedback", exchange_id=sample.id, label="fail")
        await store.supplement([said])
        await store.aclose()

    asyncio.run(work())
    (check,) = checked(path, began)
    assert (check.version, check.labels, check.left_out) == ("2", 1, 60)
    assert check.proposal is None
    assert MAX_LABELS >= 60


def wordings(seed, n, gain):
    """Verdicts of three wordings on n answers, of which the third agrees more by `gain`."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n)
    return {
        "one": list(hard < 0.7),
        "two": list(np.where(rng.random(n) < 0.3, rng.random(n) < 0.7, hard < 0.7)),
        "three": list(hard < 0.7 + gain),
    }


def test_a_wording_that_is_no_better_is_named_in_at_most_5_percent_of_runs_whenever_one_looks():
    wrong = 0
    for seed in range(200):
        agrees = wordings(seed, 400, 0.0)
        looks = ({name: values[:n] for name, values in agrees.items()} for n in range(20, 401, 40))
        wrong += any(any(one.better for one in compare_wordings(some)) for some in looks)
    assert wrong <= 10


def test_a_better_wording_is_named():
    named = [{one.name for one in compare_wordings(wordings(seed, 200, 0.15)) if one.better} for seed in range(50)]
    assert sum(names == {"three"} for names in named) >= 45
    first, _, third = compare_wordings(wordings(1, 200, 0.15))
    assert (first.difference.low, first.better) == (first.difference.low, False)
    assert 0.0 < third.difference.low < 0.15 < third.difference.high


async def test_the_api_returns_the_same(labelled):
    path, _ = labelled
    store = SQLiteStore(path)
    app = Litestar(label_handlers(store), openapi_config=None)
    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        everything = (await client.get("/api/judge-check")).json()
        other = (await client.get("/api/judge-check", params={"app": "other"})).json()
        wrong = await client.get("/api/judge-check", params={"since_s": 0})
    await store.aclose()
    assert other == []
    assert wrong.status_code == 400
    (check,) = everything
    assert check["reliability"]["n"] == 600
    assert len(check["reliability"]["bins"]) == 10
    assert check["proposal"]["better"] is True


def run_command(*arguments, command=("judge", "check")):
    return CliRunner().invoke(main, [*command, *map(str, arguments)])


@pytest.mark.parametrize(("constant", "who"), [("judge", "the judge"), ("people", "people")])
def test_kappa_cannot_be_told_where_one_side_gave_one_verdict(tmp_path, monkeypatch, constant, who):
    monkeypatch.chdir(tmp_path)
    mixed = [number % 3 > 0 for number in range(40)]
    path = tmp_path / "store.db"
    began = fill(path, [(0.9, good) if constant == "judge" else (0.9 * good, True) for good in mixed])
    assert checked(path, began)[0].kappa is None
    shown = run_command("--data-dir", tmp_path).stdout
    assert f"| kappa | | cannot be computed: {who} gave one verdict only | - | 40 |" in shown
    assert "0.00 to 0.00" not in shown


def test_the_command_prints_toml_that_switches_the_map_on(tmp_path, labelled, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, _ = labelled
    shown = run_command("--data-dir", path.parent)
    assert shown.exit_code == 0, shown.output
    assert "## faithfulness by luna, version 1" in shown.stdout
    assert "Where judge and people differ" in shown.stdout
    block = shown.stdout.split("```toml\n")[1].split("```")[0]
    calibration = tomllib.loads(block)["metrics"]["faithfulness"]["calibration"]
    assert Calibration.parse(calibration).kind == "isotonic"
    found = json.loads(run_command("--data-dir", path.parent, "--format", "json").stdout)
    assert found["checks"][0]["proposal"]["calibration"] == calibration
    assert found["wordings"] == []


def test_the_command_refuses_what_it_cannot_do(tmp_path, labelled, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, _ = labelled
    nothing = run_command("--data-dir", path.parent, "--metric", "hallucination")
    no_metric = run_command("--data-dir", path.parent, "--truth", "faithfulness")
    no_geval = run_command("--data-dir", path.parent, "--metric", "faithfulness", "--wording", tmp_path / "w.toml")
    assert [one.exit_code for one in (nothing, no_metric, no_geval)] == [2, 2, 2]
    assert "no scores with labels" in nothing.stderr
    assert "--truth needs --metric" in no_metric.stderr
    assert "--wording needs --metric" in no_geval.stderr


CONFIG = """
[judge]
base_url = "{url}"
model = "luna"
api_key = "k"

[metrics."geval:tone"]
criteria = "Is it friendly?"
steps = ["Read OLD."]
samples = 1
"""


def test_the_better_wording_is_printed_and_none_is_switched(tmp_path, monkeypatch):
    """The endpoint's model judges right when the steps say NEW, at random when they say OLD."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    fill(tmp_path / "data" / "store.db", [(0.5, number % 2 == 0) for number in range(60)], metric="geval:tone")

    def answer(request):
        system, user = (message["content"] for message in request.body["messages"])
        number = int(user.rsplit("within ", 1)[1].split(" ")[0])
        good = number % 2 == 0 if "NEW" in system else number % 3 == 0
        return Reply(content=json.dumps({"score": 5 if good else 1}))

    with LLMServer(answer) as llm:
        (tmp_path / "gaugeway.toml").write_text(CONFIG.format(url=llm.url))
        (tmp_path / "new.toml").write_text('criteria = "Is it friendly?"\nsteps = ["Read NEW."]\n')
        (tmp_path / "same.toml").write_text('criteria = "Is it friendly?"\nsteps = ["Read OLD again."]\n')
        words = ("--metric", "geval:tone", "--wording", "new.toml", "--wording", "same.toml")
        shown = run_command("--data-dir", "data", *words)
        no_better = run_command("--data-dir", "data", "--metric", "geval:tone", "--wording", "same.toml")
    assert (no_better.exit_code, "none is proposed" in no_better.stdout) == (0, True)
    assert shown.exit_code == 0, shown.output + str(shown.exception)
    assert "geval:tone.new agrees more" in shown.stdout.replace("\\", "")
    block = shown.stdout.split("```toml\n")[-1].split("```")[0]
    assert tomllib.loads(block)["metrics"]["geval:tone"]["steps"] == ["Read NEW."]
    assert "NEW" not in (tmp_path / "gaugeway.toml").read_text()


def test_a_calibrated_metric_is_another_version_with_the_raw_score_in_its_evidence():
    name = "lexical_groundedness"
    raw = build({}, None, None).by_name[name]
    text = f"isotonic {digest(raw.name, str(raw.version), None)}: 0.0 0.2 1.0 0.8"
    made = build({name: Metric(calibration=text)}, None, None).by_name[name]
    sample = Sample(
        id="s",
        started_at=1.0,
        question="q?",
        response="The warranty is two years.",
        contexts=(Context(text="The warranty is two years."),),
    )
    before, after = asyncio.run(raw.score(sample)), asyncio.run(made.score(sample))
    assert made.version == f"{raw.version}~{digest(text)}"
    assert after.value == pytest.approx(0.2 + 0.6 * before.value)
    assert after.evidence[-1] == {"raw": before.value, "calibration": text}
    for other in (f"isotonic {'0' * 8}: 0.0 0.2 1.0 0.8",):
        catalogue = build({name: Metric(calibration=other)}, None, None)
        assert catalogue.by_name[name].version == raw.version
        assert any("calibration is not used" in note for note in catalogue.notes)


def test_a_calibration_that_is_no_map_is_an_error_of_the_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("other 0f0f0f0f: 0.0 0.1 1.0 0.9", "isotonic xyz: 0.0 0.1", "isotonic 0f0f0f0f"):
        problems = problems_of(f'[metrics.faithfulness]\ncalibration = "{text}"\n')
        expected = "metrics.faithfulness.calibration: expected a map that `gaugeway judge check` proposed"
        assert expected in problems


ROW = {"question": "How long?", "answer": "Two years.", "contexts": ["The warranty is two years."]}
BAD_MAPS = {
    "falls": "isotonic 0f0f0f0f: 0.0 0.9 1.0 0.1",
    "scores fall": "isotonic 0f0f0f0f: 1.0 0.1 0.0 0.9",
    "above 1": "platt 0f0f0f0f: 0.0 0.1 1.0 1.5",
    "below 0": "platt 0f0f0f0f: 0.0 -0.1 1.0 0.5",
    "flat": "isotonic 0f0f0f0f: 0.0 0.4 1.0 0.4",
    "a single pair": "isotonic 0f0f0f0f: 0.5 0.2",
    "odd count": "isotonic 0f0f0f0f: 0.0 0.1 1.0",
    "no number": "isotonic 0f0f0f0f: 0.0 0.1 1.0 0..9",
}


@pytest.mark.parametrize("text", BAD_MAPS.values(), ids=BAD_MAPS)
def test_a_map_that_falls_is_flat_leaves_the_scale_or_has_an_odd_count_is_refused(tmp_path, monkeypatch, text):
    """By `check`, `serve` and `evaluate`, whether or not a judge is there for the metric."""
    monkeypatch.chdir(tmp_path)
    for name in ("faithfulness", "lexical_groundedness"):
        config = f'[metrics.{name}]\ncalibration = "{text}"\n'
        assert any(line.startswith(f"metrics.{name}.calibration: ") for line in problems_of(config))
        with pytest.raises(ConfigError) as refused:
            build({name: Metric(calibration=text)}, None, None)
        assert [problem.partition(":")[0] for problem in refused.value.problems] == [f"metrics.{name}.calibration"]
    (tmp_path / "gaugeway.toml").write_text(config)
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW))
    found = run_command("rows.jsonl", "--metrics", "lexical_groundedness", command=["evaluate"])
    assert found.exit_code == 2
    assert "metrics.lexical_groundedness.calibration: " in found.output


def test_a_map_of_another_version_is_a_note_of_evaluate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    map_ = "isotonic 00000000: 0.0 0.2 1.0 0.8"
    upstream = '[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"\n'
    (tmp_path / "gaugeway.toml").write_text(f'{upstream}[metrics.lexical_groundedness]\ncalibration = "{map_}"\n')
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW))
    warned = CliRunner().invoke(main, ["check", "--config", "gaugeway.toml"])
    assert (warned.exit_code, "lexical_groundedness.calibration is not used" in warned.stderr) == (0, True)
    for words in ((), ("--metrics", "lexical_groundedness")):
        found = run_command("rows.jsonl", *words, command=["evaluate"])
        assert found.exit_code == 0, found.output
        assert "metrics.lexical_groundedness.calibration is not used: fitted for another version" in found.output
