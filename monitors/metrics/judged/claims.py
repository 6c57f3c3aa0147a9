"""The judge's verdicts on a sample, obtained in two calls (`Fused`) or one call per question (`Separate`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

from gaugeway.records import Context, Sample
from monitors.judges import Judge
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged import schemas as answers
from monitors.metrics.judged.evidence import CHECKED, Checks, fault_of_claim, fault_of_verdict, is_stated
from monitors.metrics.judged.follow_ups import Asked, FollowUps
from monitors.metrics.judged.prompts import Datum, claims_of, complete, contexts_of, question_of, sent_contexts
from monitors.metrics.judged.single_flight import SingleFlight

Question: TypeAlias = Literal["claims", "held_against", "relevance", "contradicted", "statements"]
A = TypeVar("A", bound=answers.Claims | answers.ClaimsVerdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """A claim of the response and its verdict; `contexts` are indexes into the sample's contexts."""

    claim: str
    verdict: answers.Verdict
    contexts: tuple[int, ...] = ()
    quote: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaims:
    """The claims of a response, whether it is noncommittal, and a follow-up's question as it stands alone."""

    noncommittal: bool
    claims: tuple[JudgedClaim, ...]
    standalone: str | None = None
    checks: Checks = field(default_factory=Checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedClaims:
    """The claims of a response with their relevance to the question, which `standalone` is for a follow-up."""

    noncommittal: bool
    claims: tuple[tuple[str, answers.Relevance], ...]
    standalone: str | None = None
    checks: Checks = field(default_factory=Checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedContexts:
    """The statements of each non-empty context, in order, and a follow-up's question as it stands alone."""

    contexts: tuple[answers.StatementsOfContext, ...]
    standalone: str | None = None
    checks: Checks = field(default_factory=Checks)


class Verdicts(ABC):
    """A judge's verdicts on one sample. Every method raises JudgeError; empty contexts are not sent.

    What an answer says must be in the texts: a claim in the response, a statement in its context, the quote of a
    verdict in a context that it names. What is not is asked for again; then it is JudgeError("unsupported_verdict").

    A sample with history is judged as what its question means after it; without the history, by itself.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._verdicts = prompting.load("claim_verdicts")
        self._statements = FollowUps(prompting.load("context_statements"))
        self._shared_statements: SingleFlight[JudgedContexts] = SingleFlight()
        self._shared_claims: SingleFlight[JudgedClaims] = SingleFlight()

    @property
    def model(self) -> str:
        """The judge model's name."""
        return self._judge.model

    @abstractmethod
    def version(self, question: Question) -> str:
        """Return the hashes of the prompts used for `question`."""

    async def claims(self, sample: Sample) -> JudgedClaims:
        """Return the response's claims, checked against the contexts; those with a verdict name their contexts."""
        return await self._shared_claims.get(_key(sample), lambda: self._judge_claims(sample))

    @abstractmethod
    async def _judge_claims(self, sample: Sample) -> JudgedClaims:
        """Do what `claims` does, once for all metrics."""

    @abstractmethod
    async def relevance(self, sample: Sample) -> RatedClaims:
        """Return the response's claims with their relevance to the question."""

    @abstractmethod
    async def contradicted(self, sample: Sample) -> tuple[tuple[answers.ContradictedContext, ...], Checks]:
        """Return, for each non-empty context in order, whether the response contradicts it; and what was checked."""

    @abstractmethod
    async def _asked(self, sample: Sample) -> Asked[Any]:
        """Return the answer of the call for the claims."""

    async def held_against(self, sample: Sample, claims: Sequence[str], text: str) -> tuple[JudgedClaim, ...]:
        """Return these claims, checked against one text instead of the sample's contexts."""
        return await self._verified(replace(sample, contexts=(Context(text=text),)), claims, Checks(len(claims)))

    async def standalone(self, sample: Sample) -> str | None:
        """Return a follow-up's question as it stands alone, from the call for the claims; None without history."""
        return (await self._asked(sample)).standalone if sample.history else None

    async def statements(self, sample: Sample) -> JudgedContexts:
        """Return, for each non-empty context in order, its statements and their relevance to the question."""
        return await self._shared_statements.get(_key(sample), lambda: self._ask_statements(sample))

    async def _ask_statements(self, sample: Sample) -> JudgedContexts:
        standalone: list[str | None] = []

        async def ask(indexes: Sequence[int]) -> Iterable[tuple[int, answers.StatementsOfContext]]:
            data = contexts_of(sample, indexes)
            found = await self._statements.ask(self._judge, sample, data, answers.ContextStatements)
            standalone.append(found.standalone)
            return [(context.index, context) for context in found.answer.contexts]

        def fault(context: answers.StatementsOfContext) -> str | None:
            text, around = sample.contexts[context.index].text, [_around(sample)]
            own = all(is_stated(statement.statement, text, around) for statement in context.statements)
            return None if own else "statement_not_in_passage"

        sent = sent_contexts(sample)
        checks = Checks(len(sent))
        contexts = tuple((await complete(ask, sent, checks, fault)).values())
        return JudgedContexts(contexts=contexts, standalone=standalone[0] if standalone else None, checks=checks)

    async def _stated(self, sample: Sample, task: str, ask: Callable[[int], Awaitable[Asked[A]]]) -> Asked[A]:
        """Return an answer with claims of the response only; `ask` gets the number of earlier answers."""
        checks = Checks()
        for attempt in range(prompting.ATTEMPTS):
            asked = await ask(attempt)
            around = [_around(sample), asked.standalone or ""]
            given = [sample.contexts[index].text for index in sent_contexts(sample)]
            said = [claim if isinstance(claim, str) else claim.claim for claim in asked.answer.claims]
            faults = [fault_of_claim(task, claim, sample.response, around, given) for claim in said]
            refused = [kind for kind in faults if kind is not None]
            if not attempt:
                checks.checked = len(said)
                checks.refused.update(refused)
            if not refused:
                return replace(asked, checks=checks)
        raise checks.failure()

    async def _verified(
        self,
        sample: Sample,
        claims: Sequence[str],
        checks: Checks,
        first: Iterable[tuple[int, JudgedClaim]] | None = None,
    ) -> tuple[JudgedClaim, ...]:
        """Return the claims with verdicts that the sample's contexts bear out; `first` are the verdicts known."""
        known = [] if first is None else [first]
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

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._claims, self._again = _with_repetition("claims_verdicts")
        self._shared: SingleFlight[Asked[answers.ClaimsVerdicts]] = SingleFlight()

    def version(self, question: Question) -> str:
        versions = {
            "held_against": self._verdicts.version,
            "relevance": self._claims.version,
            "statements": self._statements.version,
        }
        return f"{versions.get(question, f'{self._claims.version}-{self._verdicts.version}')}-{CHECKED}"

    async def _judge_claims(self, sample: Sample) -> JudgedClaims:
        found = await self._asked(sample)
        sent, checks = frozenset(sent_contexts(sample)), found.checks.copy()
        first = [(id_, _judged(claim.claim, claim, sent)) for id_, claim in enumerate(found.answer.claims)]
        claims = await self._verified(sample, [claim.claim for _, claim in first], checks, first)
        return JudgedClaims(
            noncommittal=found.answer.noncommittal, claims=claims, standalone=found.standalone, checks=checks
        )

    async def relevance(self, sample: Sample) -> RatedClaims:
        found = await self._asked(sample)
        claims = tuple((claim.claim, claim.relevance) for claim in found.answer.claims)
        return RatedClaims(
            noncommittal=found.answer.noncommittal, claims=claims, standalone=found.standalone, checks=found.checks
        )

    async def contradicted(self, sample: Sample) -> tuple[tuple[answers.ContradictedContext, ...], Checks]:
        judged = await self.claims(sample)
        reasons: dict[int, str] = {}
        for claim in judged.claims:
            for index in claim.contexts if claim.verdict == "contradicted" else ():
                reasons.setdefault(index, f"{claim.claim} ↔ {claim.quote}" if claim.quote else claim.claim)
        contexts = tuple(
            answers.ContradictedContext(index, contradicted=index in reasons, reason=reasons.get(index, ""))
            for index in sent_contexts(sample)
        )
        return contexts, judged.checks

    async def _asked(self, sample: Sample) -> Asked[answers.ClaimsVerdicts]:
        return await self._shared.get(_key(sample), lambda: self._ask(sample))

    async def _ask(self, sample: Sample) -> Asked[answers.ClaimsVerdicts]:
        data = [Datum("response", sample.response), *contexts_of(sample)]

        async def ask(attempt: int) -> Asked[answers.ClaimsVerdicts]:
            template = self._again if attempt else self._claims
            found = await template.ask(self._judge, sample, data, answers.ClaimsVerdicts)
            claims = [claim for claim in found.answer.claims if claim.claim.strip()]
            answer = answers.ClaimsVerdicts(noncommittal=found.answer.noncommittal, claims=claims)
            return replace(found, answer=answer)

        return await self._stated(sample, "claims_verdicts", ask)


class Separate(Verdicts):
    """Makes one call per question; metrics share only the extraction of claims."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._claims, self._again = _with_repetition("claims")
        self._relevance = prompting.load("claim_relevance")
        self._contradicted = FollowUps(prompting.load("contradicted_contexts"))
        self._shared: SingleFlight[Asked[answers.Claims]] = SingleFlight()

    def version(self, question: Question) -> str:
        versions = {
            "claims": f"{self._claims.version}-{self._verdicts.version}",
            "held_against": self._verdicts.version,
            "relevance": f"{self._claims.version}-{self._relevance.version}",
            "contradicted": self._contradicted.version,
            "statements": self._statements.version,
        }
        return f"{versions[question]}-{CHECKED}"

    async def _judge_claims(self, sample: Sample) -> JudgedClaims:
        extracted = await self._asked(sample)
        checks = extracted.checks.copy()
        claims = await self._verified(sample, extracted.answer.claims, checks)
        return JudgedClaims(
            noncommittal=extracted.answer.noncommittal, claims=claims, standalone=extracted.standalone, checks=checks
        )

    async def relevance(self, sample: Sample) -> RatedClaims:
        extracted = await self._asked(sample)
        said = extracted.answer.claims
        asked = sample if extracted.standalone is None else replace(sample, question=extracted.standalone)

        async def ask(ids: Sequence[int]) -> Iterable[tuple[int, answers.RelevanceVerdict]]:
            prompt = self._relevance.fill([*question_of(asked), *claims_of(said, ids)])
            return [
                (verdict.id, verdict) for verdict in (await self._judge.ask(prompt, answers.ClaimRelevance)).verdicts
            ]

        found = await complete(ask, range(len(said)))
        return RatedClaims(
            noncommittal=extracted.answer.noncommittal,
            claims=tuple((claim, found[id_].relevance) for id_, claim in enumerate(said)),
            standalone=extracted.standalone,
            checks=extracted.checks,
        )

    async def contradicted(self, sample: Sample) -> tuple[tuple[answers.ContradictedContext, ...], Checks]:
        async def ask(indexes: Sequence[int]) -> Iterable[tuple[int, answers.ContradictedContext]]:
            data = [Datum("response", sample.response), *contexts_of(sample, indexes)]
            prompt = self._contradicted.fill(sample, data)
            return [
                (context.index, context)
                for context in (await self._judge.ask(prompt, answers.ContradictedContexts)).contexts
            ]

        def fault(context: answers.ContradictedContext) -> str | None:
            texts = [_around(sample), *(sample.contexts[index].text for index in sent_contexts(sample))]
            kind = fault_of_claim("contradicted_contexts", context.reason, sample.response, texts)
            return kind if context.contradicted and kind == "example_repeated" else None

        sent = sent_contexts(sample)
        checks = Checks(len(sent))
        return tuple((await complete(ask, sent, checks, fault)).values()), checks

    async def _asked(self, sample: Sample) -> Asked[answers.Claims]:
        return await self._shared.get(_key(replace(sample, contexts=())), lambda: self._extract(sample))

    async def _extract(self, sample: Sample) -> Asked[answers.Claims]:
        async def ask(attempt: int) -> Asked[answers.Claims]:
            template = self._again if attempt else self._claims
            found = await template.ask(self._judge, sample, [Datum("response", sample.response)], answers.Claims)
            claims = [claim for claim in found.answer.claims if claim.strip()]
            return replace(found, answer=answers.Claims(found.answer.noncommittal, claims))

        return await self._stated(sample, "claims", ask)


def _with_repetition(task: str) -> tuple[FollowUps, FollowUps]:
    """Return the prompt of a task, and the one for a second answer, after claims that are not in the response."""
    template = prompting.load(task)
    return FollowUps(template), FollowUps(template.with_part(prompting.load("own_claims")))


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
