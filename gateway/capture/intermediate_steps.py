"""Answers that no user gets: a later request of the app shows them as its passages, or as its question.

A chain that summarises every passage asks once for each, and then for the answer, with the summaries as passages; one
that rewrites the question shows the rewritten one. What such a call is asked for may be said in any words: the proof is
that its text comes back. One that comes back proves nothing, since users quote answers and apps store them. So a prompt
makes steps where

- another prompt shows at least two answers of it at once, to the same question; or where what it wrote, or was asked,
  with nothing retrieved, is word for word the question of another prompt that has passages,
- their text was not in their own prompt: what quotes a passage is no source of it,
- this happened often enough, in different requests, with different answers, and to most of its answers, within minutes.

From then on its answers are steps, those before only as far as their samples are not made yet.

A refined answer is judged by the passages of all steps: its request shows the answer before it, to the same question,
and another passage. Which step is the last one only the app knows: one is taken for it unless all of the latest chains
went on from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from gateway.capture import Draft
from gateway.capture import remembered_answers as remembered
from gaugeway.prompts import last_user_text, messages_as_sent, system_texts, text_of
from gaugeway.records import TOOL_SOURCES, Context
from gaugeway.settings.bounds import passages

MOST_PROMPT_PIECES = 2_000
"""Pieces of a message in which the answer before is looked for."""
_LEAST_CHAINS = 3
_OPEN_S = 60.0
"""How long after its last step a chain may go on."""
STEP = "intermediate_step"
"""The kind of call, as the tag `auxiliary` has it."""
MOST_PIECES = 1_000
"""Pieces of all passages of a request that are looked up."""
_LEAST_LINKS, _LEAST_USERS = 3, 2
_SHARE, _ASKED_SHARE, _LOST_SHARE = 0.5, 0.8, 0.25
_COUNTED = 64
"""Answers after which the counts are halved."""
_TOGETHER = 2
_BESIDE = 8
"""Passages of an answer that are looked for beside it: a request that has them looks at the answer again."""
_AS_QUESTION_S = 120.0
_IN_MAKING = 64
"""Answers, the latest ones, whose samples may not be made yet."""
_EDGE, _PROMPT_FROM = 48, 120
"""Characters at either end of a user's turn that tell prompts apart, from which length on it may be one."""


def refined(scope: remembered.Scope, draft: Draft, turn: remembered.Turn) -> remembered.Answer | None:
    """Return the answer that a request refines; then its own is judged, by the passages of both."""
    found = draft.found
    if turn.question is None or not found.contexts or found.source in (*TOOL_SOURCES, "explicit"):
        return None
    alike = [
        answer
        for answer in scope.by_question.get(turn.question, ())
        if answer.contexts and answer.may_be_in(draft.exchange)
    ]
    if not alike:
        return None
    seen = _shown(draft)
    for before in reversed(alike):
        own, earlier = ({passage.text for passage in contexts} for contexts in (found.contexts, before.contexts))
        if not own <= earlier and before.comes_back(seen):
            # Its own come first: the parts of the prompt refer to them by number.
            both = passages((*found.contexts, *(passage for passage in before.contexts if passage.text not in own)))
            draft.found = replace(found, contexts=both.contexts, cut=found.cut or both.cut)
            draft.reason = draft.kind = None
            return before
    return None


def chained(scope: remembered.Scope, answer: remembered.Answer, before: remembered.Answer | None) -> bool:
    """Put an answer into its chain, behind the one that it refines; return whether a further step is to be expected."""
    if before is None:
        if answer.question is None or not answer.contexts or not answer.keys:
            return False
        root = scope.prompt(answer.keys[0])
        answer.chain = remembered.Chain(answer.ended_at, root)
        root.chains.append(answer.chain)
    else:
        answer.step = before.step + 1
        answer.chain = before.chain
    if (chain := answer.chain) is None or chain.root is None:
        return False
    chain.length, chain.at = max(chain.length, answer.step), answer.ended_at
    others = [other for other in chain.root.chains if other is not chain]
    longer = sum(other.length > answer.step for other in others)
    ended = sum(other.length <= answer.step and other.at < answer.ended_at - _OPEN_S for other in others)
    return longer >= _LEAST_CHAINS and not ended


def _shown(draft: Draft) -> set[int]:
    """Return the pieces of the prompt outside the passages.

    What the model said in turns of its own is the conversation, unless the words say that it is to be refined.
    """
    roles = ("system", "developer", "user", *(("assistant",) if draft.kind == "refine" else ()))
    messages = (message for message in messages_as_sent(draft.exchange.request) if message.get("role") in roles)
    said = {
        hash(piece)
        for message in messages
        for piece in remembered.pieces(text_of(message.get("content")), MOST_PROMPT_PIECES)
    }
    return said - remembered.hashes((passage.text for passage in draft.found.contexts), MOST_PROMPT_PIECES)


class IntermediateSteps:
    """Finds out which answers are steps, from one exchange after the other as their samples are made."""

    def __init__(self, answers: remembered.RememberedAnswers) -> None:
        self._answers = answers

    def read(self, draft: Draft) -> None:
        """Compare an exchange with those before: set its `reason` and `kind` if it is a step, and remember it."""
        exchange = draft.exchange
        if draft.reason is not None and draft.kind != "refine":
            return
        self._answers.forget(exchange.started_at)
        scope, turn = self._answers.scope(exchange), _turn_of(draft)
        if (before := refined(scope, draft, turn)) is None:
            if draft.reason is not None:
                return
            self._link(scope, draft, turn)
        else:
            # Its prompt holds the answer before, so it has another version each time.
            turn = turn._replace(version=None, edges=(), contexts=draft.found.contexts)
        if (answer := self._answers.keep(scope, exchange, turn, draft)) is None:
            if before is not None and before.chain is not None:
                before.chain.length = max(before.chain.length, before.step + 1)
            return
        is_step = _count(scope, turn)
        goes_on = chained(scope, answer, before)
        explicit = exchange.request.explicit
        if (is_step or goes_on) and not (explicit is not None and explicit.contexts):
            draft.reason, draft.kind = "auxiliary", STEP

    def _link(self, scope: remembered.Scope, draft: Draft, turn: remembered.Turn) -> None:
        """Look for earlier answers in what an exchange was given."""
        found, exchange = draft.found, draft.exchange
        if not found.contexts or not scope.others(turn.keys):
            return
        self._link_question(scope, draft, turn)
        if found.source in TOOL_SOURCES:
            return
        seen = remembered.hashes((passage.text for passage in found.contexts), MOST_PIECES)
        several = {id(one): one for key in seen if (one := scope.by_piece.get(key)) is not None}
        shown = [answer for answer in several.values() if answer.may_be_in(exchange) and answer.of_another(turn)]
        if shown := [answer for answer in shown if answer.comes_back(seen)]:
            given = remembered.given_in(turn.own)
            shown = [answer for answer in shown if not _holds_any(given, answer.contexts[:_BESIDE])]
        if linked := _together(shown, turn):
            self._proved(scope, linked, _siblings(scope, linked), turn.keys)

    def _link_question(self, scope: remembered.Scope, draft: Draft, turn: remembered.Turn) -> None:
        """Look for earlier answers with nothing retrieved that are the question of an exchange, or were asked it."""
        question, since = draft.found.question, draft.exchange.started_at - _AS_QUESTION_S
        rewritten = scope.by_text.get(hash(remembered.plain(question))) if question else None
        asked = list(scope.by_asked.get(hash(remembered.plain(question).casefold()), ())) if question else []
        for answer in asked if rewritten is None else (rewritten, *asked):
            if answer.contexts or answer.ended_at < since or not answer.may_be_in(draft.exchange):
                continue
            if answer.of_another(turn):
                new = answer is not rewritten or answer.comes_back(set(answer.pieces))
                share = _SHARE if answer is rewritten else _ASKED_SHARE
                self._proved(scope, [answer] if new else [], [answer], turn.keys, share)

    def _proved(
        self,
        scope: remembered.Scope,
        linked: Collection[remembered.Answer],
        used: Iterable[remembered.Answer],
        by: Collection[str],
        share: float = _SHARE,
    ) -> None:
        """Count answers that came back, and those that were `used` up with them, in a request of the prompt `by`."""
        new = set()
        for answer in used:
            if answer.used:
                continue
            answer.used = True
            for key in answer.keys:
                scope.prompt(key).used += 1
                if answer in linked and key not in by:
                    scope.prompt(key).links += 1
                    new.add(key)
        for key in new:
            prompt = scope.prompt(key)
            prompt.users += 1
            often = prompt.links >= _LEAST_LINKS and prompt.users >= _LEAST_USERS
            if often and not prompt.is_step and prompt.used >= share * prompt.made:
                prompt.is_step = True
                self._correct(scope, key)

    def _correct(self, scope: remembered.Scope, key: str) -> None:
        """Make earlier answers of a prompt steps, as far as their samples are not made yet."""
        for answer in self._answers.latest(scope, _IN_MAKING):
            draft = answer.draft()
            if draft is not None and draft.sample is None and draft.reason is None and key in answer.keys:
                explicit = draft.exchange.request.explicit
                if explicit is None or not explicit.contexts:
                    draft.reason, draft.kind = "auxiliary", STEP


def _count(scope: remembered.Scope, turn: remembered.Turn) -> bool:
    """Count an answer of a prompt; return whether the prompt makes steps."""
    for key in turn.keys:
        prompt = scope.prompt(key)
        prompt.made += 1
        if prompt.made >= _COUNTED:
            prompt.is_step &= prompt.used >= _LOST_SHARE * prompt.made
            prompt.made, prompt.used = prompt.made / 2, prompt.used / 2
    if turn.version is not None and (prompt := scope.prompt(turn.version)).made > _LEAST_LINKS:
        return prompt.is_step
    return any(scope.prompt(key).is_step for key in turn.keys)


def _holds_any(given: str, passages: Iterable[Context]) -> bool:
    """Whether a request's text holds one of some passages."""
    return any(
        len(text) >= _EDGE and text in given for text in (" ".join(passage.text.split()) for passage in passages)
    )


def _siblings(scope: remembered.Scope, linked: list[remembered.Answer]) -> list[remembered.Answer]:
    """Return answers and the others of their prompt to the same question: a chain may drop some."""
    questions = {answer.question for answer in linked if answer.question is not None}
    keys = {key for answer in linked for key in answer.keys}
    alike = [answer for question in questions for answer in scope.by_question.get(question, ())]
    return [*linked, *(answer for answer in alike if not keys.isdisjoint(answer.keys))]


def _together(shown: Sequence[remembered.Answer], turn: remembered.Turn) -> list[remembered.Answer]:
    """Return the answers that a request shows with others of their prompt, to one question if that is known."""
    found: dict[int, remembered.Answer] = {}
    for key in {key for answer in shown for key in answer.keys if key not in turn.keys}:
        together = [answer for answer in shown if key in answer.keys]
        asked = {answer.question for answer in together if answer.question is not None}
        if len(together) >= _TOGETHER and len(asked) <= 1:
            found |= {id(answer): answer for answer in together}
    return list(found.values())


def _turn_of(draft: Draft) -> remembered.Turn:
    found, version = draft.found, draft.more.get("prompt")
    text = last_user_text(draft.exchange.request) or ""
    systems = system_texts(draft.exchange.request)
    edges: tuple[str, ...] = ()
    if len(text) >= _PROMPT_FROM:
        system = systems[0][:_EDGE] if systems else ""
        edges = (f"{hash((system, text[:_EDGE]))}:", f":{hash((system, text[-_EDGE:]))}")
    if found.source == "none":
        # Its version is of the system's texts only, if it has any.
        return remembered.Turn(None if edges else version, edges, None, (text, *systems), ())
    question = hash(remembered.plain(found.question).casefold()) if found.question else None
    own = (text, *systems, *(passage.text for passage in found.contexts))
    return remembered.Turn(version, edges, question, own, found.contexts)
