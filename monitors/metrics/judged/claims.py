"""The judge's verdicts on a sample, obtained in two calls (`Fused`) or one call per question (`Separate`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from gaugeway.records import Context, Sample
from monitors.judges import Judge
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged import schemas as answers
from monitors.metrics.judged.follow_ups import Asked, FollowUps
from monitors.metrics.judged.prompts import Datum, claims_of, complete, contexts_of, question_of, sent_contexts
from monitors.metrics.judged.single_flight import SingleFlight

Question: TypeAlias = Literal["claims", "located", "held_against", "relevance", "contradicted", "statements"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedClaims:
    """The claims of a response with their relevance to the question, which `standalone` is for a follow-up."""

    noncommittal: bool
    claims: tuple[tuple[str, answers.Relevance], ...]
    standalone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedContexts:
    """The statements of each non-empty context, in order, and a follow-up's question as it stands alone."""

    contexts: tuple[answers.StatementsOfContext, ...]
    standalone: str | None = None


class Verdicts(ABC):
    """A judge's verdicts on one sample. Every method raises JudgeError; empty contexts are not sent.

    A sample with history is judged as what its question means after it; without the history, by itself.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._verdicts = prompting.load("claim_verdicts")
        self._statements = FollowUps(prompting.load("context_statements"))
        self._shared_statements: SingleFlight[JudgedContexts] = SingleFlight()

    @property
    def model(self) -> str:
        """The judge model's name."""
        return self._judge.model

    @abstractmethod
    def version(self, question: Question) -> str:
        """Return the hashes of the prompts used for `question`."""

    @abstractmethod
    async def claims(self, sample: Sample) -> JudgedClaims:
        """Return the response's claims, checked against the contexts."""

    @abstractmethod
    async def relevance(self, sample: Sample) -> RatedClaims:
        """Return the response's claims with their relevance to the question."""

    @abstractmethod
    async def contradicted(self, sample: Sample) -> tuple[answers.ContradictedContext, ...]:
        """Return, for each non-empty context in order, whether the response contradicts it."""

    @abstractmethod
    async def _asked(self, sample: Sample) -> Asked[Any]:
        """Return the answer of the call for the claims."""

    async def located(self, sample: Sample) -> JudgedClaims:
        """Do what `claims` does; each supported or contradicted claim also names the contexts responsible."""
        judged = await self.claims(sample)
        return replace(judged, claims=await self._located(sample, judged.claims))

    async def held_against(self, sample: Sample, claims: Sequence[str], text: str) -> tuple[JudgedClaim, ...]:
        """Return these claims, checked against one text instead of the sample's contexts."""
        return await self._checked(replace(sample, contexts=(Context(text=text),)), claims)

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

        contexts = tuple((await complete(ask, sent_contexts(sample))).values())
        return JudgedContexts(contexts=contexts, standalone=standalone[0] if standalone else None)

    async def _checked(self, sample: Sample, claims: Sequence[str]) -> tuple[JudgedClaim, ...]:
        """Return the claims, checked against the sample's contexts."""

        async def ask(ids: Sequence[int]) -> Iterable[tuple[int, JudgedClaim]]:
            return await self._ask_verdicts(sample, claims, ids)

        return tuple((await complete(ask, range(len(claims)))).values())

    async def _located(
        self,
        sample: Sample,
        judged: Sequence[JudgedClaim],
        needing: tuple[answers.Verdict, ...] = ("supported", "contradicted"),
    ) -> tuple[JudgedClaim, ...]:
        """Return the same claims; each with a verdict in `needing` names the contexts it rests on.

        One that names no context we sent is a missing verdict on the contexts: no context at all would count as
        contradicted, which is the best score. Such claims are asked about once more.
        """

        def placed(claim: JudgedClaim) -> bool:
            return bool(claim.contexts) or claim.verdict not in needing

        async def ask(ids: Sequence[int]) -> Iterable[tuple[int, JudgedClaim]]:
            verdicts = await self._ask_verdicts(sample, [claim.claim for claim in judged], ids)
            return [(id_, claim) for id_, claim in verdicts if placed(claim)]

        found = await complete(ask, [id_ for id_, claim in enumerate(judged) if not placed(claim)], times=1)
        return tuple(found.get(id_, claim) for id_, claim in enumerate(judged))

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
        self._claims = FollowUps(prompting.load("claims_verdicts"))
        self._shared: SingleFlight[Asked[answers.ClaimsVerdicts]] = SingleFlight()

    def version(self, question: Question) -> str:
        if question in ("contradicted", "located"):
            return f"{self._claims.version}-{self._verdicts.version}"
        if question == "held_against":
            return self._verdicts.version
        return self._statements.version if question == "statements" else self._claims.version

    async def claims(self, sample: Sample) -> JudgedClaims:
        found = await self._asked(sample)
        sent = frozenset(sent_contexts(sample))
        claims = [_judged(claim.claim, claim, sent) for claim in found.answer.claims]
        return JudgedClaims(noncommittal=found.answer.noncommittal, claims=tuple(claims), standalone=found.standalone)

    async def relevance(self, sample: Sample) -> RatedClaims:
        found = await self._asked(sample)
        claims = [(claim.claim, claim.relevance) for claim in found.answer.claims]
        return RatedClaims(noncommittal=found.answer.noncommittal, claims=tuple(claims), standalone=found.standalone)

    async def contradicted(self, sample: Sample) -> tuple[answers.ContradictedContext, ...]:
        judged = await self.claims(sample)
        reasons: dict[int, str] = {}
        for claim in await self._located(sample, judged.claims, ("contradicted",)):
            for index in claim.contexts if claim.verdict == "contradicted" else ():
                reasons.setdefault(index, f"{claim.claim} ↔ {claim.quote}" if claim.quote else claim.claim)
        return tuple(
            answers.ContradictedContext(index, contradicted=index in reasons, reason=reasons.get(index, ""))
            for index in sent_contexts(sample)
        )

    async def _asked(self, sample: Sample) -> Asked[answers.ClaimsVerdicts]:
        return await self._shared.get(_key(sample), lambda: self._ask(sample))

    async def _ask(self, sample: Sample) -> Asked[answers.ClaimsVerdicts]:
        data = [Datum("response", sample.response), *contexts_of(sample)]
        found = await self._claims.ask(self._judge, sample, data, answers.ClaimsVerdicts)
        claims = [claim for claim in found.answer.claims if claim.claim.strip()]
        answer = answers.ClaimsVerdicts(noncommittal=found.answer.noncommittal, claims=claims)
        return Asked(answer=answer, standalone=found.standalone)


class Separate(Verdicts):
    """Makes one call per question; metrics share only the extraction of claims."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._claims = FollowUps(prompting.load("claims"))
        self._relevance = prompting.load("claim_relevance")
        self._contradicted = FollowUps(prompting.load("contradicted_contexts"))
        self._shared: SingleFlight[Asked[answers.Claims]] = SingleFlight()

    def version(self, question: Question) -> str:
        return {
            "claims": f"{self._claims.version}-{self._verdicts.version}",
            "located": f"{self._claims.version}-{self._verdicts.version}",
            "held_against": self._verdicts.version,
            "relevance": f"{self._claims.version}-{self._relevance.version}",
            "contradicted": self._contradicted.version,
            "statements": self._statements.version,
        }[question]

    async def claims(self, sample: Sample) -> JudgedClaims:
        extracted = await self._asked(sample)
        claims = await self._checked(sample, extracted.answer.claims)
        return JudgedClaims(noncommittal=extracted.answer.noncommittal, claims=claims, standalone=extracted.standalone)

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
        claims = [(claim, found[id_].relevance) for id_, claim in enumerate(said)]
        return RatedClaims(
            noncommittal=extracted.answer.noncommittal, claims=tuple(claims), standalone=extracted.standalone
        )

    async def contradicted(self, sample: Sample) -> tuple[answers.ContradictedContext, ...]:
        async def ask(indexes: Sequence[int]) -> Iterable[tuple[int, answers.ContradictedContext]]:
            data = [Datum("response", sample.response), *contexts_of(sample, indexes)]
            prompt = self._contradicted.fill(sample, data)
            return [
                (context.index, context)
                for context in (await self._judge.ask(prompt, answers.ContradictedContexts)).contexts
            ]

        return tuple((await complete(ask, sent_contexts(sample))).values())

    async def _asked(self, sample: Sample) -> Asked[answers.Claims]:
        return await self._shared.get(_key(replace(sample, contexts=())), lambda: self._extract(sample))

    async def _extract(self, sample: Sample) -> Asked[answers.Claims]:
        found = await self._claims.ask(self._judge, sample, [Datum("response", sample.response)], answers.Claims)
        claims = [claim for claim in found.answer.claims if claim.strip()]
        return Asked(answer=answers.Claims(found.answer.noncommittal, claims), standalone=found.standalone)


def _judged(claim: str, verdict: answers.FusedClaim | answers.ClaimVerdict, sent: frozenset[int]) -> JudgedClaim:
    if verdict.verdict == "not_mentioned":
        return JudgedClaim(claim=claim, verdict=verdict.verdict)
    named = tuple(index for index in dict.fromkeys(verdict.contexts) if index in sent)
    return JudgedClaim(claim=claim, verdict=verdict.verdict, contexts=named, quote=verdict.quote)


def _key(sample: Sample) -> Hashable:
    """Return the sample's id and a hash of its texts, since contexts or a question may be joined to it later."""
    return sample.id, hash((sample.question, sample.response, sample.contexts, sample.history))
