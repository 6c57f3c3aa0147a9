"""The judge's verdicts on a sample, obtained in two calls (`Fused`) or one call per question (`Separate`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import msgspec

from gaugeway.records import Context, Sample
from gaugeway.text.abstention import abstained
from monitors.judges import Judge, JudgeError
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged import schemas as answers
from monitors.metrics.judged.evidence import CHECKED, Checks, fault_of_claim, fault_of_verdict, is_stated
from monitors.metrics.judged.follow_ups import Asked, FollowUps
from monitors.metrics.judged.prompts import (
    Datum,
    Template,
    claims_of,
    complete,
    contexts_of,
    question_of,
    sent_contexts,
)
from monitors.metrics.judged.single_flight import SingleFlight

Question: TypeAlias = Literal["claims", "held_against", "relevance", "contradicted", "statements"]
C = TypeVar("C")
T = TypeVar("T")
_FINAL = " .!?\u2026\u3002\uff01\uff1f\u061f\u0964"
"""Punctuation that ends a claim, and says nothing of what it claims."""


class JudgedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of the response and its verdict; `contexts` are indexes into the sample's contexts."""

    claim: str
    verdict: answers.Verdict
    contexts: tuple[int, ...] = ()
    quote: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsOf(Generic[C]):
    """The claims of a response, whether it is noncommittal, and a follow-up's question as it stands alone."""

    noncommittal: bool
    claims: tuple[C, ...]
    standalone: str | None = None
    checks: Checks = field(default_factory=Checks)


JudgedClaims: TypeAlias = ClaimsOf[JudgedClaim]
RatedClaims: TypeAlias = ClaimsOf[tuple[str, answers.Relevance]]


class Verdicts(ABC):
    """A judge's verdicts on one sample. Every method raises JudgeError; empty contexts are not sent.

    What an answer says must be in the texts: a claim in the response, a statement in its context, the quote of a
    verdict in a context that it names. What is not is asked for again; then it is JudgeError("unsupported_verdict").

    A sample with history is judged as what its question means after it; without the history, by itself.
    """

    task: ClassVar[Literal["claims", "claims_verdicts"]]
    """The prompt that asks for the claims."""
    answer: ClassVar[type[answers.Claims | answers.ClaimsVerdicts]]
    """Its answer: with verdicts, it is about the contexts too."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        template = prompting.load(self.task)
        self._claims = FollowUps(template)
        self._again = FollowUps(template.with_part(prompting.load("own_claims")))
        self._verdicts = prompting.load("claim_verdicts")
        self._statements = FollowUps(prompting.load("context_statements"))
        self._shared_statements: SingleFlight[Asked[answers.ContextStatements]] = SingleFlight()
        self._shared_claims: SingleFlight[JudgedClaims] = SingleFlight()
        self._shared: SingleFlight[Asked[Any]] = SingleFlight()

    @property
    def model(self) -> str:
        """The judge model's name."""
        return self._judge.model

    def version(self, question: Question) -> str:
        """Return the hashes of the prompts used for `question`, and the version of the checks."""
        return "-".join([*(prompt.version for prompt in self._prompts(question)), CHECKED])

    def _prompts(self, question: Question) -> Sequence[Template | FollowUps]:
        if question == "statements":
            return [self._statements]
        return [self._verdicts] if question == "held_against" else [self._claims, self._verdicts]

    async def claims(self, sample: Sample) -> JudgedClaims:
        """Return the response's claims, checked against the contexts; those with a verdict name their contexts."""
        return await self._shared_claims.get(_key(sample), lambda: self._judge_claims(sample))

    async def _judge_claims(self, sample: Sample) -> JudgedClaims:
        asked = await self._asked(sample)
        said, sent, checks = asked.answer.claims, frozenset(sent_contexts(sample)), deepcopy(asked.checks)
        first = [
            (id_, _judged(claim.claim, claim, sent))
            for id_, claim in enumerate(said)
            if isinstance(claim, answers.FusedClaim)
        ]
        return _of(asked, await self._verified(sample, list(map(_text, said)), checks, first), checks)

    @abstractmethod
    async def relevance(self, sample: Sample) -> RatedClaims:
        """Return the response's claims with their relevance to the question."""

    @abstractmethod
    async def contradicted(self, sample: Sample) -> tuple[tuple[answers.ContradictedContext, ...], Checks]:
        """Return, for each non-empty context in order, whether the response contradicts it; and what was checked.

        None of them where the judge finds no claim in a response that is no refusal.
        """

    async def held_against(self, sample: Sample, claims: Sequence[str], text: str) -> tuple[JudgedClaim, ...]:
        """Return these claims, checked against one text instead of the sample's contexts."""
        return await self._verified(replace(sample, contexts=(Context(text=text),)), claims, Checks(len(claims)))

    async def standalone(self, sample: Sample) -> str | None:
        """Return a follow-up's question as it stands alone, from the call for the claims; None without history."""
        return (await self._asked(sample)).standalone if sample.history else None

    async def statements(self, sample: Sample) -> Asked[answers.ContextStatements]:
        """Return, for each non-empty context in order, its statements and their relevance to the question."""
        return await self._shared_statements.get(_key(sample), lambda: self._ask_statements(sample))

    async def _ask_statements(self, sample: Sample) -> Asked[answers.ContextStatements]:
        standalone: list[str | None] = []

        async def ask(indexes: Sequence[int]) -> Iterable[tuple[int, answers.StatementsOfContext]]:
            data = contexts_of(sample, indexes)
            found = await self._statements.ask(self._judge, sample, data, answers.ContextStatements)
            standalone.append(found.standalone)
            return [
                (
                    context.index,
                    msgspec.structs.replace(context, statements=_once(context.statements, lambda said: said.statement)),
                )
                for context in found.answer.contexts
            ]

        def fault(context: answers.StatementsOfContext) -> str | None:
            text, around = sample.contexts[context.index].text, [_around(sample)]
            own = all(is_stated(statement.statement, text, around) for statement in context.statements)
            return None if own else "statement_not_in_passage"

        sent = sent_contexts(sample)
        checks = Checks(len(sent))
        answer = answers.ContextStatements(list((await complete(ask, sent, checks, fault)).values()))
        return Asked(answer=answer, standalone=standalone[0] if standalone else None, checks=checks)

    async def _asked(self, sample: Sample) -> Asked[Any]:
        """Return the answer of the call for the claims, which all metrics share."""
        about = sample if self.answer is answers.ClaimsVerdicts else replace(sample, contexts=())
        return await self._shared.get(_key(about), lambda: self._ask_claims(sample))

    async def _ask_claims(self, sample: Sample) -> Asked[Any]:
        """Return an answer with claims of the response only; where the first has others, it is asked for again."""
        data, checks = [Datum("response", sample.response)], Checks()
        if self.answer is answers.ClaimsVerdicts:
            data += contexts_of(sample)
        given = [sample.contexts[index].text for index in sent_contexts(sample)]
        for template in (self._claims, self._again):
            try:
                asked: Asked[Any] = await template.ask(self._judge, sample, data, self.answer)
            except JudgeError as error:
                prompting.raise_failure(error, checks)
            claims = _once(asked.answer.claims, _text)
            around = [_around(sample), asked.standalone or ""]
            faults = [fault_of_claim(self.task, _text(claim), sample.response, around, given) for claim in claims]
            refused = [kind for kind in faults if kind is not None]
            if template is self._claims:
                checks.checked = len(claims)
                checks.refused.update(refused)
            if not refused:
                return replace(asked, answer=msgspec.structs.replace(asked.answer, claims=claims), checks=checks)
        raise checks.failure()

    async def _verified(
        self, sample: Sample, claims: Sequence[str], checks: Checks, first: Sequence[tuple[int, JudgedClaim]] = ()
    ) -> tuple[JudgedClaim, ...]:
        """Return the claims with verdicts that the sample's contexts bear out; `first` are the verdicts known."""
        known = [first] if first else []
        passages = {index: sample.contexts[index].text for index in sent_contexts(sample)}

        async def ask(ids: Sequence[int]) -> Iterable[tuple[int, JudgedClaim]]:
            return known.pop() if known else await self._ask_verdicts(sample, claims, ids)

        def fault(judged: JudgedClaim) -> str | None:
            return fault_of_verdict(judged.claim, judged.verdict, judged.contexts, judged.quote, passages)

        return tuple((await complete(ask, range(len(claims)), checks, fault)).values())

    async def _ask_verdicts(
        self, sample: Sample, claims: Sequence[str], ids: Sequence[int]
    ) -> list[tuple[int, JudgedClaim]]:
        prompt = self._verdicts.fill([*contexts_of(sample), *claims_of(claims, ids)])
        verdicts = (await self._judge.ask(prompt, answers.ClaimVerdicts)).verdicts
        sent, asked = frozenset(sent_contexts(sample)), frozenset(ids)
        return [(verdict.id, _judged(claims[verdict.id], verdict, sent)) for verdict in verdicts if verdict.id in asked]


class Fused(Verdicts):
    """Makes one call for all questions about claims and one for contexts' statements; metrics share both."""

    task = "claims_verdicts"
    answer = answers.ClaimsVerdicts

    def _prompts(self, question: Question) -> Sequence[Template | FollowUps]:
        return [self._claims] if question == "relevance" else super()._prompts(question)

    async def relevance(self, sample: Sample) -> RatedClaims:
        asked = await self._asked(sample)
        return _of(asked, ((claim.claim, claim.relevance) for claim in asked.answer.claims), asked.checks)

    async def contradicted(self, sample: Sample) -> tuple[tuple[answers.ContradictedContext, ...], Checks]:
        judged = await self.claims(sample)
        reasons: dict[int, str] = {}
        for claim in judged.claims:
            for index in claim.contexts if claim.verdict == "contradicted" else ():
                reasons.setdefault(index, f"{claim.claim} ↔ {claim.quote}" if claim.quote else claim.claim)
        if not judged.claims and not abstained(sample.response):
            return (), judged.checks
        contexts = tuple(
            answers.ContradictedContext(index, contradicted=index in reasons, reason=reasons.get(index, ""))
            for index in sent_contexts(sample)
        )
        return contexts, judged.checks


class Separate(Verdicts):
    """Makes one call per question; metrics share only the extraction of claims."""

    task = "claims"
    answer = answers.Claims

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._relevance = prompting.load("claim_relevance")
        self._contradicted = FollowUps(prompting.load("contradicted_contexts"))

    def _prompts(self, question: Question) -> Sequence[Template | FollowUps]:
        if question == "relevance":
            return [self._claims, self._relevance]
        return [self._contradicted] if question == "contradicted" else super()._prompts(question)

    async def relevance(self, sample: Sample) -> RatedClaims:
        extracted = await self._asked(sample)
        said = extracted.answer.claims
        asked = sample if extracted.standalone is None else replace(sample, question=extracted.standalone)

        async def ask(ids: Sequence[int]) -> Iterable[tuple[int, answers.RelevanceVerdict]]:
            prompt = self._relevance.fill([*question_of(asked), *claims_of(said, ids)])
            found = await self._judge.ask(prompt, answers.ClaimRelevance)
            return [(verdict.id, verdict) for verdict in found.verdicts]

        found = await complete(ask, range(len(said)))
        return _of(extracted, ((said[id_], verdict.relevance) for id_, verdict in found.items()), extracted.checks)

    async def contradicted(self, sample: Sample) -> tuple[tuple[answers.ContradictedContext, ...], Checks]:
        async def ask(indexes: Sequence[int]) -> Iterable[tuple[int, answers.ContradictedContext]]:
            data = [Datum("response", sample.response), *contexts_of(sample, indexes)]
            found = await self._judge.ask(self._contradicted.fill(sample, data), answers.ContradictedContexts)
            return [(context.index, context) for context in found.contexts]

        def fault(context: answers.ContradictedContext) -> str | None:
            texts = [_around(sample), *(sample.contexts[index].text for index in sent_contexts(sample))]
            kind = fault_of_claim("contradicted_contexts", context.reason, sample.response, texts)
            return kind if context.contradicted and kind == "example_repeated" else None

        sent = sent_contexts(sample)
        checks = Checks(len(sent))
        return tuple((await complete(ask, sent, checks, fault)).values()), checks


def _once(claims: Iterable[T], text_of: Callable[[T], str]) -> list[T]:
    """Return the claims with a text, the first of those that differ in case, white space and final punctuation only."""
    first: dict[str, T] = {}
    for claim in claims:
        if text := " ".join(text_of(claim).split()).casefold():
            first.setdefault(text.rstrip(_FINAL) or text, claim)
    return list(first.values())


def _text(claim: str | answers.FusedClaim) -> str:
    return claim if isinstance(claim, str) else claim.claim


def _of(asked: Asked[Any], claims: Iterable[C], checks: Checks) -> ClaimsOf[C]:
    return ClaimsOf(
        noncommittal=asked.answer.noncommittal, claims=tuple(claims), standalone=asked.standalone, checks=checks
    )


def _around(sample: Sample) -> str:
    """Return what a response refers to: the question and the messages before."""
    return "\n".join([sample.question or "", *(message.text for message in sample.history)])


def _judged(claim: str, verdict: answers.FusedClaim | answers.ClaimVerdict, sent: frozenset[int]) -> JudgedClaim:
    if verdict.verdict == "not_mentioned":
        return JudgedClaim(claim=claim, verdict=verdict.verdict)
    named = tuple(index for index in dict.fromkeys(verdict.contexts) if index in sent)
    return JudgedClaim(claim=claim, verdict=verdict.verdict, contexts=named, quote=verdict.quote)


def _key(sample: Sample) -> Hashable:
    """Return the sample's id and a hash of its texts, since contexts or a question may be joined to it later."""
    return sample.id, hash((sample.question, sample.response, sample.contexts, sample.history))
