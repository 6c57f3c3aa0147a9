"""A follow-up is judged as what it asks after the conversation before, in no more requests than any other question."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace

import pytest
from msgspec import structs

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Context, Message, Sample, Score
from gaugeway.sampling import MetricSampler
from gaugeway.settings.shared import Metric
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.judges.scripted import Scripted
from monitors.metrics.answer_relevancy import AnswerRelevancy
from monitors.metrics.context_relevancy import ContextRelevancy
from monitors.metrics.faithfulness import Faithfulness, Hallucination
from monitors.metrics.geval import GEval
from monitors.metrics.judged.claims import Fused, Separate
from monitors.metrics.registry import build

ALONE = "What does the blue kettle cost?"
LEFT_OUT = object()
QUOTES = ("55 EUR", "opens at nine")
HISTORY = (
    Message(role="user", text="What does the red kettle cost?"),
    Message(role="assistant", text="The red kettle costs 40 EUR."),
)
FOLLOW_UP = Sample(
    id="follow-up",
    started_at=0.0,
    question="And the blue one?",
    contexts=(Context(text="Blue kettle: 55 EUR."), Context(text="Our shop opens at nine.")),
    response="It costs 55 EUR. We open at nine.",
    history=HISTORY,
)
STANDALONE = replace(FOLLOW_UP, id="standalone", question=ALONE, history=())


def blocks(prompt, name):
    return re.findall(rf'<data-[0-9]{{9}} name="{name}"[^>]*>\n(.*?)\n</data-', prompt.user, re.DOTALL)


class Reader:
    """A judge that knows no more than what it is shown: without the history, nobody knows what "the blue one" is."""

    def __init__(self, standalone=None):
        self.standalone = standalone
        self.prompts = []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        known = self._question(prompt)
        answer = getattr(self, prompt.task)(prompt, known)
        if "standalone_question" in prompt.system and self.standalone is not LEFT_OUT:
            answer["standalone_question"] = known if self.standalone is None else self.standalone
        return answer

    def _question(self, prompt):
        (question,) = blocks(prompt, "question") or [""]
        told = blocks(prompt, "earlier_user")
        if question == "And the blue one?" and told:
            return told[-1].replace("red", "blue")
        return question

    def claims_verdicts(self, prompt, question):
        name = "The blue kettle" if "kettle" in question else "It"
        found = [("costs 55 EUR", [0]), ("is in a shop that opens at nine", [1])]
        return {
            "noncommittal": False,
            "claims": [
                {
                    "claim": f"{name} {said}.",
                    "verdict": "supported" if name != "It" else "not_mentioned",
                    "relevance": self._relevance(said, question),
                    "contexts": contexts if name != "It" else [],
                    "quote": QUOTES[contexts[0]],
                }
                for said, contexts in found
            ],
        }

    def claims(self, prompt, question):
        name = "The blue kettle" if "kettle" in question else "It"
        return {"noncommittal": False, "claims": [f"{name} costs 55 EUR.", f"{name} is in a shop that opens at nine."]}

    def claim_verdicts(self, prompt, question):
        said = blocks(prompt, "claim")
        return {
            "verdicts": [
                {
                    "id": n,
                    "verdict": "supported" if "kettle" in one else "not_mentioned",
                    "contexts": [n],
                    "quote": QUOTES[n],
                }
                for n, one in enumerate(said)
            ]
        }

    def claim_relevance(self, prompt, question):
        said = blocks(prompt, "claim")
        return {"verdicts": [{"id": n, "relevance": self._relevance(one, question)} for n, one in enumerate(said)]}

    def context_statements(self, prompt, question):
        return {
            "contexts": [
                {"index": n, "statements": [{"statement": one, "relevant": "kettle" in question and "EUR" in one}]}
                for n, one in enumerate(blocks(prompt, "context"))
            ]
        }

    def context_ratings(self, prompt, question):
        said = blocks(prompt, "context")
        return {
            "contexts": [
                {"index": n, "rating": 2 if "kettle" in question and "EUR" in one else 0} for n, one in enumerate(said)
            ]
        }

    context_ratings_reworded = context_ratings

    def contradicted_contexts(self, prompt, question):
        return {"contexts": [{"index": n, "contradicted": False} for n, _ in enumerate(blocks(prompt, "context"))]}

    def generated_questions(self, prompt, question):
        subject = "the blue kettle" if blocks(prompt, "earlier_user") else "it"
        return {
            "noncommittal": False,
            "questions": [f"What does {subject} cost?", f"How much is {subject}?", f"Which price has {subject}?"],
        }

    def geval_form(self, prompt, question):
        return {"score": 5 if "kettle" in question else 1}

    @staticmethod
    def _relevance(said, question):
        return "relevant" if "EUR" in said and "kettle" in question else "irrelevant"


def metrics(judge, verdicts, **options):
    return [
        Faithfulness(verdicts, **options),
        AnswerRelevancy(judge, verdicts, None, method="statements", **options),
        ContextRelevancy(judge, verdicts, **options),
        Hallucination(verdicts, **options),
        ContextRelevancy(judge, verdicts, method="dual_judge", **options),
    ]


def scores(sample, mode, reader, **options):
    judge = Scripted(reader)

    async def run():
        return [await metric.score(sample) for metric in metrics(judge, mode(judge), **options)]

    return asyncio.run(run())


@pytest.mark.parametrize("mode", [Fused, Separate])
def test_a_follow_up_scores_like_its_standalone_form_in_as_many_requests(mode):
    one, other = Reader(), Reader()
    follow_up, standalone = scores(FOLLOW_UP, mode, one), scores(STANDALONE, mode, other)
    assert [score.value for score in follow_up] == [score.value for score in standalone]
    assert [score.value for score in follow_up] == [1.0, 0.5, 0.5, 0.0, 0.5]
    assert [prompt.task for prompt in one.prompts] == [prompt.task for prompt in other.prompts]
    assert follow_up[0].evidence == ({"standalone_question": ALONE}, *standalone[0].evidence)
    assert all(ALONE in str(score.evidence) for score in (follow_up[0], follow_up[1], follow_up[2], follow_up[4]))


@pytest.mark.parametrize("mode", [Fused, Separate])
def test_without_its_history_nobody_knows_what_it_asks(mode):
    reader = Reader()
    found = scores(FOLLOW_UP, mode, reader, history=False)
    assert [score.value for score in found] == [0.0, 0.0, 0.0, 0.0, 0.0]
    assert not any(blocks(prompt, "earlier_user") for prompt in reader.prompts)
    assert "standalone" not in str(found)


@pytest.mark.parametrize("mode", [Fused, Separate])
def test_a_sample_without_history_gets_the_prompts_of_before_to_the_letter(mode):
    def asked(**options):
        reader = Reader()
        found = scores(STANDALONE, mode, reader, **options)
        return found, [
            re.sub(r"data-[0-9]{9}", "data-", f"{one.version}{one.system}{one.user}") for one in reader.prompts
        ]

    assert asked() == asked(history=False)


async def test_the_question_that_generated_ones_are_compared_with_stands_alone():
    embedded = []

    class Embeddings:
        model = "e"

        async def embed(self, texts):
            embedded.append(list(texts))
            return [[1.0, 0.0]] * len(texts)

    judge = Scripted(reader := Reader())
    verdicts = Fused(judge)
    metric = AnswerRelevancy(judge, verdicts, Embeddings())

    _, score = [await Faithfulness(verdicts).score(FOLLOW_UP), await metric.score(FOLLOW_UP)]
    assert embedded[0][0] == ALONE
    assert all("blue kettle" in one for one in embedded[0])
    assert score.evidence[0] == {"standalone_question": ALONE}
    assert [one.task for one in reader.prompts] == ["claims_verdicts", "generated_questions"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("", "And the blue one?"),
        (" \n", "And the blue one?"),
        ("x" * 9999, "x" * 1000),
        (LEFT_OUT, "And the blue one?"),
    ],
)
def test_an_unusable_standalone_question_leaves_the_users_own_or_is_cut(said, kept):
    (score, *_) = scores(FOLLOW_UP, Fused, Reader(said))
    assert score.evidence[0] == {"standalone_question": kept}


def test_a_judge_is_shown_the_last_messages_only_and_the_start_of_long_ones():
    long = tuple(Message(role="user" if n % 2 else "assistant", text=f"{n} " + "w" * 1999) for n in range(50))
    reader = Reader()
    scores(replace(FOLLOW_UP, history=long), Fused, reader)
    shown = [text for name in ("earlier_user", "earlier_assistant") for text in blocks(reader.prompts[0], name)]
    assert sorted(int(text.split()[0]) for text in shown) == list(range(44, 50))
    assert max(map(len, shown)) == 1002
    told = reader.prompts[0].user
    assert told.index("\n44 w") < told.index("\n49 w") < told.index("\nAnd the blue")


@pytest.mark.parametrize(("params", "value"), [(["question", "response"], 1.0), (["response"], 0.0)])
def test_an_own_criterion_sees_the_history_of_the_questions_it_sees(params, value):
    judge = Scripted(reader := Reader())
    metric = GEval(judge, name="n", criteria="Is it right?", steps=["Look."], params=params, samples=1)
    assert asyncio.run(metric.score(FOLLOW_UP)).value == value
    assert bool(blocks(reader.prompts[-1], "earlier_user")) == ("question" in params)
    assert metric.version.startswith("2-" if "question" in params else "1-")


async def test_the_running_evaluation_judges_a_follow_up_like_its_standalone_form(tmp_path):
    enabled = build({"answer_relevancy": Metric(rate=1.0)}, Scripted(Reader()), None).enabled
    enabled = [structs.replace(one, rate=1.0) for one in enabled]
    queue, store = MemoryQueue(), SQLiteStore(tmp_path / "store.db")
    worker = Worker(
        queue,
        store,
        Evaluator(enabled, MetricSampler("s"), judged_timeout_s=60.0),
        settings=WorkerSettings(concurrency=2, poll_s=0.01),
    )
    running = asyncio.ensure_future(worker.run())
    now = time.time()
    await queue.put([replace(one, started_at=now) for one in (FOLLOW_UP, STANDALONE)])
    async with asyncio.timeout(30):
        while (await queue.depth()).ready + (await queue.depth()).leased:  # noqa: ASYNC110 - as a queue is
            await asyncio.sleep(0.01)
    worker.stop()
    await asyncio.wait([running], timeout=10)
    stored = [await store.sample(one.id) for one in (FOLLOW_UP, STANDALONE)]
    await store.aclose()
    follow_up, standalone = [
        {one.metric: one.outcome.value for one in found if isinstance(one.outcome, Score)} for _, found in stored
    ]
    assert follow_up == standalone
    assert {"faithfulness", "answer_relevancy", "context_relevancy", "hallucination"} <= follow_up.keys()
    assert follow_up["answer_relevancy"] == 0.5
