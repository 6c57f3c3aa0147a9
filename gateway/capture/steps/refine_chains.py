"""Refined answers: a request shows the answer before it, to the same question, and another passage.

The text stands in the prompt, not among the passages. The refined answer is judged by the passages of all steps. Which
step is the last one only the app knows: one is taken for it unless all of the latest chains went on from there.
"""

from __future__ import annotations

from msgspec.structs import replace

from gateway.capture.draft import Draft
from gateway.capture.steps.remembered_answers import Answer, Chain, Scope, Turn
from gateway.capture.steps.sentences import hashes, pieces
from gaugeway.prompts import messages_as_sent, text_of
from gaugeway.records import TOOL_SOURCES
from gaugeway.settings.bounds import passages

MOST_PIECES = 2_000
"""Pieces of a message in which the answer before is looked for."""
_LEAST_CHAINS = 3
_OPEN_S = 60.0
"""How long after its last step a chain may go on."""


def refined(scope: Scope, draft: Draft, turn: Turn) -> Answer | None:
    """Return the answer that a request refines; then its own is judged, by the passages of both."""
    found = draft.found
    if turn.question is None or not found.contexts or found.source in (*TOOL_SOURCES, "explicit"):
        return None
    alike = [one for one in scope.by_question.get(turn.question, ()) if one.contexts and one.may_be_in(draft.exchange)]
    if not alike:
        return None
    seen = _shown(draft)
    for before in reversed(alike):
        own, earlier = ({one.text for one in contexts} for contexts in (found.contexts, before.contexts))
        if not own <= earlier and before.comes_back(seen):
            # Its own come first: the parts of the prompt refer to them by number.
            both = passages((*found.contexts, *(one for one in before.contexts if one.text not in own)))
            draft.found = replace(found, contexts=both.contexts, cut=found.cut or both.cut)
            draft.reason = draft.kind = None
            return before
    return None


def chained(scope: Scope, answer: Answer, before: Answer | None) -> bool:
    """Put an answer into its chain, behind the one that it refines; return whether a further step is to be expected."""
    if before is None:
        if answer.question is None or not answer.contexts or not answer.keys:
            return False
        root = scope.prompt(answer.keys[0])
        answer.chain = Chain(answer.ended_at, root)
        root.chains.append(answer.chain)
    else:
        answer.step = before.step + 1
        answer.chain = before.chain
    chain = answer.chain
    if chain is None or chain.root is None:
        return False
    chain.length, chain.at = max(chain.length, answer.step), answer.ended_at
    others = [one for one in chain.root.chains if one is not chain]
    longer = sum(one.length > answer.step for one in others)
    ended = sum(one.length <= answer.step and one.at < answer.ended_at - _OPEN_S for one in others)
    return longer >= _LEAST_CHAINS and not ended


def _shown(draft: Draft) -> set[int]:
    """Return the pieces of the prompt outside the passages.

    What the model said in turns of its own is the conversation, unless the words say that it is to be refined.
    """
    roles = ("system", "developer", "user", *(("assistant",) if draft.kind == "refine" else ()))
    messages = (one for one in messages_as_sent(draft.exchange.request) if one.get("role") in roles)
    said = {hash(piece) for one in messages for piece in pieces(text_of(one.get("content")), MOST_PIECES)}
    return said - hashes((one.text for one in draft.found.contexts), MOST_PIECES)
