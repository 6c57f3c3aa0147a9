"""`gaugeway export` and `gaugeway replay` of captured exchanges, as users run them."""

import asyncio
import json
import time

import pytest

from gaugeway.cli import evaluate as offline_cli
from gaugeway.records import CaptureInfo, Context, Evaluation, Failed, PromptPart, Sample, Score, Skipped
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.offline import Run
from tests.support.commands import invoke
from tests.support.llm_server import LLMServer, Reply
from tests.support.rules_server import judged

PART = PromptPart(role="system", kind="instructions", start=0, end=9, text="Be brief.")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def captured(tmp_path):
    """A data directory with twelve exchanges: six good, five bad ones, and one that holds no answer."""
    now = time.time()

    async def fill():
        store = SQLiteStore(tmp_path / "data" / "store.db")
        for number in range(12):
            text = "The warranty is two years." if number < 6 else "The warranty is nine years."
            sample = Sample(
                id=f"x{number}",
                started_at=now - 60 * number,
                app="shop",
                question="How long is the warranty?",
                contexts=(
                    Context(text="The warranty is two years.", id="p1"),
                    Context(text="Bulbs are excluded.", id="p2"),
                ),
                context_source="explicit",
                capture=CaptureInfo(source="explicit", confidence=1.0, parts=(PART,)),
                response=text,
                tags={"lang": "en"},
                skip_reason="tool_call" if number == 11 else None,
                rate=0.5,
            )
            outcomes = [
                Evaluation(
                    sample_id=sample.id, metric="lexical_groundedness", version="0", outcome=Score(1 - number / 20)
                ),
                Evaluation(
                    sample_id=sample.id,
                    metric="faithfulness",
                    version="0",
                    judge="old",
                    rate=0.05,
                    outcome=Score(0.5, "old", ({"claim": "c", "verdict": "supported"},)),
                ),
                Evaluation(
                    sample_id=sample.id,
                    metric="hallucination",
                    version="0",
                    judge="old",
                    outcome=Failed("timeout", "d")
                    if number == 1
                    else Skipped("no_contexts")
                    if number == 2
                    else Score(0.9 if number == 3 else 0.0),
                ),
            ]
            await store.add(sample, outcomes)
        await store.aclose()

    asyncio.run(fill())
    return tmp_path / "data"


def stored(data_dir, sample_id):
    async def read():
        store = SQLiteStore(data_dir / "store.db")
        try:
            return await store.sample(sample_id)
        finally:
            await store.aclose()

    return asyncio.run(read())


def test_an_export_is_read_by_evaluate_with_the_same_texts(tmp_path):
    data = captured(tmp_path)
    result = invoke(offline_cli.export, tmp_path / "out.jsonl", "--data-dir", data)
    assert result.exit_code == 0, result.output
    assert "11 exchanges written, 1 without an answer left out" in result.output
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"x{number}" for number in reversed(range(11))]
    assert rows[-1]["retrieved_contexts"] == ["The warranty is two years.", "Bulbs are excluded."]
    assert rows[-1]["retrieved_context_ids"] == ["p1", "p2"]
    assert rows[-1]["scores"]["faithfulness"] == {
        "value": 0.5,
        "reason": "old",
        "version": "0",
        "judge": "old",
        "rate": 0.05,
    }
    assert (rows[-1]["capture"]["source"], rows[-1]["capture"]["parts"][0]["text"]) == ("explicit", "Be brief.")
    assert rows[-2]["scores"]["hallucination"]["failed"] == "timeout"
    assert rows[-3]["scores"]["hallucination"]["skipped"] == "no_contexts"
    evaluated = invoke(offline_cli.evaluate, tmp_path / "out.jsonl", "--judge", "none", "--output", "run.json")
    assert (evaluated.exit_code, "is not used" in evaluated.output) == (0, False)
    sample = Run.load(tmp_path / "run.json").rows[-1].sample
    original, _ = stored(data, "x0")
    assert (sample.id, sample.question, sample.response, sample.tags, sample.app) == (
        original.id,
        original.question,
        original.response,
        original.tags,
        original.app,
    )


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--worst", "2", "--metric", "lexical_groundedness"], ["x10", "x9"]),
        (["--worst", "1", "--metric", "hallucination"], ["x3"]),
        (["--worst", "1"], ["x3"]),
        (["--since", "150s"], ["x2", "x1", "x0"]),
        (["--metric", "answer_relevancy~other"], []),
    ],
)
def test_an_export_of_the_worst_or_the_latest(tmp_path, options, ids):
    result = invoke(offline_cli.export, tmp_path / "out.jsonl", "--data-dir", captured(tmp_path), *options)
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ids


def test_an_export_by_an_unknown_metric_names_the_known_ones_and_writes_nothing(tmp_path):
    result = invoke(offline_cli.export, tmp_path / "out.jsonl", "--data-dir", captured(tmp_path), "--metric", "bogus")
    assert result.exit_code == 2
    assert "--metric: unknown metric 'bogus'; known: answer_relevancy, " in " ".join(result.output.split())
    assert not (tmp_path / "out.jsonl").exists()


def test_a_replay_adds_scores_and_touches_none(tmp_path):
    data = captured(tmp_path)
    before = stored(data, "x7")
    arguments = (
        "--data-dir",
        data,
        "--metrics",
        "faithfulness,lexical_groundedness",
        "--judge",
        "examples.rules:RuleJudge",
    )
    result = invoke(offline_cli.replay, *arguments)
    assert result.exit_code == 0, result.output
    assert "the judge changed: old before, rules after" in result.output
    sample, after = stored(data, "x7")
    assert (sample, list(after[:3])) == (before[0], list(before[1]))
    assert {(one.metric, one.judge) for one in after[3:]} == {
        ("faithfulness~rules", "rules"),
        ("lexical_groundedness~replay", None),
    }
    new = next(one for one in after if one.metric == "faithfulness~rules")
    assert new.outcome.value == 0.0
    assert new.rate == 0.5
    assert stored(data, "x2")[1][3].outcome.value == 1.0
    assert len(stored(data, "x11")[1]) == 3


def test_a_second_replay_asks_for_nothing(llm, config, tmp_path):
    data = captured(tmp_path)
    arguments = ("--data-dir", data, "--metrics", "faithfulness", "--config", config)
    assert invoke(offline_cli.replay, *arguments).exit_code == 0
    assert judged(llm) == 11
    again = invoke(offline_cli.replay, *arguments)
    assert judged(llm) == 11
    assert "11 evaluations reused from earlier runs" in again.output
    assert invoke(offline_cli.replay, *arguments, "--label", "second opinion").exit_code == 0
    assert judged(llm) == 22
    assert {one.metric for one in stored(data, "x0")[1]} >= {"faithfulness~stub", "faithfulness~second opinion"}


def test_a_label_holds_one_version_of_a_metric(llm, config, tmp_path):
    data = captured(tmp_path)
    arguments = ("--data-dir", data, "--metrics", "faithfulness", "--config", config, "--label", "x")
    assert invoke(offline_cli.replay, *arguments).exit_code == 0
    config.write_text(config.read_text() + "\n[metrics.faithfulness]\ncontradiction_only = true\n")
    result = invoke(offline_cli.replay, *arguments)
    assert result.exit_code == 2
    assert "choose another --label" in result.output


def test_a_failed_replay_is_tried_again(tmp_path):
    data = captured(tmp_path)
    with LLMServer(Reply(content="no JSON at all")) as llm:
        config = tmp_path / "broken.toml"
        config.write_text(f'[judge]\nbase_url = "{llm.url}"\nmodel = "stub"\n')
        result = invoke(offline_cli.replay, "--data-dir", data, "--metrics", "faithfulness", "--config", config)
    assert "11 unreadable" in result.output
    assert len(stored(data, "x0")[1]) == 3


def test_the_live_series_do_not_see_a_replay(tmp_path):
    from gaugeway.storage.stores import Query

    data = captured(tmp_path)

    async def live():
        store = SQLiteStore(data / "store.db")
        try:
            query = Query(since=0.0, until=time.time() + 1, metric="faithfulness")
            return [one.n for one in await store.summary(query)], len(await store.series(query))
        finally:
            await store.aclose()

    before = asyncio.run(live())
    arguments = ("--data-dir", data, "--metrics", "faithfulness", "--judge", "examples.rules:RuleJudge")
    assert invoke(offline_cli.replay, *arguments).exit_code == 0
    assert asyncio.run(live()) == before


@pytest.mark.parametrize("command", [offline_cli.replay, offline_cli.export])
def test_there_must_be_something_captured_and_readable(command, tmp_path):
    target = [tmp_path / "out.jsonl"] if command is offline_cli.export else ["--judge", "none"]
    result = invoke(command, *target, "--data-dir", tmp_path / "empty")
    assert result.exit_code == 2
    assert "nothing was captured here" in result.output
    assert not (tmp_path / "empty").exists()
    config = tmp_path / "hashes.toml"
    config.write_text("[capture]\ncontent = false\n")
    result = invoke(command, *target, "--data-dir", captured(tmp_path), "--config", config)
    assert result.exit_code == 2
    assert "hashes" in result.output
    assert invoke(command, *target, "--data-dir", tmp_path / "data", "--since", "yesterday").exit_code == 2
