"""Sampling: which exchanges are captured and which metrics they get, by a salted hash that all replicas share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Annotated, Literal, TypeAlias

import msgspec

from gaugeway.records import Evaluation, Sample, Score

_BITS = 56
_SPAN = 1 << _BITS
_HEX_DIGITS = _BITS // 4
_HEX = frozenset("0123456789abcdef")
_TRACE_DIGITS = 32

MAX_RATIO = 4.0  # internal bound: a number of the format or formula
"""Largest ratio of two rates within a stream that feeds alerts; beyond it drops are detected clearly later."""

Signal: TypeAlias = Literal["low_lexical", "refusal", "no_contexts"]

Stratum: TypeAlias = tuple[str, ...]
ERROR = "error"
"""First element of the stratum of a failed exchange."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an exchange before it is judged. `signals` are words such as "no_contexts"."""

    app: str = "default"
    model: str = "unknown"
    tags: Mapping[str, str] = {}
    error: bool = False
    signals: frozenset[str] = frozenset()


class Bias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[judge.bias]]`: exchanges that match all of it are judged `factor` times as often.

    `app`, `model` and the values of `tags` are shell patterns; `signal` None matches any exchange.
    """

    factor: Annotated[float, msgspec.Meta(gt=0.0)]
    app: str = "*"
    model: str = "*"
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    signal: Signal | None = None

    def applies(self, facts: Facts) -> bool:
        """Whether an exchange matches all of it."""
        return (
            fnmatchcase(facts.app, self.app)
            and fnmatchcase(facts.model, self.model)
            and all(name in facts.tags and fnmatchcase(facts.tags[name], tag) for name, tag in self.tags.items())
            and (self.signal is None or self.signal in facts.signals)
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The probability that an exchange is judged, and the stratum of its score."""

    rate: float
    stratum: Stratum


def position(key: str, salt: str) -> int:
    """Return the position of `key` (a trace or exchange id) in [0, 2**56): uniform, and the same in every process.

    The convention is OpenTelemetry's consistent probability sampling (keep when position >= threshold), but the
    randomness is a salted BLAKE2b hash, independent of other samplers that use the trace id.
    """
    digest = blake2b(key.encode(), key=salt.encode()[:64], digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _BITS)


def keep(key: str, rate: float, salt: str) -> bool:
    """Whether `key` is in the sample of probability `rate`; a lower rate gives a subset of a higher one's.

    >>> kept = {str(k) for k in range(1000) if keep(str(k), 0.5, "s")}
    >>> {str(k) for k in range(1000) if keep(str(k), 0.1, "s")} <= kept
    True
    """
    return rate == 1.0 or _kept(position(key, salt), rate)


def otel_position(trace_id: str, tracestate: str | None = None) -> int:
    """Return the position of a trace in [0, 2**56) that OpenTelemetry samplers use.

    It is the explicit randomness `rv` of the `ot` entry of the tracestate if there is one, else the low 56 bits of the
    trace id. Reference: OpenTelemetry specification, "TraceState: Probability Sampling" (status: development). An `rv`
    that is not 14 lower-case hex digits counts as none. Raises ValueError for a trace id that is not 32 hex digits.

    >>> hex(otel_position("0af7651916cd43dd8448eb211c80319c"))
    '0x48eb211c80319c'
    >>> hex(otel_position("0af7651916cd43dd8448eb211c80319c", "vendor=1, ot=th:c;rv:d29d6a7215ced0"))
    '0xd29d6a7215ced0'
    """
    if len(trace_id) != _TRACE_DIGITS or not _HEX.issuperset(trace_id.lower()):
        raise ValueError(f"a trace id has {_TRACE_DIGITS} hex digits, got {trace_id!r}")
    for member in (tracestate or "").split(","):
        name, _, value = member.strip(" \t").partition("=")
        if name == "ot":
            for pair in value.split(";"):
                digits = pair.removeprefix("rv:")
                if digits != pair and len(digits) == _HEX_DIGITS and _HEX.issuperset(digits):
                    return int(digits, 16)
            break
    return int(trace_id[-_HEX_DIGITS:], 16)


def keep_nested_with_otel(trace_id: str, rate: float, tracestate: str | None = None) -> bool:
    """Decide like `keep`, but nested with OpenTelemetry's samples: of two rates the smaller gives a subset.

    Then judged exchanges have a span wherever the tracer keeps at least as many. In return the decision depends on
    other samplers that use the trace id, and where the tracer has dropped traces already, `rate` refers to all traces,
    not to those left. The SDKs' classic `TraceIdRatioBased` is not nested with this.

    >>> kept = keep_nested_with_otel("0af7651916cd43dd8448eb211c80319c", 0.75)
    >>> kept, keep_nested_with_otel("0af7651916cd43dd8448eb211c80319c", 0.25)
    (True, False)
    """
    return _kept(otel_position(trace_id, tracestate), rate)


def rate_for(facts: Facts, base: float, rules: Sequence[Bias] = (), *, tags: Iterable[str] = ()) -> Plan:
    """Return the rate of an exchange: `base` times the factor of the first matching rule, at most 1; 1 for errors.

    Errors are all kept, in their own stratum: they are another stream, not low scores of this one. The rates of all
    other exchanges differ by at most 4 to 1, so that their scores can feed an alert with the weight smallest rate/rate
    (see `smallest_rate`). `tags` name the tags that make strata.

    The rules may use anything known before judging, nothing later. Raises ValueError for a base outside
    (0, 1] or factors that are not positive or further apart than 4 to 1 (the base counts as a factor of 1).

    >>> rules = [Bias(factor=4.0, signal="no_contexts"), Bias(factor=2.0, model="new-*")]
    >>> rate_for(Facts(app="support", model="new-1"), 0.1, rules)
    Plan(rate=0.2, stratum=('app=support', 'model=new-1'))
    >>> rate_for(Facts(app="support", model="new-1", error=True), 0.1, rules).rate
    1.0
    """
    _check(base, rules)
    stratum = stratum_of(facts, tags)
    if facts.error:
        return Plan(rate=1.0, stratum=stratum)
    factor = next((rule.factor for rule in rules if rule.applies(facts)), 1.0)
    return Plan(rate=min(1.0, base * factor), stratum=stratum)


def smallest_rate(base: float, rules: Sequence[Bias] = ()) -> float:
    """Return the smallest rate that `rate_for` gives to an exchange that is not an error. Raises as `rate_for`.

    >>> smallest_rate(0.1, [Bias(factor=0.5, app="batch"), Bias(factor=2.0, app="chat")])
    0.05
    """
    _check(base, rules)
    return min(1.0, base * min([1.0, *(rule.factor for rule in rules)]))


def stratum_of(facts: Facts, tags: Iterable[str] = ()) -> Stratum:
    """Return the stratum of an exchange: its app, its model, its values of `tags`, and whether it is an error.

    >>> stratum_of(Facts(app="support", model="m", tags={"tenant": "a", "user": "u1"}), ["tenant"])
    ('app=support', 'model=m', 'tag:tenant=a')
    """
    named = (f"tag:{name}={facts.tags[name]}" for name in sorted(set(tags)) if name in facts.tags)
    return (*((ERROR,) if facts.error else ()), f"app={facts.app}", f"model={facts.model}", *named)


def _kept(place: int, rate: float) -> bool:
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"a sampling rate lies in [0, 1], got {rate!r}")
    return place >= round((1.0 - rate) * _SPAN)


def _check(base: float, rules: Sequence[Bias]) -> None:
    if not 0.0 < base <= 1.0:
        raise ValueError(f"a base rate lies in (0, 1], got {base!r}")
    factors = [1.0, *(rule.factor for rule in rules)]
    if not all(factor > 0.0 and math.isfinite(factor) for factor in factors):
        raise ValueError("a factor is a positive number")
    if max(factors) > MAX_RATIO * min(factors):
        raise ValueError(f"rates may differ by {MAX_RATIO:g} to 1, these by {max(factors) / min(factors):g} to 1")


LOW = 0.5
"""A score of a metric without a judge below this is the signal "low_lexical"."""
_EXAMINED = 200
_REFUSALS = re.compile(
    r"i(?: am|'m|\u2019m)? (?:sorry|unable|not able)|i (?:can(?:no|'|\u2019)t|do(?: no|n'|n\u2019)t (?:know|have))"
    r"|no (?:information|answer)|(?:das )?wei(?:ß|ss) ich nicht|tut mir leid|leider|ich kann (?:nicht|keine)"
    r"|je (?:suis désolé|ne (?:sais|peux|trouve))|désolé|lo siento|no (?:sé|puedo|tengo)|mi dispiace|non (?:so|posso)"
    r"|desculpe|não (?:sei|posso|tenho)|抱歉|对不起|無法|无法|我不知道|申し訳|わかりません|죄송",
    re.IGNORECASE,
)


class MetricSampler:
    """Decides which metrics a sample gets, by a salted hash of its trace id (`nested_with_otel`: OpenTelemetry's rule)
    or, with `by_conversation`, of its conversation, so that all exchanges of a conversation get the same metrics.
    Samples that stand for a whole conversation are always drawn by it.

    `bias` raises the rate of judged metrics for some exchanges: the first matching rule counts, and the probability is
    stored with the evaluation, so that estimates stay unbiased. Raises ValueError for factors more than 4 to 1 apart.
    """

    def __init__(
        self, salt: str, *, nested_with_otel: bool = False, by_conversation: bool = False, bias: Sequence[Bias] = ()
    ) -> None:
        smallest_rate(1.0, bias)
        self._salt = salt
        self._nested = nested_with_otel
        self._by_conversation = by_conversation
        self._bias = bias

    def keeps(self, sample: Sample, rate: float) -> bool:
        """Whether the sample is among those chosen with probability `rate`."""
        if (conversation := self._conversation(sample)) is not None:
            return keep(conversation, rate, self._salt)
        return keeps(sample.trace_id, sample.id, rate, salt=self._salt, nested_with_otel=self._nested)

    def joint(self, sample: Sample, rate: float) -> float:
        """Return the probability that an exchange is captured and gets a metric of this rate.

        Capture goes by the same hash of the trace, so that the lower of the two rates counts. A conversation is hashed
        for the metrics alone: its rates multiply.
        """
        return rate * sample.rate if self._conversation(sample) is not None else min(rate, sample.rate)

    def lowest(self, base: float) -> float:
        """Return the lowest probability of a judged metric that `rate` gives to any sample."""
        return smallest_rate(base, self._bias) if self._bias and base else base

    def rate(self, sample: Sample, base: float, free: Sequence[Evaluation]) -> float:
        """Return the probability of a judged metric, given the evaluations without a judge (`free`)."""
        if not self._bias or not base:
            return base
        facts = Facts(app=sample.app, model=sample.model, tags=sample.tags, signals=signals_of(sample, free))
        return rate_for(facts, base, self._bias).rate

    def _conversation(self, sample: Sample) -> str | None:
        """The key of the sample's conversation, which no trace id and no session name in the gateway equals."""
        if sample.conversation is None or not (self._by_conversation or sample.transcript):
            return None
        return f"conversation:{sample.conversation}"


def keeps(trace_id: str | None, exchange_id: str, rate: float, *, salt: str, nested_with_otel: bool) -> bool:
    """Whether an exchange is kept; a trace id that is invalid for OpenTelemetry is hashed like any other id."""
    if nested_with_otel and trace_id is not None:
        try:
            return keep_nested_with_otel(trace_id, rate)
        except ValueError:
            pass
    return keep(trace_id or exchange_id, rate, salt)


def signals_of(sample: Sample, free: Sequence[Evaluation]) -> frozenset[str]:
    """Return the signals that a sample may need judging.

    >>> sorted(signals_of(Sample(id="1", started_at=0.0, response="I'm sorry, I don't know."), []))
    ['no_contexts', 'refusal']
    """
    if sample.transcript:
        return frozenset()
    poor = any(isinstance(evaluation.outcome, Score) and evaluation.outcome.value < LOW for evaluation in free)
    refused = _REFUSALS.match(sample.response[:_EXAMINED].lstrip()) is not None
    signals: list[tuple[Signal, bool]] = [
        ("low_lexical", poor),
        ("refusal", refused),
        ("no_contexts", not sample.contexts),
    ]
    return frozenset(name for name, true in signals if true)
