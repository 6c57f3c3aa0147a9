"""Which metrics a sample gets, and with what probability: from its place, its facts and what costs nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from monitors import sampling
from monitors.records import Evaluation, Sample, Score
from monitors.sampling import Bias, Facts

Signal: TypeAlias = Literal["low_lexical", "refusal", "no_contexts"]
LOW = 0.5
"""Below this a score of a metric that asks no judge is a reason to have a closer look."""
_LOOKED_AT = 200
_REFUSALS = re.compile(
    r"i(?: am|'m|\u2019m)? (?:sorry|unable|not able)|i (?:can(?:no|'|\u2019)t|do(?: no|n'|n\u2019)t (?:know|have))"
    r"|no (?:information|answer)|(?:das )?wei(?:ß|ss) ich nicht|tut mir leid|leider|ich kann (?:nicht|keine)"
    r"|je (?:suis désolé|ne (?:sais|peux|trouve))|désolé|lo siento|no (?:sé|puedo|tengo)|mi dispiace|non (?:so|posso)"
    r"|desculpe|não (?:sei|posso|tenho)|抱歉|对不起|無法|无法|我不知道|申し訳|わかりません|죄송",
    re.IGNORECASE,
)


class Choice:
    """Decides by a salted hash of the trace's id (or, `nested_with_otel`, by OpenTelemetry's own rule for it).

    `bias` has judged metrics look more often at exchanges of one kind: the first that applies counts, and the
    probability goes into the evaluation, so that estimates stay unbiased. Raises ValueError for factors further apart
    than 4 to 1.
    """

    def __init__(self, salt: str, *, nested_with_otel: bool = False, bias: Sequence[Bias] = ()) -> None:
        sampling.smallest_rate(1.0, bias)
        self._salt = salt
        self._nested = nested_with_otel
        self._bias = bias

    def keeps(self, sample: Sample, rate: float) -> bool:
        """Whether the sample belongs to those chosen with probability `rate`."""
        return keeps(sample.trace_id, sample.id, rate, salt=self._salt, nested_with_otel=self._nested)

    def rate(self, sample: Sample, base: float, free: Sequence[Evaluation]) -> float:
        """The probability of a judged metric, from what is known without a judge; `free` are its evaluations."""
        if not self._bias or not base:
            return base
        facts = Facts(app=sample.app, model=sample.model, tags=sample.tags, signals=signals_of(sample, free))
        return sampling.rate_for(facts, base, self._bias).rate


def keeps(trace_id: str | None, exchange_id: str, rate: float, *, salt: str, nested_with_otel: bool) -> bool:
    """Decide about an exchange. A trace id that OpenTelemetry would not take is hashed like any other name."""
    if nested_with_otel and trace_id is not None:
        try:
            return sampling.keep_nested_with_otel(trace_id, rate)
        except ValueError:
            pass
    return sampling.keep(trace_id or exchange_id, rate, salt)


def signals_of(sample: Sample, free: Sequence[Evaluation]) -> frozenset[str]:
    """What makes a sample worth a closer look.

    >>> sorted(signals_of(Sample(id="1", started_at=0.0, response="I'm sorry, I don't know."), []))
    ['no_contexts', 'refusal']
    """
    poor = any(isinstance(one.outcome, Score) and one.outcome.value < LOW for one in free)
    refused = _REFUSALS.match(sample.response[:_LOOKED_AT].lstrip()) is not None
    signals: list[tuple[Signal, bool]] = [
        ("low_lexical", poor),
        ("refusal", refused),
        ("no_contexts", not sample.contexts),
    ]
    return frozenset(name for name, true in signals if true)
