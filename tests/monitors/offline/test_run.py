"""A second run asks only for what is missing; a run is read again as it was written."""

import json
from dataclasses import replace

import pytest
from msgspec import structs

from gaugeway.records import Context, Failed, Sample, Score, Skipped
from monitors.evaluation.evaluator import TIMEOUT_S
from monitors.judges import JudgeError
from monitors.judges.scripted import Scripted
from monitors.metrics.faithfulness import Faithfulness
from monitors.metrics.judged.claims import Fused
from monitors.metrics.registry import Enabled
from monitors.offline import run as parts
from monitors.offline import run as running
from monitors.offline.results import Run
from monitors.offline.results_codec import ResultsCache


def sample(name, response="The warranty is two years."):
    contexts = (Context(text="A warranty of two years."),)
    return Sample(id=name, started_at=0.0, question="How long?", response=response, contexts=contexts)


def claims(verdict="supported"):
    claim = {"claim": "two years", "verdict": verdict, "relevance": "relevant", "contexts": [0], "quote": "two years"}
    return {"noncommittal": False, "claims": [claim]}


def plan(judge, **settings):
    enabled = Enabled(metric=Faithfulness(Fused(judge)), rate=1.0, threshold=0.7, objective=0.95)
    return running.Plan(metrics=[enabled], **settings)


def run(coroutine):
    import asyncio

    return asyncio.run(coroutine)


def twice(tmp_path, first, second):
    """Run two plans over some samples, each in a loop of its own, with one run file; both results."""

    async def once(samples, what):
        file = ResultsCache(tmp_path / "runs" / "a.db")
        try:
            return await running.run(samples, what, cache=file)
        finally:
            await file.aclose()

    return run(once(*first)), run(once(*second))


def test_a_second_run_pays_only_for_what_is_missing(tmp_path):
    judge = Scripted({"claims_verdicts": claims()})
    texts = [f"Answer {number}: two years." for number in range(5)]
    samples = [sample(f"s{number}", text) for number, text in enumerate(texts)]
    (first, _), (second, progress) = twice(tmp_path, (samples[:3], plan(judge)), (samples, plan(judge)))
    assert len(judge.asked) == 5
    assert progress.reused == 3
    assert [row.sample.id for row in second] == [f"s{number}" for number in range(5)]
    assert [row.evaluations for row in second[:3]] == [row.evaluations for row in first]


def test_the_same_content_under_another_id_is_known(tmp_path):
    judge = Scripted({"claims_verdicts": claims()})
    _, (rows, progress) = twice(tmp_path, ([sample("a")], plan(judge)), ([sample("b")], plan(judge)))
    assert progress.reused == 1
    assert rows[0].evaluations["faithfulness"].sample_id == "b"


@pytest.mark.parametrize(
    ("judge", "settings", "text"),
    [
        (Scripted({"claims_verdicts": claims()}, model="other"), {}, "The warranty is two years."),
        (Scripted({"claims_verdicts": claims()}), {"identity": "temperature 1"}, "The warranty is two years."),
        (Scripted({"claims_verdicts": claims()}), {}, "It is two years, I think."),
    ],
    ids=["another judge", "another setting of it", "another answer"],
)
def test_what_differs_is_paid_for(tmp_path, judge, settings, text):
    first = Scripted({"claims_verdicts": claims()})
    _, (_, progress) = twice(tmp_path, ([sample("a")], plan(first)), ([sample("a", text)], plan(judge, **settings)))
    assert progress.reused == 0
    assert len(judge.asked) == 1


def test_a_failure_is_tried_again(tmp_path):
    answers = iter([JudgeError("timeout"), claims()])
    judge = Scripted(lambda _: next(answers))
    (first, _), (second, _) = twice(tmp_path, ([sample("a")], plan(judge)), ([sample("a")], plan(judge)))
    assert isinstance(first[0].evaluations["faithfulness"].outcome, Failed)
    assert second[0].score("faithfulness") == 1.0


def test_a_fresh_run_asks_again_and_keeps_the_new_answer(tmp_path):
    judge = Scripted({"claims_verdicts": claims("not_mentioned")})

    async def fresh(what, *, again):
        file = ResultsCache(tmp_path / "a.db", fresh=again)
        try:
            return await running.run([sample("a")], what, cache=file)
        finally:
            await file.aclose()

    run(fresh(plan(Scripted({"claims_verdicts": claims()})), again=False))
    assert run(fresh(plan(judge), again=True))[0][0].score("faithfulness") == 0.0
    assert run(fresh(plan(judge), again=False))[0][0].score("faithfulness") == 0.0
    assert len(judge.asked) == 1


def test_what_was_done_before_a_run_was_broken_off_is_kept(tmp_path):
    class Off(BaseException):
        pass

    count = iter(range(10))

    def answer(_):
        if next(count) == 3:
            raise Off
        return claims()

    samples = [sample(f"s{number}", f"Answer {number}: two years.") for number in range(6)]
    judge = Scripted({"claims_verdicts": claims()})
    with pytest.raises(Off):
        twice(tmp_path, (samples, plan(Scripted(answer), concurrency=1)), (samples, plan(judge)))
    _, (_, progress) = twice(tmp_path, ([samples[0]], plan(judge)), (samples, plan(judge)))
    assert progress.reused == 3


def test_no_more_samples_at_once_than_asked_for():
    import asyncio

    now = most = 0

    class Counting:
        name, version = "counting", "1"

        async def score(self, sample):
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.001)
            now -= 1
            return Score(1.0)

    enabled = Enabled(metric=Counting(), rate=1.0, threshold=0.7, objective=0.95)
    rows, progress = run(
        running.run([sample(str(n)) for n in range(20)], running.Plan(metrics=[enabled], concurrency=3))
    )
    assert (most, len(rows), progress.done) == (3, 20, 20)


def test_another_embedding_model_counts_only_for_metrics_that_embed():
    class Embedding:
        name, version = "embedding", "1"

        def __init__(self, embeddings):
            self.embeddings = embeddings

        async def score(self, sample):
            return Skipped("no_response")

    one, other = (running.Plan(metrics=[], embedding=name) for name in ("small", "large"))
    judged = Faithfulness(Fused(Scripted({})))
    assert one.key(Embedding(None)) != other.key(Embedding(None))
    assert one.key(judged) == other.key(judged)


def test_a_run_is_read_as_it_was_written(tmp_path):
    judge = Scripted({"claims_verdicts": claims()})
    samples = [sample("a"), replace(sample("b", "Other."), contexts=()), sample("c", "x" * 10)]
    what = plan(judge)
    rows, _ = run(running.run(samples, what))
    rows[2] = structs.replace(
        rows[2],
        evaluations={"faithfulness": replace(rows[2].evaluations["faithfulness"], outcome=Failed("timeout", "60 s"))},
    )
    written = Run(
        measures=tuple(what.measures()),
        rows=tuple(rows),
        source="test",
        created_at=1.0,
        paid_usd=0.5,
        reused=2,
        notes=("n",),
    )
    path = tmp_path / "run.json"
    written.save(path)
    read = Run.load(path)
    assert read.rows == written.rows
    assert read.measures == written.measures
    assert read.summary == written.summary
    assert read.to_dict() == json.loads(path.read_text())


@pytest.mark.parametrize(
    "text", ["[]", '{"kind": "gaugeway.run", "format": 99}', "no json", '{"kind": "gaugeway.run", "format": 1}']
)
def test_what_is_no_report_is_refused(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong with it
        Run.load(path)


def opened(judge, metrics=("faithfulness",)):
    """The plan of these metrics with this judge."""
    from gaugeway.settings.shared import Judge, Shared

    async def main():
        shared = Shared(judge=Judge(**{"base_url": "http://127.0.0.1:9/v1", "model": "m", **judge}))
        async with parts.open_plan(parts.EvaluationRequest(config=shared, metrics=metrics)) as (found, _):
            return found

    return run(main())


def test_the_judges_key_and_patience_are_no_part_of_its_identity():
    one = opened({"api_key": "a", "timeout_s": 1, "price_in": 1}).identity
    assert one == opened({"api_key": "b", "concurrency": 9}).identity
    assert one != opened({"base_url": "http://127.0.0.1:8/v1"}).identity
    assert one != opened({"temperature": 1.0}).identity


def test_who_waits_for_a_busy_judge_is_given_time():
    patient = {"timeout_s": 60, "concurrency": 2}
    assert opened(patient).timeout_s >= TIMEOUT_S
    five = ("faithfulness", "hallucination", "answer_relevancy", "context_relevancy", "context_precision")
    busy = opened(patient, five)
    assert len(busy.metrics) == 5
    assert busy.timeout_s >= 3 * 60 * (8 * 5 / 2)
