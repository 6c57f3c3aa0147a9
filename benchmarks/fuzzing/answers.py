"""What judges answer: the chat completion, the JSON in its text, the probabilities, and the scores made of them.

Beyond "never raises": what is read has the type asked for and reads the same when written again; every metric that
asks a judge ends as a score in [0, 1], as skipped or as a JudgeError; with no readable answer there is no score; no
score is made of an answer in which nothing was judged.
An input is one byte (which metric or reader), then texts parted by 0xFF: the judge's answers, one after the other.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

import msgspec
import numpy as np

from benchmarks.fuzzing.finding import expect
from gaugeway.records import Context, Sample, Score, Skipped
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Metric as Settings
from monitors.judges import JudgeError, openai_client
from monitors.judges import structured_output as likelihood
from monitors.judges import structured_output as reading
from monitors.metrics.judged import schemas as answers
from monitors.metrics.registry import build

TYPES = [one for one in vars(answers).values() if isinstance(one, type) and issubclass(one, answers.Answer)][1:]
ASKING = (
    "faithfulness",
    "answer_relevancy",
    "context_relevancy",
    "hallucination",
    "context_utilization",
    "context_precision",
    "context_recall",
    "context_entity_recall",
    "answer_correctness",
    "noise_sensitivity",
    "geval:tone",
)
SAMPLE = Sample(
    id="s",
    started_at=1.0,
    question="How big is Paris?",
    contexts=(Context(text="Paris is big."), Context(text=" "), Context(text="Rome is old.")),
    response="Paris is big. Rome is small.",
    reference="Paris is big and Rome is old.",
)
NUMBERS = count()
WORDS = [
    b"\xff",
    b'{"noncommittal":false,"claims":[',
    b'{"claim":"Paris is big","verdict":"supported","relevance":"relevant","contexts":[0],"quote":"Paris is big"}',
    b'"contradicted"',
    b'"not_mentioned"',
    b'"irrelevant"',
    b'{"verdicts":[{"id":0,"verdict":"supported"},{"id":1,"verdict":"not_mentioned"}]}',
    b'{"verdicts":[{"id":0,"relevance":"relevant"}]}',
    (
        b'{"contexts":[{"index":0,"statements":[{"statement":"Paris is big","relevant":true}]},'
        b'{"index":2,"statements":[]}]}'
    ),
    b'{"contexts":[{"index":0,"contradicted":false},{"index":2,"contradicted":true}]}',
    b'{"contexts":[{"index":0,"rating":2},{"index":2,"rating":0}]}',
    b'{"contexts":[{"index":0,"useful":true},{"index":2,"useful":false}]}',
    b'{"entities":[{"entity":"Paris","found_as":"Paris"}]}',
    b'{"noncommittal":false,"questions":["How big?"]}',
    b'{"steps":["read"]}',
    b'{"score":3}',
    b"```json\n",
    b"<think>",
    b"</think>",
    b"\\ud83d",
    b"NaN",
    b"Infinity",
    b"1e999",
    b'"choices":[{"message":{"content":"4"},"logprobs":{"content":[{"token":"4","logprob":-0.1,"top_logprobs":[]}]}}]',
    b"null",
    b"[]",
]
SEEDS = [
    (
        b'\x00{"noncommittal":false,"claims":[{"claim":"Paris is big","verdict":"supported","relevance":"relevant",'
        b'"contexts":[0],"quote":"Paris is big"},'
        b'{"claim":"Rome is small","verdict":"not_mentioned","relevance":"irrelevant"}]}'
    ),
    (
        b'\x02Sure!\n```json\n{"contexts":[{"index":0,"statements":[{"statement":"Paris is big","relevant":true}]},'
        b'{"index":2,"statements":[{"statement":"Rome is old","relevant":false}]}]}\n```'
    ),
    b'\x04{"contexts":[{"index":0,"useful":true},{"index":2,"useful":false}]}',
    b'\x06{"noncommittal":false,"claims":["Paris is big"]}\xff{"verdicts":[{"id":0,"verdict":"supported"}]}',
    b'\x07{"entities":[{"entity":"Paris","found_as":"Paris"},{"entity":"Rome"}]}',
    b'\x0a<think>hm {"score": 1}</think>{"score": 4}\xff{"score":5}\xff{"score":3}',
    b"\x80" + b'{"choices":[{"message":{"content":"4"},"finish_reason":"stop","logprobs":{"content":[{"token":"4",'
    b'"logprob":-0.1,"top_logprobs":[{"token":"4","logprob":-0.1},{"token":"5","logprob":-2.5}]}]}}]}',
]


class Fed:
    """A judge that answers with the input's texts in turn, read as a model's are; it remembers what it could read."""

    model = "fuzzed"

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.asked = 0
        self.read: list[Any] = []

    def feed(self, texts: list[str]) -> None:
        self.texts, self.asked, self.read = texts, 0, []

    async def ask(self, prompt, answer_type):
        expect(prompt.system and prompt.user, "a prompt without a text")
        text = self.texts[self.asked % len(self.texts)]
        self.asked += 1
        try:
            answer = reading.read(text, answer_type)
        except reading.UnreadableError as error:
            raise JudgeError("unreadable", str(error)) from None
        self.read.append(answer)
        return answer


class Flat:
    """Embeddings that find everything alike: the numbers are not what is tested."""

    model = "flat"

    async def embed(self, texts):
        return np.ones((len(texts), 2))


@cache
def stand(mode: str):
    """A judge, and the metrics that ask it."""
    judge = Fed()
    named = {name: Settings() for name in ASKING}
    named["geval:tone"] = Settings(options={"criteria": "Is it polite?", "steps": ["Read it."], "samples": 2})
    try:
        built = build(named, judge, Flat(), mode)
    except ConfigError as error:
        raise SystemExit(str(error)) from error
    metrics = {one.metric.name: one.metric for one in built.enabled}
    return judge, [metrics[name] for name in ASKING]


def one(data: bytes) -> None:
    """What the fuzzer calls."""
    if len(data) < 2:
        return
    choice, rest = data[0], data[1:]
    if choice & 0x80:
        _completion(rest)
        return
    texts = [piece.decode("utf-8", "surrogateescape") for piece in rest.split(b"\xff")]
    for answer_type in TYPES:
        _read(texts[0], answer_type)
    judge, metrics = stand("separate" if choice & 0x40 else "fused")
    judge.feed(texts)
    asyncio.run(_score(judge, metrics[choice % 16 % len(metrics)], f"s{next(NUMBERS)}"))


def _read(text: str, answer_type: type) -> None:
    try:
        answer = reading.read(text, answer_type)
    except reading.UnreadableError as error:
        expect(error.reason in {"empty", "no_json", "wrong_shape"} and str(error), f"no reason: {error!r}")
        return
    expect(isinstance(answer, answer_type), f"read a {type(answer).__name__}")
    written = msgspec.json.encode(answer)
    expect(reading.read(written.decode(), answer_type) == answer, f"reads differently when written again: {written!r}")


async def _score(judge: Fed, metric, sample_id: str) -> None:
    try:
        outcome = await metric.score(replace(SAMPLE, id=sample_id))  # another id: answers to the last are remembered
    except JudgeError as error:
        expect(error.kind in {"unreadable", "unsupported_verdict"}, f"ended as {error.kind}")
        return
    expect(isinstance(outcome, Score | Skipped), f"an outcome of no kind: {outcome!r}")
    if isinstance(outcome, Score):
        expect(math.isfinite(outcome.value) and 0.0 <= outcome.value <= 1.0, f"a score of {outcome.value!r}")
        expect(judge.read, f"{metric.name}: a score of {outcome.value} without any answer")
        msgspec.json.encode(outcome)
        # A response that claims nothing contradicts nothing: that is what this metric says, and what it warns of.
        judged = metric.name == "hallucination" or any(_items(answer) for answer in judge.read)
        expect(judged, f"{metric.name}: a score of {outcome.value} although nothing was judged: {judge.read!r}")


def _items(answer: Any) -> bool:
    """Whether an answer says anything: lists that are not empty, or a word by itself."""
    fields = msgspec.structs.asdict(answer)
    return any(fields.get(name) not in (None, [], False) for name in fields) or "score" in fields


def _completion(raw: bytes) -> None:
    try:
        completion = openai_client.read_completion(raw)
    except ValueError:
        return
    tokens = completion.tokens()
    for choices in (["1", "2", "3", "4", "5"], ["yes", "no"]):
        found = likelihood.weights(tokens, choices)
        expect(found is None or all(math.isfinite(one) and one >= 0.0 for one in found.values()), f"{found!r}")
    for answer_type in TYPES:
        sure = likelihood.sureness(tokens, reading.strict_schema(answer_type))
        expect(sure is None or 0.0 <= sure <= 1.0, f"sure by {sure!r}")
