"""Metrics as a decision judge answers them: one request an exchange, and scores that are means of probabilities."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gaugeway.data_files import table
from gaugeway.records import Sample, Score, Skipped
from gaugeway.text.abstention import abstained
from gaugeway.text.lexical.sentences import sentences
from monitors.judges import JudgeError
from monitors.judges.decisions import YES, DecisionJudge, Question
from monitors.metrics import ANCHOR, DISAGREEMENT, Metric, conversation_outcome
from monitors.metrics.answer_relevancy import AnswerRelevancy
from monitors.metrics.context_relevancy import ContextRelevancy, with_steps
from monitors.metrics.faithfulness import Faithfulness, Hallucination
from monitors.metrics.geval import GEval
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.follow_ups import history_of
from monitors.metrics.judged.prompts import Datum, Part, contexts_of, question_of, sent_contexts, unanswered
from monitors.metrics.judged.single_flight import SingleFlight
from monitors.metrics.reference_contexts import ContextUtilization

Answer: TypeAlias = Mapping[str, float]
Answers: TypeAlias = Mapping[str, Answer]
MAX_SENTENCES = 1_000
"""Sentences of a response that are asked about; a longer one is skipped as "too_long"."""
LEAST_ANSWERED = 2 / 3
"""Share of its questions that must be answered for a metric to score; a refusal may hide what is wrong."""
_YES, _NO, _HALF = 0.65, 0.35, 0.5
"""Probabilities beyond which a verdict of three is yes or no, and from which one of two is yes, as in DeepEval."""
_LONG = 8_000
"""Characters from which a text is cut into sentences in a thread."""
_ASKING = ("?", "\uff1f", "\u061f")
_TEXTS = table("monitors.metrics", "decided.toml")
_VERSION = sha256(json.dumps(_TEXTS, sort_keys=True).encode()).hexdigest()[:8]
_SUPPORT = ("supported", "contradicted", "not_mentioned")
"""What passages may say about a sentence; the prompt explains it once."""
CANNOT = "cannot be asked as questions with probabilities (judge.kind); an LLM judge in [judge.anchor] would compute it"


class Exchange(NamedTuple):
    """A sample, and the places of the sentences of its response."""

    sample: Sample
    sentences: Sequence[tuple[int, int]]


class Asked(NamedTuple):
    """A question, and what the evidence says it is about. Questions of one name are the same in every metric."""

    question: Question
    about: dict[str, Any]


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a metric is asked: a score is `combine` of the `chance` that each answer gives what is good in `what`.

    `needs` are the parts a sample must have, `shown` is the key under which evidence holds the chance, `definition`
    what of the metric's options belongs to its version.
    """

    what: str
    ask: Callable[[Exchange], Iterable[Asked]]
    needs: tuple[Part, ...] = ()
    chance: Callable[[Answer], float] = lambda answer: answer[YES]
    combine: Callable[[Sequence[float]], float] = fmean
    shown: str = "probability"
    lenient: bool = False
    definition: tuple[Any, ...] = ()


class DecidedMetric:
    """A metric with the name, meaning and range of `of`, an LLM's; its version is another."""

    def __init__(self, decisions: Decisions, name: str, of: Any, way: Way) -> None:
        self._decisions, self._of, self.way = decisions, of, way
        self.name, self.judge = name, decisions.judge.model
        verdicts = ["verdicts"] if decisions.judge.verdicts else []
        own = [sha256(msgspec.json.encode(way.definition)).hexdigest()[:8]] if way.definition else []
        self.version = "-".join(["1", *decisions.version, *own, *verdicts])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)  # what the class declares: measures, lower_is_better, ...

    def skipped(self, sample: Sample) -> Skipped | None:
        """Return why there is nothing to ask about a sample."""
        return unanswered(sample, *self.way.needs) if self.way.needs else conversation_outcome.unscorable(sample)

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := self.skipped(sample)) is not None:
            return skipped
        exchange, found = await self._decisions.about(sample)
        if found is None:
            return Skipped("too_long")
        values, evidence = list[float](), list[dict[str, Any]]()
        for question, about in self.way.ask(exchange):
            if (answer := found.get(question.name)) is None:
                evidence.append({**about, "not_answered": question.name})
                continue
            chance = self.way.chance(answer)
            values.append(self._value(question, chance))
            evidence.append({**about, **_shown(question, answer), self.way.shown: round(chance, 4)})
        if not evidence:
            return Skipped("abstained" if abstained(sample.response) else "no_claims")
        lacking = len(evidence) - len(values)
        if not values or len(values) < LEAST_ANSWERED * len(evidence):
            raise JudgeError("refused", f"{lacking} of {len(evidence)} questions were not answered")
        value = min(1.0, max(0.0, self.way.combine(values)))
        reason = f"{self.way.what}: {value:.2f}" + (f"; {lacking} of {len(evidence)} not answered" if lacking else "")
        if self.way.shown == "ratio":
            return Score(value, reason, with_steps(exchange.sample, None, evidence))
        return Score(value, reason, tuple(evidence))

    def _value(self, question: Question, chance: float) -> float:
        """Return the chance, or with `mode = "verdicts"` the verdict that it is turned into."""
        if not self._decisions.judge.verdicts or question.options not in ((), _SUPPORT):
            return chance
        if not question.options:
            return float(chance >= _HALF)
        return float(chance >= _NO if self.way.lenient else chance > _YES)


def _shown(question: Question, answer: Answer) -> dict[str, Any]:
    """Return what evidence says of an answer with several options."""
    if not question.options:
        return {}
    shown = {"probabilities": {option: round(chance, 4) for option, chance in answer.items()}}
    return shown | ({"verdict": max(answer, key=answer.__getitem__)} if question.options == _SUPPORT else {})


def _sentences(exchange: Exchange) -> Iterator[Asked]:
    declines = len(exchange.sentences) == 1 and abstained(exchange.sample.response)
    for number, (start, end) in enumerate(() if declines else exchange.sentences):
        if not (text := exchange.sample.response[start:end]).endswith(_ASKING):
            asked = _TEXTS["supported"].replace("NUMBER", str(number))
            question = Question(name=f"s{number}", instructions=asked, options=_SUPPORT)
            yield Asked(question, {"claim": text, "start": start, "end": end})


def _passages(key: str) -> Callable[[Exchange], Iterator[Asked]]:
    def ask(exchange: Exchange) -> Iterator[Asked]:
        for index in sent_contexts(exchange.sample):
            text = _TEXTS[key].replace("NUMBER", str(index))
            yield Asked(Question(name=f"{key}{index}", instructions=text), {"context": index})

    return ask


def _once(*keys: str, **choice: Any) -> Callable[[Exchange], list[Asked]]:
    return lambda _: [Asked(Question(name=key, instructions=_TEXTS[key], **choice), {"asked": key}) for key in keys]


def _ranked(values: Sequence[float]) -> float:
    """Return sum over ranks k of P@k x v_k / sum of v_k: average precision where the values v are 0 or 1."""
    ranks = (fmean(values[:rank]) * value for rank, value in enumerate(values, 1))
    return sum(ranks) / total if (total := sum(values)) else 0.0


def _faithful(of: Any, options: Mapping[str, Any]) -> Way:  # noqa: ARG001 - as the other ways
    lenient = bool(options.get("contradiction_only"))
    what = f"sentences that the contexts {'do not contradict' if lenient else 'support'}"
    needs: tuple[Part, ...] = ("response", "contexts")
    if not lenient:
        return Way(what=what, needs=needs, ask=_sentences, chance=lambda answer: answer["supported"])
    chance, own = lambda answer: 1.0 - answer["contradicted"], ("lenient",)
    return Way(what=what, needs=needs, ask=_sentences, chance=chance, lenient=True, definition=own)


def _rubric(of: GEval, options: Mapping[str, Any]) -> Way:  # noqa: ARG001 - as the other ways
    """Return how a criterion is asked: (sum of p(s) x s over the scores s - lowest) / (highest - lowest)."""
    criterion, steps = of.criterion, [f"{number}. {step}" for number, step in enumerate(of.given_steps, 1)]
    meanings = {str(score): criterion.meaning(score) for score in criterion.scores}
    text = "\n".join([_TEXTS["rubric"].replace("TEXTS", ", ".join(criterion.texts)), criterion.text, *steps])
    known = {score: meaning for score, meaning in meanings.items() if meaning}

    def ask(exchange: Exchange) -> list[Asked]:
        reference = json.dumps(exchange.sample.reference, ensure_ascii=False)
        asked = f"{text}\nThe reference: {reference}" if "reference" in criterion.texts else text
        question = Question(name=of.name, instructions=asked, options=tuple(meanings), ordered=True, meanings=known)
        return [Asked(question, {"method": "decisions", "steps": list(of.given_steps)})]

    def chance(answer: Answer) -> float:
        return sum(level * chance for level, chance in enumerate(answer.values())) / (len(answer) - 1)

    what, definition = "position on the scale", (criterion, of.given_steps)
    return Way(what=what, needs=criterion.texts, ask=ask, chance=chance, definition=definition)


_OUTCOME = {"options": tuple(_TEXTS["outcomes"]), "meanings": _TEXTS["outcomes"]}
_ANSWERED: tuple[Part, ...] = ("response", "question", "contexts")
_WAYS: Mapping[Any, Callable[[Any, Mapping[str, Any]], Way] | Way] = {
    Faithfulness: _faithful,
    GEval: _rubric,
    Hallucination: Way(what="contexts that the response contradicts", needs=("response", "contexts"),
                       ask=_passages("contradicted")),
    AnswerRelevancy: Way(what="the response addresses the question", needs=("response", "question"),
                         ask=_once("addresses", "commits"), combine=math.prod),
    ContextRelevancy: Way(what="relevant contexts", needs=("question", "contexts"), ask=_passages("relevant"),
                          shown="ratio"),
    ContextUtilization: Way(what="contexts that are used come first", needs=_ANSWERED, ask=_passages("used"),
                                     combine=_ranked),
    conversation_outcome.GoalMet: Way(what="goal met", ask=_once("goal", **_OUTCOME),
                                      chance=lambda answer: answer["met"] + answer["partly_met"] / 2.0),
    conversation_outcome.GaveUp: Way(what="gave up", ask=_once("gave_up")),
}  # fmt: skip
"""How the metrics of an LLM judge are asked as questions with probabilities; the others cannot be."""


class Decisions:
    """The metrics that a decision judge computes; they share the request about an exchange."""

    def __init__(self, judge: DecisionJudge) -> None:
        self.judge = judge
        self._template = prompting.load("decisions")
        self.version = judge.version, self._template.version, _VERSION
        self._metrics: list[DecidedMetric] = []
        self._shared: SingleFlight[tuple[Exchange, Answers | None]] = SingleFlight()

    def metric(
        self, name: str, factory: Any, arguments: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Metric | None:
        """Return the metric that `factory` makes for an LLM judge; None if it cannot be asked. Raises as `factory`."""
        if (way := _WAYS.get(factory)) is None:
            return None
        of = GEval(self.judge, **arguments, **options) if factory is GEval else factory
        made = DecidedMetric(self, name, of, way if isinstance(way, Way) else way(of, options))
        self._metrics.append(made)
        return made

    async def about(self, sample: Sample) -> tuple[Exchange, Answers | None]:
        """Return the answers to what all metrics ask about a sample; None if it is too long. Raises JudgeError."""
        return await self._shared.get(_key(sample), lambda: self._ask(sample))

    async def _ask(self, sample: Sample) -> tuple[Exchange, Answers | None]:
        exchange = await asyncio.to_thread(_cut, sample) if len(sample.response) > _LONG else _cut(sample)
        if len(exchange.sentences) > MAX_SENTENCES:
            return exchange, None
        asking = [metric for metric in self._metrics if metric.skipped(sample) is None]
        questions = {asked.question.name: asked.question for metric in asking for asked in metric.way.ask(exchange)}
        if not questions:
            return exchange, {}
        data = conversation_outcome.shown(sample.transcript) if sample.transcript else _material(exchange)
        return exchange, await self.judge.decide(self._template.fill(data), list(questions.values()))


def _cut(sample: Sample) -> Exchange:
    return Exchange(sample, tuple((found.start, found.end) for found in sentences(sample.response)))


def _material(exchange: Exchange) -> list[Datum]:
    sample = exchange.sample
    sentences = (sample.response[slice(*place)] for place in exchange.sentences)
    numbered = [Datum("sentence", text, id=number) for number, text in enumerate(sentences)]
    return [*contexts_of(sample), *history_of(sample), *question_of(sample), *numbered]


def _key(sample: Sample) -> tuple[str, int]:
    texts = sample.question, sample.response, sample.contexts, sample.history, sample.reference, sample.transcript
    return sample.id, hash(texts)


class Anchored:
    """A metric of the anchor, the LLM judge beside the decisions, on a sample of the traffic: NAME~anchor."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._shared: SingleFlight[Score | Skipped] = SingleFlight()
        self.name, self.version = metric.name + ANCHOR, metric.version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metric, name)

    async def score(self, sample: Sample) -> Score | Skipped:
        return await self._shared.get(_key(sample), lambda: self._metric.score(sample))


class Disagreement(Anchored):
    """(decisions - anchor + 1) / 2 on the same exchange: .5 while both judges agree on average. NAME~disagreement."""

    lower_is_better = False

    def __init__(self, decided: Metric, anchored: Anchored) -> None:
        super().__init__(anchored)
        self._decided = decided
        self.name = decided.name + DISAGREEMENT
        self.version = sha256(f"{decided.version} {anchored.version}".encode()).hexdigest()[:12]

    async def score(self, sample: Sample) -> Score | Skipped:
        decided, anchor = await self._decided.score(sample), await super().score(sample)
        if isinstance(decided, Skipped) or isinstance(anchor, Skipped):
            return Skipped("one_judge_only")
        reason = f"decisions {decided.value:.2f}, anchor {anchor.value:.2f}"
        evidence = {"decisions": decided.value, "anchor": anchor.value}
        return Score((decided.value - anchor.value + 1.0) / 2.0, reason, (evidence,))
