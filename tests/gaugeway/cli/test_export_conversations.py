"""An export of follow-ups is read back by evaluate: session, history and tool calls are those of the live samples."""

import asyncio
import json
import time

import pytest
from click.testing import CliRunner

from gaugeway.cli import evaluate as offline_cli
from gaugeway.records import Evaluation, Message, Sample, Score, Skipped, ToolCall
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.offline import Run
from monitors.offline.dataset_fields import content_key


def follow_up(number, **more):
    """The second question of one of three sessions, after the same one."""
    return Sample(
        id=f"x{number}",
        started_at=time.time() - 60 + number,
        app="shop",
        question=["How long is the warranty?", "Is shipping free?"][number % 2],
        response="Two years.",
        session=f"s{number // 2}",
        conversation=f"c{number // 2}",
        turn=2,
        hop=1,
        history=(Message(role="user", text="How long is the warranty?"), Message(role="assistant", text="Hm.")),
        calls=(ToolCall(name="search", arguments='{"q": "warranty"}', hop=1),),
        cluster=f"s:c{number // 2} u:7",
        **more,
    )


TRANSCRIPT = Sample(
    id="conversation-c0",
    started_at=time.time() - 30,
    app="shop",
    conversation="c0",
    transcript=(Message(role="user", text="How long is the warranty?"),),
)


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def fill():
        store = SQLiteStore(tmp_path / "data" / "store.db")
        for number in range(6):
            sample = follow_up(number)
            score = Evaluation(sample_id=sample.id, metric="asked_again", version="1", outcome=Score(1.0 - number % 2))
            await store.add(sample, [score])
        tool_call = follow_up(8, skip_reason="tool_call")
        for sample in (tool_call, TRANSCRIPT):
            skipped = Evaluation(sample_id=sample.id, metric="asked_again", version="1", outcome=Skipped("no_question"))
            await store.add(sample, [skipped])
        await store.aclose()

    asyncio.run(fill())
    return tmp_path / "data"


def invoke(command, *arguments):
    result = CliRunner().invoke(command, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_exported_follow_ups_are_evaluated_as_they_were_live(data, tmp_path):
    said = invoke(offline_cli.export, "out.jsonl", "--data-dir", data).output
    assert "6 exchanges written, 1 without an answer left out, 1 record of whole conversations left out" in said
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert first["history"] == [
        {"role": "user", "content": "How long is the warranty?"},
        {"role": "assistant", "content": "Hm."},
    ]
    assert first["tool_calls"] == [{"name": "search", "arguments": '{"q": "warranty"}', "hop": 1}]
    shown = invoke(
        offline_cli.evaluate, "out.jsonl", "--judge", "none", "--metrics", "asked_again", "--output", "run.json"
    ).output
    assert "is not used" not in shown
    assert "3 sessions" in shown
    run = Run.load(tmp_path / "run.json")
    assert run.scores("asked_again") == [1.0, 0.0] * 3
    assert run.summary[0].clusters == 3
    for number, row in enumerate(run.rows):
        live = follow_up(number)
        for name in ("session", "conversation", "turn", "hop", "history", "calls", "cluster"):
            assert getattr(row.sample, name) == getattr(live, name), name
        assert content_key(row.sample) == content_key(live)
