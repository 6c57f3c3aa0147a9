# The types of the monitors' API and of its clients; made from the OpenAPI document by tools/client_types.py.
# Import them below `if TYPE_CHECKING`: this is a stub, and answers are dicts and lists at run time.

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal, NotRequired, Self, TypedDict

from gaugeway.client import Rows

class Ack(TypedDict):
    by: str
    at: float
    comment: str

class Added(TypedDict):
    dataset: DatasetVersion
    added: int
    replaced: int
    known: int
    too_many: int
    left_out: int

class Advice(TypedDict):
    candidate: str
    saved: PassageCost
    command: str
    link: str
    trial: FinishedTrial | None
    text: str

class Alert(TypedDict):
    fingerprint: str
    rule: str
    metric: str
    app: str
    severity: str
    state: Literal["firing", "pending", "resolved"]
    since: float
    finding: Finding
    ended_at: float | None
    mean_before: float | None
    mean_since: float | None
    ci: list[Any] | None
    likely_cause: Literal["generation", "judge", "retrieval", "traffic_mix", "unknown"]
    slice: str
    affected: list[str]
    cause_detail: str
    worst_exchanges: list[str]
    examples: list[Example]
    first_cause: Literal["generation", "judge", "retrieval", "traffic_mix", "unknown"] | None
    recovery: float | None
    recovering_since: float | None
    cause_hop: int | None
    cause_tool: str | None
    cause_source: str | None
    cause_strength: float | None
    cause_evidence: list[str]
    direction: Literal["drop", "rise"] | None
    unwatched: bool
    at_alarm: FoundCause | None
    changes: list[Change] | None
    is_update: bool
    confined_to: str
    mostly: bool

class Amount(TypedDict):
    value: float
    ci_low: float | None
    ci_high: float | None
    n: int

class AnswerCluster(TypedDict):
    name: str
    is_named: bool
    keywords: list[str]
    n: int
    conversations: int
    share: Share
    no_good_answer: Share
    trend: list[TrendStep]
    differs: list[OverRepresented]
    new: NewSince | None
    examples: list[ClusterExample]

class Arm(TypedDict):
    n: int
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    n_eff: float | None
    design_effect: float | None
    clusters: int | None

class ArmReport(TypedDict):
    name: str
    host: str
    changes: list[str]
    tried: int
    answered: int
    not_answered: dict[str, int]
    unscored: dict[str, int]
    usd: float
    judge_usd: float
    result: TrialResult
    losses: list[Loss]

class Bin(TypedDict):
    predicted: float
    observed: Interval

class CaptureInfo(TypedDict):
    source: str
    marker: str | None
    confidence: float | None
    reason: str | None
    parts: list[PromptPart]
    cut: bool
    shortened: bool

class Captured(TypedDict):
    app: str
    window_s: float
    answers: int
    captured: int
    without_question: int
    without_passages: int
    ratio: float
    ci_low: float
    ci_high: float
    audited: int
    agreed: int
    audited_ratio: float | None
    audited_low: float | None
    audited_high: float | None
    differing: list[str]

class Case(TypedDict):
    id: str
    app: str
    question: str
    answer: str
    score: float
    judge: str
    people: str
    reason: str
    evidence: list[dict[str, Any]]

class Change(TypedDict):
    kind: str
    value: str
    replaced: str
    before: float
    since: float
    inseparable: bool
    elsewhere: Literal["", "as before", "hardly worse", "none", "unclear", "worse"]

class ClusterExample(TypedDict):
    id: str
    started_at: float
    question: str
    claim: str

class ClusterReport(TypedDict):
    app: str
    kind: Literal["declines", "failures", "questions"]
    metric: str
    since: float
    until: float
    read: int
    complete: bool
    pending: int
    n: int
    clustered: int
    alone: int
    alpha: float
    clusters: list[AnswerCluster]

class Compared(TypedDict):
    app: str
    metric: str
    champion: Arm
    challenger: Arm
    decision: Literal["not enough data", "roll back", "ship", "within the margin", "differs"]
    difference: float | None
    pairs: int | None
    for_roll_back: float
    for_ship: float
    more: int | None
    needed: int | None
    left_out: int
    reason: str
    ci_low: float | None
    ci_high: float | None
    low: float | None
    high: float | None
    wins: int | None
    losses: int | None
    ties: int | None
    overlap: float | None

class Context(TypedDict):
    text: str
    id: str | None
    score: float | None
    source: str | None
    hop: int | None
    tool: str | None

class ContextCostReport(TypedDict):
    app: str
    since: float
    until: float
    read: int
    complete: bool
    pending: int
    answers: int
    usual_k: int
    most_k: int
    measured: int
    estimated: int
    basis: Literal["claims", "words"] | None
    judged: int
    unnamed: int
    other_sources: int
    positions: list[PassageCost]
    sources: list[PassageCost]
    advice: list[Advice]

class ConversationTurn(TypedDict):
    exchange_id: str
    started_at: float
    app: str
    model: str
    turn: int | None
    hop: int | None
    question: str
    response: str

class DatasetVersion(TypedDict):
    name: str
    version: int
    hash: str
    rows: int
    apps: list[str]
    changed_at: float

class Error(TypedDict):
    status_code: int
    detail: str

class Example(TypedDict):
    id: str
    value: float
    question: str
    answer: str
    faults: list[str]

class Failed(TypedDict):
    error: str
    detail: str

class Finding(TypedDict):
    evidence_log10: float
    baseline: float
    onset: float
    n: int
    estimate: float | None
    interval: list[Any] | None

class FinishedTrial(TypedDict):
    name: str
    candidate: str
    metric: str
    difference: float
    ci_low: float
    ci_high: float
    error: float

class FoundCause(TypedDict):
    at: float
    cause: Literal["generation", "judge", "retrieval", "traffic_mix", "unknown"]
    detail: str
    strength: float | None
    evidence: list[str]
    source: str | None
    mean_since: float | None

class GapExample(TypedDict):
    id: str
    started_at: float
    question: str
    gap: Literal["declined", "low", "no_passages"]

class GapReport(TypedDict):
    app: str
    metric: str
    since: float
    until: float
    read: int
    complete: bool
    pending: int
    questions: int
    gaps: int
    topics: list[TopicGaps]

class GapTrend(TypedDict):
    since: float
    questions: int
    gaps: int

class Group(TypedDict):
    by: str
    name: str
    agreement: Interval

class Interval(TypedDict):
    value: float
    low: float
    high: float
    n: int

class JudgeCheck(TypedDict):
    metric: str
    version: str
    judge: str | None
    truth: str
    labels: int
    left_out: int
    kappa: Interval | None
    groups: list[Group]
    reliability: Reliability
    in_force: Reliability | None
    proposal: Proposal | None
    cases: list[Case]

class Labelled(TypedDict):
    app: str
    metric: str
    source: Literal["rating", "reference"]
    scores: int
    labels: int
    raw: float
    half_width: float
    people: float | None
    corrected_mean: float | None
    ci_low: float | None
    ci_high: float | None
    correlation: float | None
    saving: float | None
    kappa: Interval | None
    sensitivity: Interval | None
    specificity: Interval | None
    needed: int | None
    notes: list[str]

class Links(TypedDict):
    follows: str | None
    gives: list[str]
    length: int
    pair_before: str | None
    pair_given: str | None
    asked_before: str | None
    asked: list[str]
    arguments: list[str]
    same: str | None
    again: bool
    turn: int
    hop: int
    within_turn: bool
    recall: int

class Loss(TypedDict):
    exchange: str
    live: float
    candidate: float

class Mark(TypedDict):
    at: float
    kind: str
    value: str
    slice: str
    until: float | None
    fingerprint: str | None

class Matcher(TypedDict):
    name: Literal["alertname", "app", "metric", "rule", "severity", "slice"]
    op: Literal["!=", "!~", "=", "=~"]
    value: str

class Message(TypedDict):
    role: Literal["assistant", "user"]
    text: str

class MetricResult(TypedDict):
    metric: str
    role: Literal["primary", "reported", "secondary"]
    n: int
    end_alpha: float
    clusters: int
    live: float | None
    candidate: float | None
    difference: float | None
    ratio: float | None
    low: float | None
    high: float | None
    decision: Literal["not worse", "not yet", "worse"]
    superior: bool
    equal: bool
    more: int | None
    more_if_equal: int | None
    saved: float | None
    design_effect: float | None

class NewAck(TypedDict):
    by: str
    comment: NotRequired[str]

class NewLabel(TypedDict):
    metric: str
    label: Literal["fail", "pass", "withdrawn"]
    by: str

class NewMatcher(TypedDict):
    name: Literal["alertname", "app", "metric", "rule", "severity", "slice"]
    op: NotRequired[Literal["!=", "!~", "=", "=~"]]
    value: str

class NewRows(TypedDict):
    exchanges: NotRequired[list[str]]
    alert: NotRequired[str | None]
    labelled: NotRequired[bool]
    app: NotRequired[str | None]
    metric: NotRequired[str | None]
    below: NotRequired[float | None]
    above: NotRequired[float | None]
    since_s: NotRequired[float]
    limit: NotRequired[int]
    by: NotRequired[str]

class NewSilence(TypedDict):
    matchers: list[NewMatcher]
    starts: NotRequired[float | None]
    ends: NotRequired[float | None]
    duration_s: NotRequired[float | None]
    by: str
    comment: NotRequired[str]

class NewSince(TypedDict):
    since: float
    is_first: bool
    before: float
    now: float
    evidence_log10: float

class OverRepresented(TypedDict):
    field: str
    value: str
    in_cluster: float
    in_others: float
    evidence_log10: float
    like_questions: bool

class PassageCost(TypedDict):
    name: str
    answers: int
    tokens: Amount | None
    prompt_share: Amount | None
    usd_per_1000: Amount | None
    rests_on: Amount | None
    rests_only_on: Amount | None

class Point(TypedDict):
    sample_id: str
    started_at: float
    app: str
    model: str
    metric: str
    outcome: Literal["failed", "score", "skipped"]
    value: float | None
    reason: str
    rate: float
    version: str
    judge: str | None
    prompt: str | None
    tags: dict[str, str]
    cluster: str | None
    weight: float | None

class PromptPart(TypedDict):
    role: str
    kind: Literal["instructions", "passage", "question"]
    start: int
    end: int
    message: int
    text: str
    passage: int | None

class Proposal(TypedDict):
    calibration: str
    fitted: int
    before: Reliability
    after: Reliability
    better: bool

class Quality(TypedDict):
    app: str
    metric: str
    n: int
    n_eff: float
    coverage_ratio: float
    slice: str
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    fixed_low: float | None
    fixed_high: float | None
    window_s: float
    method: Literal["hajek", "powered"]
    correlation: float | None
    saving: float | None
    covariate: str | None
    design_effect: float
    alone_mean: float | None
    alone_low: float | None
    alone_high: float | None
    usd_window: float | None
    usd_per_1000: float | None

class ReferenceLine(TypedDict):
    kind: Literal["baseline", "slo"]
    value: float
    rule: str

class Reliability(TypedDict):
    n: int
    ece: float
    low: float
    high: float
    bins: list[Bin]

class Repeatability(TypedDict):
    metric: str
    version: str
    judge: str
    sd: Interval
    flipped: Interval | None
    half_width: float | None

class Sample(TypedDict):
    id: str
    started_at: float
    app: str
    model: str
    question: str | None
    contexts: list[Context]
    context_source: str
    response: str
    reference: str | None
    tags: dict[str, str]
    session: str | None
    trace_id: str | None
    span_id: str | None
    response_id: str | None
    rate: float
    usage: Usage | None
    duration_s: float | None
    skip_reason: str | None
    context_key: str | None
    prompt: str | None
    reference_contexts: list[str]
    reference_context_ids: list[str]
    capture: CaptureInfo | None
    cluster: str | None
    conversation_id: str | None
    turn: int | None
    hop: int | None
    history: list[Message]
    calls: list[ToolCall]
    cost_usd: float | None
    links: Links | None
    transcript: list[Message]
    sampled_whole: bool
    retrieval_s: float | None
    tool_checks: ToolChecks | None
    only_metrics: list[str] | None

class Score(TypedDict):
    value: float
    reason: str
    evidence: list[dict[str, Any]]

class SeriesAnswer(TypedDict):
    app: str
    metric: str
    by: str
    lower_is_better: bool
    since: float
    until: float
    asked_since: float
    step_s: float
    step_enlarged: bool
    complete: bool
    read_since: float
    groups: list[SeriesGroup]
    more_groups: int
    lines: list[ReferenceLine]
    marks: list[Mark]
    more_marks: int

class SeriesGroup(TypedDict):
    slice: str
    n: int
    points: list[SeriesPoint]
    total: SeriesPoint

class SeriesPoint(TypedDict):
    at: float
    n: int
    n_eff: float
    mean: float | None
    ci_low: float | None
    ci_high: float | None

class Share(TypedDict):
    ratio: float
    ci_low: float
    ci_high: float
    n: int

class ShownAlertNotes(TypedDict):
    at: float
    by: str
    text: str

class ShownAlert(TypedDict):
    title: str
    summary: str
    assignee: str | None
    notes: list[ShownAlertNotes]

class Silence(TypedDict):
    id: str
    matchers: list[Matcher]
    starts: float
    ends: float
    by: str
    comment: str
    removed: bool

class Skipped(TypedDict):
    reason: str

class SliceResult(TypedDict):
    facet: str
    value: str
    n: int
    live: float
    candidate: float
    difference: float
    low: float
    high: float

class Source(TypedDict):
    name: str
    uses: int
    share: Share | None
    in_bad: Share | None
    in_good: Share | None
    judged: int
    cited: int | None
    never_used: int | None
    checked: int
    contradicted: int | None
    matched: int
    mean_with: float | None
    mean_without: float | None
    effect: float | None
    effect_ci_low: float | None
    effect_ci_high: float | None
    evidence_log10: float
    named: bool
    first_used: float
    last_used: float
    trend: list[TrendPart]
    worst_exchanges: list[str]

class SourceReport(TypedDict):
    app: str
    metric: str
    lower_is_better: bool
    since: float
    until: float
    read: int
    complete: bool
    pending: int
    with_passages: int
    scored: int
    bad: int
    judged: int
    alpha: float
    sources: list[Source]
    other_sources: int
    other_uses: int

class Status(TypedDict):
    code: int
    message: str

class StoredTemplate(TypedDict):
    app: str
    version: str
    kind: str
    literals: list[str]
    slots: list[str]
    split: dict[str, Any]
    seen: int
    learned_at: float
    state: Literal["asked", "confirmed", "learned", "marked", "rejected"]
    stale: bool

class StreamStatus(TypedDict):
    rule: str
    metric: str
    app: str
    m0: float | None
    evidence_log10: float
    state: Literal["firing", "pending", "quiet"]
    closed_until: float
    slice: str
    learned: int
    needed: int
    margin: float
    severity: str
    named: float
    design_effect: float

class Supplement(TypedDict):
    id: str
    received_at: float
    source: str
    exchange_id: str | None
    key: str | None
    trace_id: str | None
    question: str | None
    contexts: list[Context] | None
    reference: str | None
    rating: float | None
    label: str | None
    comment: str | None
    app: str | None
    calls: list[ToolCall] | None
    ended_at: float | None
    retrieval_s: float | None
    by: str | None

class Thread(TypedDict):
    key: str
    session: str
    app: str
    opening: str
    turns: int
    exchanges: int
    last_at: float
    unanswered: str
    worst: Point | None

class ToolCall(TypedDict):
    name: str
    arguments: str
    hop: int | None

class ToolChecks(TypedDict):
    calls: int
    offered: int
    unknown: int
    validated: int
    invalid: int
    repeated: int
    results: int
    empty_results: int

class TopicGaps(TypedDict):
    topic: str
    questions: int
    share: Share | None
    gaps: int
    ratio: Share | None
    declined: int
    no_passages: int
    low: int
    trend: list[GapTrend]
    examples: list[GapExample]

class TrendPart(TypedDict):
    since: float
    uses: int
    mean: float | None

class TrendStep(TypedDict):
    since: float
    n: int
    of: int

class TrialReport(TypedDict):
    name: str
    app: str
    state: str
    why: str
    verdict: Literal["do not ship", "not yet", "ship"]
    primary: str
    margin: float
    alpha: float
    started_at: float
    until: float
    usd: float
    judge_usd: float
    waiting: int
    left_out: dict[str, int]
    arms: list[ArmReport]
    by: str | None
    watch: bool

class TrialResult(TypedDict):
    verdict: Literal["do not ship", "not yet", "ship"]
    metrics: list[MetricResult]
    decided_by: str | None
    decided_at: float | None
    superior: bool
    equal: bool
    more: int | None
    slices: list[SliceResult]
    slices_tested: int

class UndeliveredNotification(TypedDict):
    id: str
    notifier: str
    alert: Alert
    error: str
    attempts: int
    since: float
    at: float

class Usage(TypedDict):
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None

class Version(TypedDict):
    app: str
    kind: str
    value: str
    first_seen: float
    exchanges: int

class AlertAnswer(Alert): ...
class AlertsRow(Alert): ...

class CompareAnswer(TypedDict):
    by: str
    a: str
    b: str
    delta: float
    alpha: float
    decision: Literal["ship", "roll back", "within the margin", "not enough data"]
    partial: bool
    rows: list[Compared]

class DatasetAnswer(DatasetVersion):
    records: list[dict[str, Any]]

class ExchangeAnswerEvaluationsOutcome0(Score):
    kind: Literal["score"]

class ExchangeAnswerEvaluationsOutcome1(Skipped):
    kind: Literal["skipped"]

class ExchangeAnswerEvaluationsOutcome2(Failed):
    kind: Literal["failed"]

class ExchangeAnswerEvaluations(TypedDict):
    sample_id: str
    metric: str
    version: str
    outcome: ExchangeAnswerEvaluationsOutcome0 | ExchangeAnswerEvaluationsOutcome1 | ExchangeAnswerEvaluationsOutcome2
    judge: str | None
    seconds: float
    cost_usd: float
    rate: float
    half_width: float | None

class ExchangeAnswer(TypedDict):
    sample: Sample
    evaluations: list[ExchangeAnswerEvaluations]
    supplements: list[Supplement]

class ExchangesRow(Point):
    half_width: float | None

class LabelAnswer(TypedDict):
    exchange_id: str
    metric: str
    label: Literal["pass", "fail", "withdrawn"]

class MetricsRow(Quality):
    state: Literal["unwatched", "quiet", "pending", "firing"]
    usd: NotRequired[float]

class SilenceAnswer(Silence):
    state: Literal["pending", "active", "expired"]

class SilencesRow(Silence):
    state: Literal["pending", "active", "expired"]

class SourcesAnswer(SourceReport):
    total_sources: int

class StatusAnswerJudge0(TypedDict):
    model: str
    mode: str

class StatusAnswerMetrics(TypedDict):
    name: str
    version: str
    judge: str | None
    rate: float
    threshold: float
    objective: float | None
    lower_is_better: bool

class StatusAnswerSignals(TypedDict):
    name: str
    meaning: str
    lower_is_better: bool

class StatusAnswerQueue(TypedDict):
    ready: int
    leased: int
    dead_letters: int
    trimmed: int

class StatusAnswer(TypedDict):
    version: str
    judge: StatusAnswerJudge0 | None
    notes: list[str]
    metrics: list[StatusAnswerMetrics]
    judge_repeats: list[Repeatability]
    signals: list[StatusAnswerSignals]
    queue: StatusAnswerQueue
    rules: list[StreamStatus]

class Client:
    url: str
    def __init__(self, url: str = ..., *, token: str | None = None, timeout_s: float = 30.0) -> None: ...
    def acknowledge(self, fingerprint: str, *, by: str, comment: str | None = ...) -> Ack: ...
    def add_to_dataset(
        self,
        name: str,
        *,
        exchanges: Sequence[str] | None = ...,
        alert: str | None = ...,
        labelled: bool | None = ...,
        app: str | None = ...,
        metric: str | None = ...,
        below: float | None = ...,
        above: float | None = ...,
        since_s: float | None = ...,
        limit: int | None = ...,
        by: str | None = ...,
    ) -> Added: ...
    def alert(self, fingerprint: str) -> AlertAnswer: ...
    def alerts(self) -> Rows[AlertsRow]: ...
    def capture(self) -> Rows[Captured]: ...
    def clusters(
        self,
        *,
        app: str,
        kind: Literal["failures", "declines", "questions"],
        metric: str | None = ...,
        since: str | None = ...,
        until: str | None = ...,
    ) -> ClusterReport: ...
    def compare(
        self,
        *,
        by: str,
        a: str,
        b: str,
        app: str | None = ...,
        metric: Sequence[str] | None = ...,
        since_s: float | None = ...,
        delta: float | None = ...,
        alpha: float | None = ...,
    ) -> CompareAnswer: ...
    def context_costs(
        self, *, app: str, metric: str | None = ..., since_s: float | None = ..., until: float | None = ...
    ) -> ContextCostReport: ...
    def conversation(self, conversation_id: str, *, app: str | None = ...) -> Rows[ConversationTurn]: ...
    def conversations(
        self, *, app: str | None = ..., since_s: float | None = ..., limit: int | None = ...
    ) -> Rows[Thread]: ...
    def dataset(self, name: str) -> DatasetAnswer: ...
    def datasets(self, *, app: str | None = ...) -> Rows[DatasetVersion]: ...
    def exchange(self, exchange_id: str) -> ExchangeAnswer: ...
    def exchanges(
        self,
        *,
        app: str | None = ...,
        metric: str | None = ...,
        model: str | None = ...,
        since_s: float | None = ...,
        until: float | None = ...,
        order: str | None = ...,
        limit: int | None = ...,
    ) -> Rows[ExchangesRow]: ...
    def judge_check(
        self, *, metric: str | None = ..., app: str | None = ..., truth: str | None = ..., since_s: float | None = ...
    ) -> Rows[JudgeCheck]: ...
    def label(
        self, exchange_id: str, *, metric: str, label: Literal["fail", "pass", "withdrawn"], by: str
    ) -> LabelAnswer: ...
    def labels(
        self,
        *,
        app: str | None = ...,
        metric: str | None = ...,
        since_s: float | None = ...,
        half_width: float | None = ...,
    ) -> Rows[Labelled]: ...
    def metrics(self) -> Rows[MetricsRow]: ...
    def series(
        self,
        *,
        app: str,
        metric: str,
        by: str | None = ...,
        since: str | None = ...,
        until: str | None = ...,
        step: str | None = ...,
    ) -> SeriesAnswer: ...
    def silence(
        self,
        *,
        matchers: Sequence[NewMatcher],
        by: str,
        duration_s: float | None = ...,
        starts: float | None = ...,
        ends: float | None = ...,
        comment: str | None = ...,
    ) -> SilenceAnswer: ...
    def silences(self) -> Rows[SilencesRow]: ...
    def sources(
        self,
        *,
        app: str,
        metric: str | None = ...,
        source: str | None = ...,
        since_s: float | None = ...,
        until: float | None = ...,
        order: str | None = ...,
        limit: int | None = ...,
    ) -> SourcesAnswer: ...
    def start_trial(self, **more: Any) -> TrialReport: ...
    def status(self) -> StatusAnswer: ...
    def stop_trial(self, name: str) -> TrialReport: ...
    def templates(self, *, app: str | None = ...) -> Rows[StoredTemplate]: ...
    def topics(
        self, *, app: str, metric: str | None = ..., since_s: float | None = ..., until: float | None = ...
    ) -> GapReport: ...
    def trial(self, name: str) -> TrialReport: ...
    def trials(self) -> Rows[TrialReport]: ...
    def unacknowledge(self, fingerprint: str) -> None: ...
    def unsilence(self, silence_id: str) -> None: ...
    def versions(self) -> Rows[Version]: ...
    def request(self, method: str, path: str, **given: Any) -> Any: ...
    def each_exchange(
        self,
        *,
        since_s: float = ...,
        limit: int | None = None,
        app: str | None = None,
        metric: str | None = None,
        model: str | None = None,
    ) -> Iterator[ExchangesRow]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

class AsyncClient:
    url: str
    def __init__(self, url: str = ..., *, token: str | None = None, timeout_s: float = 30.0) -> None: ...
    async def acknowledge(self, fingerprint: str, *, by: str, comment: str | None = ...) -> Ack: ...
    async def add_to_dataset(
        self,
        name: str,
        *,
        exchanges: Sequence[str] | None = ...,
        alert: str | None = ...,
        labelled: bool | None = ...,
        app: str | None = ...,
        metric: str | None = ...,
        below: float | None = ...,
        above: float | None = ...,
        since_s: float | None = ...,
        limit: int | None = ...,
        by: str | None = ...,
    ) -> Added: ...
    async def alert(self, fingerprint: str) -> AlertAnswer: ...
    async def alerts(self) -> Rows[AlertsRow]: ...
    async def capture(self) -> Rows[Captured]: ...
    async def clusters(
        self,
        *,
        app: str,
        kind: Literal["failures", "declines", "questions"],
        metric: str | None = ...,
        since: str | None = ...,
        until: str | None = ...,
    ) -> ClusterReport: ...
    async def compare(
        self,
        *,
        by: str,
        a: str,
        b: str,
        app: str | None = ...,
        metric: Sequence[str] | None = ...,
        since_s: float | None = ...,
        delta: float | None = ...,
        alpha: float | None = ...,
    ) -> CompareAnswer: ...
    async def context_costs(
        self, *, app: str, metric: str | None = ..., since_s: float | None = ..., until: float | None = ...
    ) -> ContextCostReport: ...
    async def conversation(self, conversation_id: str, *, app: str | None = ...) -> Rows[ConversationTurn]: ...
    async def conversations(
        self, *, app: str | None = ..., since_s: float | None = ..., limit: int | None = ...
    ) -> Rows[Thread]: ...
    async def dataset(self, name: str) -> DatasetAnswer: ...
    async def datasets(self, *, app: str | None = ...) -> Rows[DatasetVersion]: ...
    async def exchange(self, exchange_id: str) -> ExchangeAnswer: ...
    async def exchanges(
        self,
        *,
        app: str | None = ...,
        metric: str | None = ...,
        model: str | None = ...,
        since_s: float | None = ...,
        until: float | None = ...,
        order: str | None = ...,
        limit: int | None = ...,
    ) -> Rows[ExchangesRow]: ...
    async def judge_check(
        self, *, metric: str | None = ..., app: str | None = ..., truth: str | None = ..., since_s: float | None = ...
    ) -> Rows[JudgeCheck]: ...
    async def label(
        self, exchange_id: str, *, metric: str, label: Literal["fail", "pass", "withdrawn"], by: str
    ) -> LabelAnswer: ...
    async def labels(
        self,
        *,
        app: str | None = ...,
        metric: str | None = ...,
        since_s: float | None = ...,
        half_width: float | None = ...,
    ) -> Rows[Labelled]: ...
    async def metrics(self) -> Rows[MetricsRow]: ...
    async def series(
        self,
        *,
        app: str,
        metric: str,
        by: str | None = ...,
        since: str | None = ...,
        until: str | None = ...,
        step: str | None = ...,
    ) -> SeriesAnswer: ...
    async def silence(
        self,
        *,
        matchers: Sequence[NewMatcher],
        by: str,
        duration_s: float | None = ...,
        starts: float | None = ...,
        ends: float | None = ...,
        comment: str | None = ...,
    ) -> SilenceAnswer: ...
    async def silences(self) -> Rows[SilencesRow]: ...
    async def sources(
        self,
        *,
        app: str,
        metric: str | None = ...,
        source: str | None = ...,
        since_s: float | None = ...,
        until: float | None = ...,
        order: str | None = ...,
        limit: int | None = ...,
    ) -> SourcesAnswer: ...
    async def start_trial(self, **more: Any) -> TrialReport: ...
    async def status(self) -> StatusAnswer: ...
    async def stop_trial(self, name: str) -> TrialReport: ...
    async def templates(self, *, app: str | None = ...) -> Rows[StoredTemplate]: ...
    async def topics(
        self, *, app: str, metric: str | None = ..., since_s: float | None = ..., until: float | None = ...
    ) -> GapReport: ...
    async def trial(self, name: str) -> TrialReport: ...
    async def trials(self) -> Rows[TrialReport]: ...
    async def unacknowledge(self, fingerprint: str) -> None: ...
    async def unsilence(self, silence_id: str) -> None: ...
    async def versions(self) -> Rows[Version]: ...
    async def request(self, method: str, path: str, **given: Any) -> Any: ...
    def each_exchange(
        self,
        *,
        since_s: float = ...,
        limit: int | None = None,
        app: str | None = None,
        metric: str | None = None,
        model: str | None = None,
    ) -> AsyncIterator[ExchangesRow]: ...
    async def aclose(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...
