"""The records that all other modules share: frozen, and independent of the rest of the package."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

TOOL_SOURCES = ("tools", "results")
"""The `context_source` of passages that tools returned."""

PROMPT_SCHEME = "2-"
"""Begins a prompt version; earlier releases, which hashed other parts of a prompt, began it with its first digit."""


def same_scheme(prompts: Iterable[str | None]) -> bool:
    """Whether prompt versions can be compared: a prompt has another version in each scheme.

    >>> same_scheme(["2-9f3a", None, "2-77b0"]), same_scheme(["2-9f3a", "51c2"])
    (True, False)
    """
    return len({prompt.startswith(PROMPT_SCHEME) for prompt in prompts if prompt is not None}) <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One retrieved passage.

    `hop` is the exchange of the user's turn, from 1, whose response called the tool that retrieved it, and `tool` that
    tool's name; None where they are unknown, and for apps without tools.
    """

    text: str
    id: str | None = None
    score: float | None = None
    source: str | None = None
    hop: int | None = None
    tool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens that the upstream reported for one exchange; None where it reported none.

    `cached_tokens` were read from the provider's cache, `cache_write_tokens` written to it; both are part of
    `input_tokens`, except at Anthropic's `/v1/messages`. `reasoning_tokens` are part of `output_tokens`.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class PromptPart(msgspec.Struct, frozen=True, kw_only=True):  # ten for every exchange: made ten times as fast
    """A stretch of a request's text: instructions, the question, or a passage.

    `message` is the index of its message in the conversation, for chat requests in `messages`; a system text outside
    the messages (Anthropic's `system`, `instructions` of the Responses API) comes first. `start` and `end` count
    characters of the message's text. `passage` is an index into the contexts that were found; instructions with one
    are no instructions, but belong to that passage's record (its number, title, source, id, score), as older releases
    know no such kind. `text` is that of instructions; the texts of question and passages are in the sample.
    """

    role: str
    kind: Literal["instructions", "question", "passage"]
    start: int
    end: int
    message: int = 0
    text: str = ""
    passage: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureInfo:
    """How the question and the passages were found in a request.

    `source` names the extractor, as the sample's `context_source` did before any supplement was joined.
    `confidence` lies in [0, 1], and is None where no extractor recognised the request. `parts` are in the order of the
    text; what is found nowhere word for word (a field of JSON, a passage out of the response) has none. `cut` says that
    passages were left out or shortened, `shortened` that parts or words of instructions were.
    """

    source: str = "none"
    marker: str | None = None
    confidence: float | None = None
    reason: str | None = None
    parts: tuple[PromptPart, ...] = ()
    cut: bool = False
    shortened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One earlier message of a conversation, of the user or of the model; `text` may have been shortened."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool that the model called; `arguments` is JSON text, which may have been shortened.

    `hop` is the exchange of the turn whose response called it, on the answer that all calls of the turn led to.
    """

    name: str
    arguments: str = ""
    hop: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChecks:
    """What the tools of one exchange show; all are counts.

    `calls` are the tools that the response calls, `offered` the tools in the request. Of the calls, `unknown` name none
    of these, `validated` were compared with the tool's JSON schema and `invalid` of them do not fit it, and `repeated`
    are the same as an earlier one of the turn. `results` are the tool results since the model's last message, of which
    `empty_results` hold nothing.
    """

    calls: int = 0
    offered: int = 0
    unknown: int = 0
    validated: int = 0
    invalid: int = 0
    repeated: int = 0
    results: int = 0
    empty_results: int = 0


class Links(msgspec.Struct, frozen=True, kw_only=True):  # one for every exchange: made ten times as fast
    """Salted hashes by which the exchanges of a conversation are joined. A hash begins with its kind and a colon.

    An item is what the model said at once: a text ("t:"), calls of tools ("c:"), or a response's id ("r:"). `follows`
    is the last item in the request, `gives` are the items that a later request may show of this exchange. `length` is
    the characters of the item followed, calls with random ids count as long. The others tell apart exchanges that gave
    the same item: `pair_before` and `pair_given` are of the last two items, `asked_before` is of the user's text before
    the item followed, `asked` of the user's last text and of the question. `arguments` are of the texts in the
    arguments of called tools. `same` is equal for the same request sent again, `again` says that this one was.

    `turn` and `hop` count from 1 in the request alone; with `within_turn` the user said nothing since the last item.
    `recall` is how many earlier messages are wanted that the request names by an id only.
    """

    follows: str | None = None
    gives: tuple[str, ...] = ()
    length: int = 0
    pair_before: str | None = None
    pair_given: str | None = None
    asked_before: str | None = None
    asked: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    same: str | None = None
    again: bool = False
    turn: int = 1
    hop: int = 1
    within_turn: bool = False
    recall: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An exchange chosen for evaluation.

    `started_at` is Unix time in seconds. `rate` is the probability, in (0, 1], with which this exchange was chosen.
    `context_source` names the extractor that found the contexts; "none" means that the request shows no retrieval,
    any other name without contexts that the retrieval found nothing. `skip_reason` says why the response cannot be
    judged (an error, a truncated stream, a tool call ...); None when it can. `context_key` is the client's key for
    this exchange, under which a `Supplement` may arrive. `prompt` is the prompt's version: a short hash of the
    instructions without what varies between requests. `reference_contexts` and `reference_context_ids` are the
    passages that should have been retrieved, from a data set. `capture` says how question and contexts were found
    in the request; None for samples of older releases and of data sets. `cluster` names what its scores may be
    correlated with, the closest first, separated by spaces: salted hashes of the session ("s:..."), the end user
    ("u:..."), the key ("k:...") and the question's words ("q:...").

    `conversation` is the id of the conversation: a hash of the session, or the id of its first known exchange; None
    until the monitors looked for it, and for data sets. `turn` counts the user's turns in it from 1, `hop` the
    exchanges that answer one turn. `history` holds the messages before the question, the oldest first. `calls` are the
    tools that the response calls; of an answer, all that were called for it, or the tools and agents that spans name.
    `cost_usd` is the cost of the exchange at the gateway's prices; None without one. `links` are removed once the
    sample is joined to its conversation. `sampled_whole`: the exchange was chosen with all others of its session.
    `duration_s` is how long the model's answer took, `retrieval_s` the retriever's spans of the exchange, what overlaps
    counted once; None where it is unknown.
    `tool_checks` are None without tools. `only_metrics` are the names of the metrics that score a record of a data set;
    None: all.

    A sample with a `transcript` stands for a whole conversation that has ended: `transcript` holds its messages, the
    oldest first, and the sample has no question, response or contexts of its own.
    """

    id: str
    started_at: float
    app: str = "default"
    model: str = "unknown"
    question: str | None = None
    contexts: tuple[Context, ...] = ()
    context_source: str = "none"
    response: str = ""
    reference: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    session: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    response_id: str | None = None
    rate: float = 1.0
    usage: Usage | None = None
    duration_s: float | None = None
    skip_reason: str | None = None
    context_key: str | None = None
    prompt: str | None = None
    reference_contexts: tuple[str, ...] = ()
    reference_context_ids: tuple[str, ...] = ()
    capture: CaptureInfo | None = None
    cluster: str | None = None
    conversation: str | None = None
    turn: int | None = None
    hop: int | None = None
    history: tuple[Message, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    cost_usd: float | None = None
    links: Links | None = None
    transcript: tuple[Message, ...] = ()
    sampled_whole: bool = False
    retrieval_s: float | None = None
    tool_checks: ToolChecks | None = None
    only_metrics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Supplement:
    """Contexts, feedback or a span sent separately from its exchange, and joined by exchange id, key or trace id.

    `id` is its identity: storing it twice changes nothing. `received_at` is Unix time in seconds. `source` is the
    channel: "contexts" and "feedback" are the two requests of that name, "spans" an OpenTelemetry span of a retriever,
    a tool or an agent. `rating` lies in [0, 1]. `app` restricts it to exchanges of the sender's app; None allows any
    app. `calls` are the tool or agent whose span it is, `ended_at` is Unix time at which that span ended.
    `retrieval_s` is how long a retriever's span took, from `received_at` on. `by` is the unverified name of the person
    who gave a label on the page; their later label of the same answer takes the place of an earlier one.
    """

    id: str
    received_at: float
    source: str
    exchange_id: str | None = None
    key: str | None = None
    trace_id: str | None = None
    question: str | None = None
    contexts: tuple[Context, ...] | None = None
    reference: str | None = None
    rating: float | None = None
    label: str | None = None
    comment: str | None = None
    app: str | None = None
    calls: tuple[ToolCall, ...] | None = None
    ended_at: float | None = None
    retrieval_s: float | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """A score in [0, 1], its reason, and the evidence it was computed from.

    Raises ValueError for a value that is not a finite number in [0, 1].
    """

    value: float
    reason: str = ""
    evidence: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and 0.0 <= self.value <= 1.0):
            raise ValueError(f"a score lies in [0, 1], got {self.value!r}")


@dataclass(frozen=True, slots=True)
class Skipped:
    """The metric does not apply. `reason` is a short snake_case word from a closed set, used as a label."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The metric could not be computed. `error` is a short snake_case word (a label), `detail` is for people."""

    error: str
    detail: str = ""


Outcome: TypeAlias = Score | Skipped | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One metric's outcome for one sample. Identity: (sample_id, metric, version); storing it twice changes nothing.

    `rate` is the probability with which this metric was computed for this exchange (capture and metric rate combined).
    `weight`, in (0, 1], is the lowest rate that any exchange of the app could have had at that moment over this one's,
    for alerts; None in evaluations of older releases.
    """

    sample_id: str
    metric: str
    version: str
    outcome: Outcome
    judge: str | None = None
    seconds: float = 0.0
    cost_usd: float = 0.0
    rate: float = 1.0
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The evidence of a detector at its decision.

    `evidence_log10` is log10 of the e-value over its alarm threshold (0 = alarm). `baseline` is the mean the null
    hypothesis allows, `onset` the Unix time at which the change most likely began, `n` the scores seen since then.
    The engine keeps all values on the "higher is better" scale; `Alert.on_own_scale` returns them on the metric's own.
    """

    evidence_log10: float
    baseline: float
    onset: float
    n: int
    estimate: float | None = None
    interval: tuple[float, float] | None = None


_DIGITS = 9
"""Decimals of a mean that is shown: what is beyond is an error of floating-point arithmetic."""
JUDGE_BLIND = "judge_blind"
"""The built-in rule that fires while the judge fails."""
NOT_JUDGED = "no metric is judged any more"
"""Why an alert of that rule resolved although the judge did not answer."""

AlertState: TypeAlias = Literal["pending", "firing", "resolved"]
Cause: TypeAlias = Literal["retrieval", "generation", "judge", "traffic_mix", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One of the worst exchanges of an alert: its score, and its texts and faults where alerts may quote them."""

    id: str
    value: float
    question: str = ""
    answer: str = ""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCause:
    """A cause with its numbers, as it was found from the scores before Unix time `at`; `mean_since` was known then."""

    at: float
    cause: Cause
    detail: str = ""
    strength: float | None = None
    evidence: tuple[str, ...] = ()
    source: str | None = None
    mean_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What took over answers with an onset: `kind` is model, prompt, tag:NAME, source, or documents (new ones).

    `before` and `since` are its shares of the answers, in [0, 1]; `replaced` is the version it took the place of, ""
    where others remain. `inseparable`: another change came in the same answers. `elsewhere` is how its answers outside
    the part that fell did: "none" are outside; "unclear" are too few of them to say; "" without such a part.
    """

    kind: str
    value: str
    replaced: str = ""
    before: float = 0.0
    since: float = 1.0
    inseparable: bool = False
    elsewhere: Literal["", "none", "worse", "hardly worse", "as before", "unclear"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A quality drop, from pending to resolved. `fingerprint` stays the same in all three states.

    `slice` is the part of the app's traffic concerned, as `name=value` ("model=gpt-x", "tag:tenant=a"), or "" for all
    of it; `affected` lists the slices with evidence of a drop of their own. `cause_detail` is the cause in a sentence;
    `examples` are the worst exchanges with their faults, those that got `cause_source` first. `first_cause` is the
    first cause other than "unknown" that was found. `cause_strength`, in [0, 1], is the probability of the cause under
    stated priors, None for "unknown", and `cause_evidence` names what it rests on. `cause_hop` and `cause_tool` name
    the step of an agent that retrieves worse, where only one does; `cause_source` is the source of passages that most
    of the drop is confined to. `direction` is that of the metric on its own scale; None in alerts of older releases,
    which are about its worse direction. While it fires, `recovery` is the share in [0, 1] of the evidence for a
    recovery, and `recovering_since` the time from which on that evidence has grown; exchanges after it do not change
    the cause. `at_alarm` is the cause as the scores until the alarm show it; None in alerts of older releases.
    `unwatched`: it ended because no rule watches this any more, which says nothing about a recovery. `changes` are the
    versions that took over answers with the onset, None until the cause was looked for. `is_update` marks a message
    about an alert that was sent before, without its cause. `confined_to` is the slice that fell (`mostly`, or only).
    """

    fingerprint: str
    rule: str
    metric: str
    app: str
    severity: str
    state: AlertState
    since: float
    finding: Finding
    ended_at: float | None = None
    mean_before: float | None = None
    mean_since: float | None = None
    ci: tuple[float, float] | None = None
    likely_cause: Cause = "unknown"
    slice: str = ""
    affected: tuple[str, ...] = ()
    cause_detail: str = ""
    worst_exchanges: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    first_cause: Cause | None = None
    recovery: float | None = None
    recovering_since: float | None = None
    cause_hop: int | None = None
    cause_tool: str | None = None
    cause_source: str | None = None
    cause_strength: float | None = None
    cause_evidence: tuple[str, ...] = ()
    direction: Literal["drop", "rise"] | None = None
    unwatched: bool = False
    at_alarm: FoundCause | None = None
    changes: tuple[Change, ...] | None = None
    is_update: bool = False
    confined_to: str = ""
    mostly: bool = False

    def on_own_scale(self) -> Alert:
        """Return the alert with its finding on the metric's own scale, like the other means."""
        found, flips = self.finding, self.direction == "rise"
        baseline, estimate, interval = (found.baseline, found.estimate, found.interval)
        if flips:
            baseline = 1.0 - baseline
            estimate = None if estimate is None else 1.0 - estimate
            interval = None if interval is None else (1.0 - interval[1], 1.0 - interval[0])
        return replace(
            self,
            finding=replace(
                found,
                baseline=round(baseline, _DIGITS),
                estimate=None if estimate is None else round(estimate, _DIGITS),
                interval=None if interval is None else (round(interval[0], _DIGITS), round(interval[1], _DIGITS)),
            ),
        )


_K = TypeVar("_K")
_T = TypeVar("_T")


def changed(record: _T, **changes: Any) -> _T:
    """Return the record with other values, as `dataclasses.replace`; the record itself where none is another object.

    >>> message = Message(role="user", text="a")
    >>> changed(message, text="b"), changed(message, role="user") is message
    (Message(role='user', text='b'), True)
    """
    for name, value in changes.items():
        if getattr(record, name) is not value:
            if isinstance(record, msgspec.Struct):
                return msgspec.structs.replace(record, **changes)
            return replace(record, **changes)  # type: ignore[type-var]
    return record


def each_changed(change: Callable[[_T], _T], records: tuple[_T, ...]) -> tuple[_T, ...]:
    """Change each record; return the tuple itself where none became another object.

    >>> names = ("a", "b")
    >>> each_changed(str, names) is names
    True
    """
    if not records:
        return records
    found = tuple(map(change, records))
    return records if all(map(is_, found, records)) else found


def grouped(pairs: Iterable[tuple[_K, _T]]) -> dict[_K, list[_T]]:
    """Return the values of each key, both in their order."""
    found: dict[_K, list[_T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
