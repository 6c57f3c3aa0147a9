"""Metrics as a decision judge answers them: one request an exchange, and scores that are means of probabilities."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import fmean
from typing import Any, ClassVar

import msgspec

from gaugeway.data_files import table
from gaugeway.records import Sample, Score, Skipped
from gaugeway.text.lexical.sentences import sentence_places
from monitors.judges import JudgeError
from monitors.judges.decisions import YES, Decided, DecisionJudge, Question
from monitors.metrics import Metric, conversation_outcome, lower_is_better
from monitors.metrics import faithfulness as claims
from monitors.metrics import reference_contexts as contexts
from monitors.metrics.answer_relevancy import AnswerRelevancy
from monitors.metrics.context_relevancy import ContextRelevancy
from monitors.metrics.geval import GEval
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.follow_ups import history_of
from monitors.metrics.judged.passage_verdicts import by_step
from monitors.metrics.judged.prompts import Datum, Part, contexts_of, question_of, sent_contexts, unanswered
from monitors.metrics.judged.single_flight import SingleFlight

MAX_SENTENCES = 1_000
"""Sentences of a response about which questions are asked; a longer response is skipped as "too_long"."""
LEAST_ANSWERED = 2 / 3
"""Share of its questions that must be answered for a metric to score; a refusal may hide what is wrong."""
_YES, _NO = 0.65, 0.35
"""Probabilities beyond which a verdict of three is yes or no, as in DeepEval's decision mode; of two it is .5."""
_HALF, _SHOWN = 0.5, 0.1
_LONG = 8_000
"""Characters from which a text is cut into sentences in a thread."""
_ASKING = ("?", "\uff1f", "\u061f")
_TEXTS = table("monitors.metrics", "decided.toml")
_VERSION = sha256(json.dumps(_TEXTS, sort_keys=True).encode()).hexdigest()[:8]
CANNOT = "cannot be asked as questions with probabilities (judge.kind); an LLM judge in [judge.anchor] would compute it"
Item = tuple[dict[str, Any], float | None]
"""A piece of evidence and its probability; None where the question was not answered."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A sample with the places of the sentences of its response and of its reference."""

    sample: Sample
    sentences: Sequence[tuple[int, int]]
    reference: Sequence[str]

    def stated(self) -> Iterator[tuple[int, str]]:
        """Yield number and text of the sentences that are no questions."""
        for number, place in enumerate(self.sentences):
            if not (text := self.sample.response[slice(*place)]).endswith(_ASKING):
                yield number, text


class DecidedMetric(ABC):
    """A metric with the name, meaning and range of `of`, an LLM's; its version is another."""

    needs: ClassVar[tuple[Part, ...]] = ("response", "contexts")

    def __init__(self, decisions: Decisions, name: str, of: Any, options: Mapping[str, Any]) -> None:
        self._decisions = decisions
        self._options = options
        self.name = name
        self.judge = decisions.judge.model
        self.lower_is_better = bool(getattr(of, "lower_is_better", False))
        self.of_conversations = bool(getattr(of, "of_conversations", False))
        for attribute in ("measures", "review_question"):
            if (value := getattr(of, attribute, None)) is not None:
                setattr(self, attribute, value)
        self.version = "-".join(["1", *decisions.version, *self._more_version()])

    def _more_version(self) -> list[str]:
        return ["verdicts"] if self._decisions.judge.verdicts else []

    def skipped(self, sample: Sample) -> Skipped | None:
        """Return why there is nothing to ask about a sample."""
        return unanswered(sample, *self.needs)

    @abstractmethod
    def questions(self, exchange: Exchange) -> Iterator[Question]:
        """Yield the questions about an exchange; a name stands for the same question in every metric."""

    @abstractmethod
    def read(self, exchange: Exchange, found: Decided) -> Score | Skipped:
        """Return the score that the answers give. Raises JudgeError when too few questions were answered."""

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := self.skipped(sample)) is not None:
            return skipped
        exchange, found = await self._decisions.about(sample)
        return Skipped("too_long") if found is None else self.read(exchange, found)

    def _mean(self, items: Sequence[Item], what: str, verdict: Callable[[float], float] | None = None) -> Score:
        """Return the mean over the items whose question was answered."""
        known = [probability for _, probability in items if probability is not None]
        if len(known) < LEAST_ANSWERED * len(items):
            raise JudgeError("refused", f"{len(items) - len(known)} of {len(items)} questions were not answered")
        values = list(map(verdict or self._two_way, known))
        lacking = f"; {len(items) - len(known)} not answered" if len(known) < len(items) else ""
        evidence = tuple(
            part | ({"refused": True} if chance is None else {"probability": round(chance, 4)})
            for part, chance in items
        )
        return Score(fmean(values), f"{what}: {sum(values):.2f} of {len(values)}{lacking}", evidence)

    def _two_way(self, probability: float) -> float:
        return float(probability >= _HALF) if self._decisions.judge.verdicts else probability


def _yes(found: Decided, name: str) -> float | None:
    return None if (answer := found.answers.get(name)) is None else answer[YES]


def _support(name: str, instructions: str) -> Question:
    meanings = _TEXTS["verdicts"]
    return Question(name=name, instructions=instructions, options=tuple(meanings), meanings=meanings)


def _likeliest(answer: Mapping[str, float]) -> str:
    return max(answer, key=answer.__getitem__)


class _Faithfulness(DecidedMetric):
    def _more_version(self) -> list[str]:
        lenient = ["contradiction_only"] if self._options.get("contradiction_only") else []
        return [*lenient, *super()._more_version()]

    def questions(self, exchange: Exchange) -> Iterator[Question]:
        for number, _ in exchange.stated():
            yield _support(f"s{number}", _TEXTS["supported"].replace("NUMBER", str(number)))

    def read(self, exchange: Exchange, found: Decided) -> Score | Skipped:
        lenient, items = bool(self._options.get("contradiction_only")), list[Item]()
        for number, text in exchange.stated():
            start, end = exchange.sentences[number]
            part: dict[str, Any] = {"claim": text, "start": start, "end": end}
            if (answer := found.answers.get(f"s{number}")) is None:
                items.append((part, None))
                continue
            part |= {"verdict": _likeliest(answer), "probabilities": {key: round(p, 4) for key, p in answer.items()}}
            items.append((part, 1.0 - answer["contradicted"] if lenient else answer["supported"]))
        if not items:
            return Skipped("no_claims")
        what = "sentences that the contexts do not contradict" if lenient else "sentences that the contexts support"
        return self._mean(items, what, lambda chance: self._three_way(chance, borderline=lenient))

    def _three_way(self, probability: float, *, borderline: bool) -> float:
        if not self._decisions.judge.verdicts:
            return probability
        return float(probability >= _NO if borderline else probability > _YES)


class _OfPassages(DecidedMetric):
    """A statement about every passage; `prefix` begins the names of the questions."""

    prefix: ClassVar[str]
    key: ClassVar[str]
    what: ClassVar[str]

    def questions(self, exchange: Exchange) -> Iterator[Question]:
        reference = json.dumps(exchange.sample.reference, ensure_ascii=False)
        for index in sent_contexts(exchange.sample):
            text = _TEXTS[self.key].replace("NUMBER", str(index)).replace("TEXT", reference)
            yield Question(name=f"{self.prefix}{index}", instructions=text)

    def read(self, exchange: Exchange, found: Decided) -> Score | Skipped:
        indexes = sent_contexts(exchange.sample)
        chances = {index: _yes(found, f"{self.prefix}{index}") for index in indexes}
        items = [(self._evidence(index, chance), chance) for index, chance in chances.items()]
        score = self._mean(items, self.what)
        given = [(index, self._two_way(chance)) for index, chance in chances.items() if chance is not None]
        return Score(
            self._value([value for _, value in given]), score.reason, (*score.evidence, *self._more(exchange, given))
        )

    def _evidence(self, index: int, chance: float | None) -> dict[str, Any]:
        return {"context": index} | ({} if chance is None else {"ratio": round(chance, 4)})

    def _value(self, values: Sequence[float]) -> float:
        return fmean(values)

    def _more(self, exchange: Exchange, given: Sequence[tuple[int, float]]) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - a default
        yield from ()


class _Hallucination(_OfPassages):
    prefix, key, what = "c", "contradicted", "contexts that the response contradicts"

    def _evidence(self, index: int, chance: float | None) -> dict[str, Any]:
        return {"context": index} | ({} if chance is None else {"contradicted": chance >= _HALF})


class _ContextRelevancy(_OfPassages):
    needs = ("question", "contexts")
    prefix, key, what = "p", "relevant", "relevant contexts"

    def _more(self, exchange: Exchange, given: Sequence[tuple[int, float]]) -> Iterator[dict[str, Any]]:
        for (hop, tool), some in by_step(exchange.sample.contexts, given).items():
            yield {"hop": hop, "tool": tool, "relevance": fmean(some)}


class _ContextUtilization(_OfPassages):
    """sum over ranks k of P@k x v_k / sum of v_k with probabilities as v; average precision where they are 0 or 1."""

    needs: ClassVar[tuple[Part, ...]] = ("response", "question", "contexts")
    prefix, key, what = "u", "used", "contexts that the response uses, in this order"

    def _value(self, values: Sequence[float]) -> float:
        total = sum(values)
        precisions = (fmean(values[: rank + 1]) for rank in range(len(values)))
        return min(1.0, sum(map(float.__mul__, precisions, values)) / total) if total else 0.0


class _ContextPrecision(_ContextUtilization):
    needs = ("reference", "question", "contexts")
    prefix, key, what = "r", "useful", "contexts useful for the reference, in this order"


class _ContextRecall(DecidedMetric):
    needs = ("reference", "contexts")

    def questions(self, exchange: Exchange) -> Iterator[Question]:
        for number, text in enumerate(exchange.reference):
            quoted = json.dumps(text, ensure_ascii=False)
            yield _support(f"a{number}", _TEXTS["attributable"].replace("TEXT", quoted))

    def read(self, exchange: Exchange, found: Decided) -> Score | Skipped:
        items: list[Item] = []
        for number, text in enumerate(exchange.reference):
            answer = found.answers.get(f"a{number}")
            items.append(({"claim": text}, None) if answer is None else (_claim(text, answer), answer["supported"]))
        return (
            self._mean(items, "sentences of the reference in the contexts") if items else Skipped("no_reference_claims")
        )


def _claim(text: str, answer: Mapping[str, float]) -> dict[str, Any]:
    return {"claim": text, "verdict": _likeliest(answer)}


class _AnswerRelevancy(DecidedMetric):
    """P(addresses the question) x (1 - P(declines))."""

    needs = ("response", "question")

    def questions(self, exchange: Exchange) -> Iterator[Question]:  # noqa: ARG002 - as the base class
        for name in ("addresses", "declines"):
            yield Question(name=name, instructions=_TEXTS[name])

    def read(self, exchange: Exchange, found: Decided) -> Score | Skipped:  # noqa: ARG002 - as the base class
        addresses, declines = _yes(found, "addresses"), _yes(found, "declines")
        if addresses is None or declines is None:
            raise JudgeError("refused", "whether the response addresses the question, or declines, was not answered")
        value = self._two_way(addresses) * (1.0 - self._two_way(declines))
        evidence = {"addresses": round(addresses, 4), "declines": round(declines, 4), "probability": round(value, 4)}
        return Score(value, f"addresses the question {addresses:.2f}, declines {declines:.2f}", (evidence,))


class _Rubric(DecidedMetric):
    """(sum of p(s) x s over the scale - lowest) / (highest - lowest), as `geval` scores."""

    def __init__(self, decisions: Decisions, name: str, of: GEval, options: Mapping[str, Any]) -> None:
        self._criterion, self._steps = of.criterion, of.given_steps
        super().__init__(decisions, name, of, options)

    def _more_version(self) -> list[str]:
        return [sha256(msgspec.json.encode((self._criterion, self._steps))).hexdigest()[:8], *super()._more_version()]

    def skipped(self, sample: Sample) -> Skipped | None:
        return unanswered(sample, *self._criterion.texts)

    def questions(self, exchange: Exchange) -> Iterator[Question]:
        criterion, steps = self._criterion, [f"{number}. {step}" for number, step in enumerate(self._steps, 1)]
        text = "\n".join([_TEXTS["rubric"].replace("TEXTS", ", ".join(criterion.texts)), criterion.text, *steps])
        if "reference" in criterion.texts:
            text += f"\nThe reference: {json.dumps(exchange.sample.reference, ensure_ascii=False)}"
        meanings = {str(score): criterion.meaning(score) for score in criterion.scores}
        options, known = tuple(meanings), {score: meaning for score, meaning in meanings.items() if meaning}
        yield Question(name=self.name, instructions=text, options=options, ordered=True, meanings=known)

    def read(self, exchange: Exchange, found: Decided) -> Score | Skipped:  # noqa: ARG002 - as the base class
        if (answer := found.answers.get(self.name)) is None:
            raise JudgeError("refused", "the rubric was not answered")
        chances = dict(zip(self._criterion.scores, answer.values(), strict=True))
        (lowest, highest), mean = self._criterion.scale, sum(score * chance for score, chance in chances.items())
        value = min(1.0, max(0.0, (mean - lowest) / (highest - lowest)))
        shown = {str(score): round(chance, 4) for score, chance in chances.items()}
        evidence = {"method": "decisions", "probabilities": shown, "steps": list(self._steps)}
        return Score(value, f"{mean:.2f} on a scale from {lowest} to {highest}, by decisions", (evidence,))


class _OfConversation(DecidedMetric):
    """One question about a whole conversation."""

    key: ClassVar[str]

    def skipped(self, sample: Sample) -> Skipped | None:
        return conversation_outcome.unscorable(sample)

    def questions(self, exchange: Exchange) -> Iterator[Question]:
        yield Question(name=self.key, instructions=_TEXTS[self.key], **self._choice(exchange.sample))

    def read(self, exchange: Exchange, found: Decided) -> Score | Skipped:
        if (answer := found.answers.get(self.key)) is None:
            raise JudgeError("refused", "the outcome was not answered")
        value = self._value(answer)
        turns = conversation_outcome.turns_of(exchange.sample.transcript)
        shown = {option: round(chance, 4) for option, chance in answer.items()}
        evidence = {"probabilities": shown, "turns": turns}
        reason = ", ".join(f"{option} {chance:.2f}" for option, chance in answer.items() if chance >= _SHOWN)
        return value if isinstance(value, Skipped) else Score(value, reason, (evidence,))

    def _choice(self, sample: Sample) -> dict[str, Any]:  # noqa: ARG002 - a default
        return {}

    @abstractmethod
    def _value(self, answer: Mapping[str, float]) -> float | Skipped: ...


class _GoalMet(_OfConversation):
    key = "goal"

    def _choice(self, sample: Sample) -> dict[str, Any]:  # noqa: ARG002 - as the base class
        return {"options": tuple(_TEXTS["outcomes"]), "meanings": _TEXTS["outcomes"]}

    def _value(self, answer: Mapping[str, float]) -> float:
        chances = {_likeliest(answer): 1.0} if self._decisions.judge.verdicts else answer
        return min(1.0, chances.get("met", 0.0) + chances.get("partly_met", 0.0) / 2.0)


class _GaveUp(_OfConversation):
    key = "gave_up"

    def _value(self, answer: Mapping[str, float]) -> float:
        return self._two_way(answer[YES])


_UNRESOLVED = "not met"


class _TurnsToResolution(_OfConversation):
    key = "resolved"

    def _choice(self, sample: Sample) -> dict[str, Any]:
        turns = conversation_outcome.turns_of(sample.transcript)
        last = range(max(1, turns + 1 - conversation_outcome.MOST_MESSAGES), turns + 1)
        return {"options": (_UNRESOLVED, *(f"turn {turn}" for turn in last))}

    def _value(self, answer: Mapping[str, float]) -> float | Skipped:
        if answer[_UNRESOLVED] >= _HALF:
            return Skipped("not_resolved")
        turns = {int(option.split()[1]): chance for option, chance in answer.items() if option != _UNRESOLVED}
        if self._decisions.judge.verdicts:
            return 1.0 / max(turns, key=turns.__getitem__)
        return min(1.0, sum(chance / turn for turn, chance in turns.items()) / sum(turns.values()))


_ASKED: Mapping[Any, type[DecidedMetric]] = {
    claims.Faithfulness: _Faithfulness,
    claims.Hallucination: _Hallucination,
    AnswerRelevancy: _AnswerRelevancy,
    ContextRelevancy: _ContextRelevancy,
    contexts.ContextUtilization: _ContextUtilization,
    contexts.ContextPrecision: _ContextPrecision,
    contexts.ContextRecall: _ContextRecall,
    GEval: _Rubric,
    conversation_outcome.GoalMet: _GoalMet,
    conversation_outcome.GaveUp: _GaveUp,
    conversation_outcome.TurnsToResolution: _TurnsToResolution,
}
"""The metrics of an LLM judge that can be asked as questions with probabilities."""


class Decisions:
    """The metrics that a decision judge computes; they share the request about an exchange."""

    def __init__(self, judge: DecisionJudge) -> None:
        self.judge = judge
        self._template = prompting.load("decisions")
        self.version = judge.version.replace(" ", ""), self._template.version, _VERSION
        self._metrics: list[DecidedMetric] = []
        self._shared: SingleFlight[tuple[Exchange, Decided | None]] = SingleFlight()

    def metric(
        self, name: str, factory: Any, arguments: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Metric | None:
        """Return the metric that `factory` makes for an LLM judge; None if it cannot be asked. Raises as `factory`."""
        if (kind := _ASKED.get(factory)) is None:
            return None
        of = GEval(self.judge, **arguments, **options) if factory is GEval else factory
        made = kind(self, name, of, options)
        self._metrics.append(made)
        return made

    async def about(self, sample: Sample) -> tuple[Exchange, Decided | None]:
        """Return the answers to what all metrics ask about a sample; None if it is too long. Raises JudgeError."""
        parts = sample.question, sample.response, sample.contexts, sample.history, sample.reference, sample.transcript
        return await self._shared.get((sample.id, hash(parts)), lambda: self._ask(sample))

    async def _ask(self, sample: Sample) -> tuple[Exchange, Decided | None]:
        long = len(sample.response) + len(sample.reference or "") > _LONG
        exchange = await asyncio.to_thread(_exchange, sample) if long else _exchange(sample)
        if len(exchange.sentences) + len(exchange.reference) > MAX_SENTENCES:
            return exchange, None
        whole = bool(sample.transcript)
        asking = (one for one in self._metrics if one.of_conversations == whole and one.skipped(sample) is None)
        questions = {question.name: question for metric in asking for question in metric.questions(exchange)}
        if not questions:
            return exchange, Decided(answers={})
        data = conversation_outcome.shown(sample.transcript) if whole else _material(exchange)
        return exchange, await self.judge.decide(self._template.fill(data), list(questions.values()))


def _exchange(sample: Sample) -> Exchange:
    reference = sample.reference or ""
    referred = [reference[slice(*place)] for place in sentence_places(reference)]
    return Exchange(sample, tuple(sentence_places(sample.response)), referred)


def _material(exchange: Exchange) -> list[Datum]:
    sample = exchange.sample
    sentences = (sample.response[slice(*place)] for place in exchange.sentences)
    numbered = [Datum("sentence", text, id=number) for number, text in enumerate(sentences)]
    return [*contexts_of(sample), *history_of(sample), *question_of(sample), *numbered]


ANCHOR, DISAGREEMENT = "~anchor", "~disagreement"


class Anchored:
    """A metric of the anchor, the LLM judge beside the decisions, on a sample of the traffic: NAME~anchor."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._shared: SingleFlight[Score | Skipped] = SingleFlight()
        self.name, self.version = metric.name + ANCHOR, metric.version
        self.judge = getattr(metric, "judge", None)
        self.lower_is_better = lower_is_better(metric)
        self.of_conversations = bool(getattr(metric, "of_conversations", False))

    async def score(self, sample: Sample) -> Score | Skipped:
        parts = sample.question, sample.response, sample.contexts, sample.reference, sample.transcript
        return await self._shared.get((sample.id, hash(parts)), lambda: self._score(sample))

    async def _score(self, sample: Sample) -> Score | Skipped:
        return await self._metric.score(sample)


class Disagreement:
    """(decisions - anchor + 1) / 2 on the same exchange: .5 while both judges agree on average. NAME~disagreement."""

    def __init__(self, decided: Metric, anchored: Anchored) -> None:
        self._decided, self._anchored = decided, anchored
        self.name = decided.name + DISAGREEMENT
        self.version = sha256(f"{decided.version} {anchored.version}".encode()).hexdigest()[:12]
        self.judge = anchored.judge
        self.of_conversations = anchored.of_conversations

    async def score(self, sample: Sample) -> Score | Skipped:
        both = await asyncio.gather(self._decided.score(sample), self._anchored.score(sample), return_exceptions=True)
        for found in both:
            if isinstance(found, BaseException):
                raise found
        decided, anchor = (found.value if isinstance(found, Score) else None for found in both)
        if decided is None or anchor is None:
            return Skipped("one_judge_only")
        reason = f"decisions {decided:.2f}, anchor {anchor:.2f}"
        return Score((decided - anchor + 1.0) / 2.0, reason, ({"decisions": decided, "anchor": anchor},))
