"""Tool use: whether an agent called sensible tools with the right arguments, judged for each call of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from gaugeway.records import Sample, Score, Skipped, ToolCall
from monitors.judges import Judge
from monitors.metrics.judged import follow_ups
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.prompts import Datum, complete, unanswered
from monitors.metrics.judged.schemas import JudgedCall, JudgedCalls

_CHOICE = {"sensible": 1.0, "unnecessary": 0.5, "wrong": 0.0}
_ARGUMENTS = {"right": 1.0, "incomplete": 0.5, "wrong": 0.0}


class ToolUse:
    """Mean over the calls of choice x arguments: sensible 1, unnecessary .5, wrong 0; right 1, incomplete .5, wrong 0.

    `Sample.calls` of an answer are all calls that led to it. Their results are not shown to the judge. Answers without
    calls are skipped.
    """

    name = "tool_use"

    def __init__(self, judge: Judge, *, history: bool = True) -> None:
        self._judge = judge
        self._prompt = follow_ups.FollowUps(prompting.load("tool_calls"))
        self._history = history
        self.judge = judge.model
        self.version = follow_ups.version(1, self._prompt.version, history=history)

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "question", "response")) is not None:
            return skipped
        if not sample.calls:
            return Skipped("no_tool_calls")
        seen = sample if self._history else follow_ups.without_history(sample)
        standalone: list[str | None] = []

        async def ask(ids: Sequence[int]) -> Iterable[tuple[int, JudgedCall]]:
            data = [Datum("call", _said(sample.calls[id_]), id=id_) for id_ in ids]
            found = await self._prompt.ask(self._judge, seen, data, JudgedCalls)
            standalone.append(found.standalone)
            return [(verdict.id, verdict) for verdict in found.answer.calls]

        judged = await complete(ask, range(len(sample.calls)))
        values = [_CHOICE[verdict.choice] * _ARGUMENTS[verdict.arguments] for verdict in judged.values()]
        fine = sum(value == 1.0 for value in values)
        return Score(
            fmean(values),
            f"{fine} of {len(values)} tool calls are sensible and have the right arguments",
            (
                *follow_ups.evidence_of(standalone[0]),
                *(_evidence(sample.calls[id_], verdict) for id_, verdict in judged.items()),
            ),
        )


def _said(call: ToolCall) -> str:
    hop = "" if call.hop is None else f"hop {call.hop}: "
    return f"{hop}{call.name} {call.arguments}".rstrip()


def _evidence(call: ToolCall, verdict: JudgedCall) -> dict[str, Any]:
    return {
        "hop": call.hop,
        "tool": call.name,
        "choice": verdict.choice,
        "arguments": verdict.arguments,
        "reason": verdict.reason,
    }
