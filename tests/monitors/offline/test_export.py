"""Captured exchanges as a data set: all, or only the questions without a good answer."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from gaugeway.records import Context, Evaluation, Sample, Score, Skipped
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.offline import dataset
from monitors.offline.export import export

PASSAGES = (Context(text="Two years.", id="w"),)
STORED = {
    "good": ({"contexts": PASSAGES, "context_source": "tools"}, Score(0.9)),
    "low": ({"contexts": PASSAGES, "context_source": "tools"}, Score(0.2)),
    "empty": ({"context_source": "tools"}, Skipped("no_contexts")),
    "chat": ({}, Skipped("no_contexts")),
    "declined": ({"contexts": PASSAGES, "context_source": "tools"}, Skipped("no_claims")),
    "refused": ({"skip_reason": "refusal"}, Skipped("refusal")),
    "failed": ({"skip_reason": "upstream_error"}, Skipped("upstream_error")),
}


def written(path, **options):
    async def main():
        store = SQLiteStore(path / "store.db")
        try:
            for number, (name, (fields, outcome)) in enumerate(STORED.items()):
                sample = Sample(id=name, started_at=float(number + 1), question="How long?", retrieval_s=0.25, **fields)
                one = Evaluation(sample_id=name, metric="faithfulness", version="1", outcome=outcome)
                await store.add(sample, [one])
            file = io.StringIO()
            counts = await export(store, file, since=0.0, until=100.0, **options)
            return [json.loads(line) for line in file.getvalue().splitlines()], counts
        finally:
            await store.aclose()

    return asyncio.run(main())


def test_answers_are_written_with_the_time_of_their_retrieval_and_what_is_no_answer_is_counted(tmp_path):
    records, counts = written(tmp_path)
    assert [one["id"] for one in records] == ["good", "low", "empty", "chat", "declined"]
    assert records[0]["retrieval_s"] == 0.25
    assert (counts.written, counts.left_out) == (5, 2)


def test_gaps_are_the_questions_that_were_declined_found_nothing_or_scored_low(tmp_path):
    records, counts = written(tmp_path, gaps=True)
    assert [one["id"] for one in records] == ["low", "empty", "declined", "refused"]
    assert (counts.written, counts.left_out) == (4, 0)


KNOWN = {"text": "a", "score": 0.5, "source": "x.md"}, {"text": "b", "id": "2", "source": "y.md"}, {"text": "c"}
WITH_IDS = (Context(text="a", id="1"), Context(text="b", id="2"))
SOURCED = tuple(Context(text=one.text, id=one.id, source="x.md", score=0.0) for one in WITH_IDS)


@pytest.mark.parametrize(
    ("contexts", "exported"),
    [
        (tuple(Context(**one) for one in KNOWN), (list(KNOWN), None)),
        (WITH_IDS, (["a", "b"], ["1", "2"])),
        (SOURCED, ([{"text": one.text, "id": one.id, "score": 0.0, "source": "x.md"} for one in SOURCED], ["1", "2"])),
        ((Context(text="a"), Context(text="b")), (["a", "b"], None)),
        ((Context(text="a"), Context(text="b", id="2")), ([{"text": "a"}, {"text": "b", "id": "2"}], None)),
        ((), ([], None)),
    ],
)
@pytest.mark.parametrize("gaps", [False, True])
def test_passages_are_read_back_with_their_ids_scores_and_sources(tmp_path, monkeypatch, contexts, exported, gaps):
    fields = {"contexts": contexts, "context_source": "tools"}
    monkeypatch.setattr(f"{__name__}.STORED", {"low": (fields, Score(0.2))})
    (record,), _ = written(tmp_path, gaps=gaps)
    assert (record["retrieved_contexts"], record.get("retrieved_context_ids")) == exported
    file = tmp_path / "export.jsonl"
    file.write_text(json.dumps(record) + "\n")
    ((sample,), notes) = dataset.read(file)
    assert (sample.contexts, notes) == (contexts, [])
