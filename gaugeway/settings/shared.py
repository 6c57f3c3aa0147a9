"""The configuration of the evaluation plane, and the tables both planes share."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec

from gaugeway import settings
from gaugeway.sampling import Bias as Bias  # noqa: PLC0414 - a table of the configuration
from gaugeway.settings import endpoints
from gaugeway.signals import Direction
from gaugeway.signals import Name as SignalName

Rate = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
_HTTP_URL = settings.in_form("^https?://[^/]", "a URL that starts with http:// or https://")
_MAP = settings.in_form("^(isotonic|platt) [0-9a-f]{8}:( -?[0-9.]+){2,}$", "a map that `gaugeway judge check` proposed")
MAX_AUDITS = 50
"""Most exchanges of all apps, drawn in a day, of which the judge audits the capture."""
AuditsPerDay = Annotated[int, msgspec.Meta(ge=0, le=MAX_AUDITS)]
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
Kind: TypeAlias = Literal["lettucedetect", "minicheck", "classify", "onnx"]
Api: TypeAlias = Literal["chat", "spans", "tokens", "predict", "classify"]

APIS: dict[Kind, tuple[Api, ...]] = {
    "lettucedetect": ("chat", "spans", "tokens"),
    "minicheck": ("chat",),
    "classify": ("predict", "classify"),
    "onnx": (),
}
"""Kind -> the APIs that it can speak, the default first."""
DOCUMENT_CHARS: dict[tuple[Kind, Api | None], int] = {
    ("lettucedetect", "chat"): 60_000,
    ("lettucedetect", "spans"): 12_000,
    ("lettucedetect", "tokens"): 12_000,
    ("minicheck", "chat"): 60_000,
    ("classify", "predict"): 6_000,
    ("classify", "classify"): 6_000,
    ("onnx", None): 6_000,
}
"""Characters of passages that are checked at once: what the published models of each kind can read."""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `gaugeway.toml`; a key that is not a field is an error.

    Where the table `takes_options`, such keys are the options of an extension, which checks them: its field `options`.
    """

    takes_options: ClassVar[bool] = False


class Monitors(Table, frozen=True):
    """`[monitors]`: the evaluation process and its admin port.

    A sample whose contexts are sent separately (a context key, or spans with `otlp_receiver`) waits up to
    `join_window_s` for them before it is evaluated without; 0 disables waiting. `replica` identifies this process among
    those with the same store; None stands for host name and port. The page reads counts from the admin ports
    `gateways`; None: that of `[gateway]`. `trusted_proxies` are addresses or networks whose `X-Forwarded-For` is used.
    A conversation is over after `conversation_silence_s` without an exchange. `workers` processes score, each
    `concurrency` judged samples at a time.
    """

    host: str = "127.0.0.1"
    port: Port = 9465
    token: str | None = None
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    concurrency: Count = 8
    window_s: Positive = 3600.0
    join_window_s: Annotated[float, msgspec.Meta(ge=0.0)] = 15.0
    otlp_receiver: bool = False
    public_url: Annotated[str, _HTTP_URL] | None = None
    grafana_url: Annotated[str, _HTTP_URL] | None = None
    replica: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    gateways: tuple[Annotated[str, _HTTP_URL], ...] | None = None
    trusted_proxies: tuple[str, ...] = ()
    conversation_silence_s: Annotated[float, msgspec.Meta(ge=1.0, le=86_400.0)] = 900.0


class Price(Table, frozen=True):
    """`[judge.prices."PATTERN"]`: USD for `per` tokens of the models that match.

    Without `cached`, cached input tokens cost what the others cost.

    >>> round(Price(input=0.40, output=1.60).usd(1000, 500), 9)
    0.0012
    >>> round(Price(input=0.0004, output=0.0016, per=1000).usd(1000, 500), 9)
    0.0012
    """

    input: Annotated[float, msgspec.Meta(ge=0.0)]
    output: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    cached: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    per: Literal[1000, 1_000_000] = 1_000_000

    def usd(self, input_tokens: int, output_tokens: int, *, cached_tokens: int = 0) -> float:
        """Return the cost of one call; `cached_tokens` are part of `input_tokens`."""
        cached = min(cached_tokens, input_tokens)
        rate = self.input if self.cached is None else self.cached
        return ((input_tokens - cached) * self.input + cached * rate + output_tokens * self.output) / self.per


class PriceTable:
    """Prices by model name or shell pattern (`*`, `?`, `[...]`).

    An exact name wins over any pattern; of several patterns that match, the longest one wins.

    >>> prices = PriceTable({"gpt-*": Price(input=2.0, output=8.0), "gpt-6-luna*": Price(input=0.1, output=0.5)})
    >>> prices.of("gpt-6-luna-mini").input, prices.of("gpt-5").input, prices.of("other")
    (0.1, 2.0, None)
    """

    def __init__(self, table: Mapping[str, Price]) -> None:
        self._exact = {name: price for name, price in table.items() if not any(sign in name for sign in "*?[")}
        patterns = [(name, price) for name, price in table.items() if name not in self._exact]
        self._patterns = sorted(patterns, key=lambda entry: (-len(entry[0]), entry[0]))

    def of(self, model: str) -> Price | None:
        """Return the price of `model`; None when no pattern matches."""
        if (price := self._exact.get(model)) is not None:
            return price
        return next((price for pattern, price in self._patterns if fnmatchcase(model, pattern)), None)


class Endpoint(Table, frozen=True):
    """`[judge.anchor]`: the LLM judge beside a decision judge; the other settings are those of `[judge]`."""

    base_url: str
    model: str
    api_key: str | None = None
    api_version: str | None = None


class SmallJudge(Endpoint, Table, frozen=True):
    """`[judge.small]`: called first; accepted from probability `least` on; a share `audit_rate` is compared."""

    least: Rate = 0.9
    audit_rate: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.05
    verbatim: bool = False


class Judge(Table, frozen=True):
    """`[judge]`: the judge. Without `base_url` and `model` there is none and only lexical metrics run.

    Of the kind "llm" it writes its verdicts; "decisions" and "systemone" answer typed questions with probabilities,
    which the `mode` "verdicts" turns into verdicts, and every answer gets them: with an `anchor` the rates of metrics
    are the anchor's.
    After `blind_after` consecutive failures the circuit opens for `blind_s`, then longer. The share `repeat` of the
    judged exchanges is judged a second time, to estimate the error of a single score.
    """

    kind: Literal["llm", "decisions", "systemone"] = "llm"
    base_url: str | None = None
    api_key: str | None = None
    model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] = 0.0
    timeout_s: Positive = 60.0
    concurrency: Count = 4
    max_retries: Annotated[int, msgspec.Meta(ge=0)] = 3
    price_in: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    price_out: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    mode: Literal["fused", "separate", "verdicts"] = "fused"
    api_version: str | None = None
    blind_after: Count = 10
    blind_s: Positive = 30.0
    budget_usd_per_day: Positive | None = None
    cache: Literal["memory", "file", "off"] = "memory"
    prices: dict[str, Price] = msgspec.field(default_factory=dict)
    small: SmallJudge | None = None
    anchor: Endpoint | None = None
    bias: tuple[Bias, ...] = ()
    anchors: str | None = None
    grounding: GroundingVerifier | None = None
    next_model: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    repeat: Rate = 0.02


class Embeddings(Table, frozen=True):
    """`[embeddings]`: an OpenAI-compatible endpoint, or a local model, for the metrics that compare meanings.

    `price` is USD per million tokens. Texts that arrive together form one request of up to `batch_size`.
    """

    kind: Literal["openai", "local"] = "openai"
    base_url: str | None = None
    api_key: str | None = None
    api_version: str | None = None
    model: str | None = None
    timeout_s: Positive = 30.0
    concurrency: Count = 4
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 2
    price: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    batch_size: Count = 64
    path: str | None = None
    download: bool = False
    threads: Count = 1


class Queue(Table, frozen=True):
    """`[queue]`: where samples wait. Default: a SQLite file in the data directory.

    If the judge is too slow to keep the wait near `target_age_s`, fewer samples are judged. `max_bytes` bounds the
    queue. While a queue on another machine is unreachable, up to `spill_bytes` wait in the gateway's data directory
    (0: none).
    """

    url: str | None = None
    lease_s: Positive = 120.0
    target_age_s: Positive = 60.0
    max_bytes: Count = 2 * 1024**3
    spill_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0


class Store(Table, frozen=True):
    """`[store]`: where samples and evaluations are stored. Default: a SQLite file in the data directory."""

    url: str | None = None


class Metric(Table, frozen=True):
    """`[metrics.<name>]`: one metric. Keys other than these are the metric's own options.

    `rate` None stands for 1.0 without an LLM and 0.1 with one; `threshold` None for 0.7, or 0.3 where 0 is the best
    value. Burn-rate alerts exist only with an `objective`. `calibration` is a map that `gaugeway judge check` proposed.
    """

    takes_options = True

    enabled: bool = True
    rate: Rate | None = None
    threshold: Rate | None = None
    objective: Rate | None = None
    calibration: Annotated[str, _MAP] | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class Signals(Table, frozen=True):
    """`[signals]`: numbers that need no judge, computed for every captured exchange; those in `off` are not."""

    off: tuple[SignalName, ...] = ()


class Rule(Table, frozen=True):
    """`[[alerts.rules]]`: alerts when the mean of `metric`, which may be a signal, gets worse.

    `direction` is that of the change; None: a drop, or a rise where 0 is best.

    It is compared with `slo` (the least mean, or the greatest where 0 is best) or with a `baseline` learned from the
    traffic; a drop of up to `tolerance` is allowed. Its default is 0 with `slo`; below the baseline "auto" (the same as
    "seasonal") 0.01, for signals 0.02; else 0.02 for severity "warn" and 0.05 for others. `severity` is "page" by
    default.
    `detector` is "esr", "threshold" or an import string; `options` are its own.
    """

    metric: str
    slo: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] | None = None
    baseline: Literal["auto", "window", "ratchet", "seasonal"] | None = None
    tolerance: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] | None = None
    direction: Direction | None = None
    apps: tuple[str, ...] = ("*",)
    severity: str | None = None
    name: str | None = None
    detector: str = "esr"
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class Alerts(Table, frozen=True):
    """`[alerts]`: `false_alerts_per_30d` is the number of false alarms expected in 30 days over all rules together.

    Without `rules` every metric and signal is watched for a change from a learned baseline; `rules` replace these
    default rules, unless `default_rules` is true. `slices` are "app",
    "model", "prompt" and "tag:NAME"; a slice with fewer than `min_slice_scores` scores a month has no stream.
    With `content` alerts quote the worst answers.
    """

    false_alerts_per_30d: Positive = 1.0
    bucket_s: Positive = 60.0
    watermark_s: Annotated[float, msgspec.Meta(ge=0.0)] = 300.0
    slices: tuple[
        Annotated[str, settings.in_form("^(app|model|prompt|tag:.+)$", "app, model, prompt or tag:NAME")], ...
    ] = ("app", "model")
    min_slice_scores: Positive = 500.0
    content: bool = True
    cause_samples: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 40
    group_by: tuple[Literal["alertname", "app", "metric", "rule", "severity", "slice"], ...] = ("app",)
    group_wait_s: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    group_interval_s: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    repeat_interval_s: Positive = 14_400.0
    runbook_url: Annotated[str, msgspec.Meta(pattern="^https?://[^\\s]+$", max_length=500)] | None = None
    default_rules: bool | None = None
    rules: tuple[Rule, ...] | None = None


class Notifier(Table, frozen=True):
    """`[[notifiers]]`: a receiver of notifications for some severities and apps. The other keys depend on the kind.

    With `heartbeat` it also gets the alert that always fires.
    """

    takes_options = True

    kind: str
    name: str | None = None
    severities: tuple[str, ...] = ("*",)
    apps: tuple[str, ...] = ("*",)
    send_resolved: bool = True
    heartbeat: bool = False
    options: dict[str, Any] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Notifier(kind={self.kind!r}, name={self.name!r})"  # the rest is full of secrets


class Sink(Table, frozen=True):
    """`[[sinks]]`: another system that receives the scores of `metrics` (shell patterns).

    `content` adds explanations. Other keys depend on the kind.
    """

    takes_options = True

    kind: str
    url: str
    metrics: tuple[str, ...] = ("*",)
    content: bool = False
    options: dict[str, Any] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Sink(kind={self.kind!r})"  # the rest is full of secrets


class Telemetry(Table, frozen=True):
    """`[telemetry]`: OpenTelemetry export (extra `otlp`); off without an endpoint, and without content unless asked.

    `events` are sent as log records, and with them metrics: some endpoints take neither. `semconv` is the version of
    the GenAI conventions whose names are used; "both" adds the names before 0.1. `baggage` lets the client's header of
    that name go on to the upstreams.
    """

    otlp_endpoint: str | None = None
    otlp_headers: dict[str, str] = msgspec.field(default_factory=dict)
    content: bool = False
    propagate: bool = True
    events: bool = True
    semconv: Literal["0.1", "both"] = "0.1"
    baggage: bool = False


SampleBy: TypeAlias = Literal["exchange", "conversation", "trace"]


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `[capture]` that the monitors read: sampling salt, content, what the judge marks, and retention."""

    salt: str = "gaugeway"
    sample_by: SampleBy = "exchange"
    content: bool = True
    redact: tuple[str, ...] = ("secret",)
    redact_patterns: dict[str, str] = msgspec.field(default_factory=dict)
    unredacted_apps: tuple[str, ...] = ()
    ask_judge: bool = True
    audits_per_day: AuditsPerDay = 5
    retention_days: Positive = 30.0


class Shared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tables the evaluation plane reads."""

    monitors: Monitors = Monitors()
    judge: Judge = Judge()
    embeddings: Embeddings = Embeddings()
    queue: Queue = Queue()
    store: Store = Store()
    metrics: dict[str, Metric] = msgspec.field(default_factory=dict)
    signals: Signals = Signals()
    alerts: Alerts = Alerts()
    notifiers: tuple[Notifier, ...] = ()
    sinks: tuple[Sink, ...] = ()
    telemetry: Telemetry = Telemetry()
    trials: tuple[dict[str, Any], ...] = ()


class Config(Shared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration file as the monitors read it: the gateway's tables are ignored, but for its prices."""

    gateway: dict[str, Any] = msgspec.field(default_factory=dict)
    upstreams: tuple[dict[str, Any], ...] = ()
    routing: dict[str, Any] = msgspec.field(default_factory=dict)
    keys: dict[str, Any] = msgspec.field(default_factory=dict)
    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    prices: dict[str, Price] = msgspec.field(default_factory=dict)
    cache: dict[str, Any] = msgspec.field(default_factory=dict)
    capture: Sampled = Sampled()


class GroundingVerifier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[judge.grounding]`: a small model that checks every answer against its passages.

    Pairs that wait together make one request of up to `batch_size`. With `cascade` and the mode
    "separate" a claim that it supports with a probability of at least `least` is not sent to the judge.
    """

    kind: Kind
    api: Api | None = None
    base_url: str | None = None
    api_key: str | None = None
    model: str | None = None
    timeout_s: Positive = 10.0
    concurrency: Count = 16
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 2
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 32
    max_document_chars: Annotated[int, msgspec.Meta(ge=200, le=1_000_000)] | None = None
    label: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    template: str | None = None
    path: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    threads: Count = 1
    price_in: NotNegative = 0.0
    price_out: NotNegative = 0.0
    cascade: bool = True
    least: Rate = 0.9

    @property
    def spoken(self) -> Api | None:
        """The API in use: the one named, else the default of the kind; None for a model on this machine."""
        return self.api or next(iter(APIS[self.kind]), None)

    @property
    def document_chars(self) -> int:
        """Characters of passages that are checked at once."""
        return self.max_document_chars or DOCUMENT_CHARS[self.kind, self.spoken]


def problems_of(table: GroundingVerifier) -> list[str]:
    """Return the problems of the table that types alone cannot express; each begins with its key."""
    found = [*_problems_of_api(table), *_problems_of_address(table)]
    if table.template is not None and table.spoken != "classify":
        found.append('template: only api = "classify" makes one text of a pair')
    elif table.template is None and table.spoken == "classify":
        found.append('template: needed for api = "classify", with {document} and {claim}')
    elif table.template is not None and (table.template.count("{document}"), table.template.count("{claim}")) != (1, 1):
        found.append("template: must contain {document} and {claim} exactly once")
    if table.label is not None and table.kind not in ("classify", "onnx"):
        found.append("label: only classifiers have labels")
    elif table.label is not None and table.spoken == "classify" and not table.label.isdecimal():
        found.append('label: must be a class index such as "1" with api = "classify"')
    if table.threads != 1 and table.kind != "onnx":
        found.append('threads: only for kind = "onnx"')
    return [f"judge.grounding.{problem}" for problem in found]


def _problems_of_api(table: GroundingVerifier) -> list[str]:
    able = APIS[table.kind]
    if table.api is None or table.api in able:
        return []
    *others, last = (f'"{name}"' for name in able) if able else ("",)
    known = f"{', '.join(others)} or {last}" if others else last
    return [f'api: {f"must be {known}" if able else "not allowed"} for kind = "{table.kind}"']


def _problems_of_address(table: GroundingVerifier) -> list[str]:
    if table.kind == "onnx":
        found = [] if table.path else ['path: needed for kind = "onnx": the directory of the model']
        return [*found, *(['base_url: not allowed with kind = "onnx"'] if table.base_url else [])]
    found = ['path: only for kind = "onnx"'] if table.path else []
    if not table.base_url:
        return [*found, f'base_url: needed for kind = "{table.kind}"']
    if (problem := endpoints.base_url_problem(table.base_url)) is not None:
        found.append(f"base_url: {problem}")
    elif not table.api_key and endpoints.needs_key(table.base_url):
        found.append("api_key: missing: this provider refuses requests without one")
    if not table.model and table.spoken in ("chat", "classify"):
        found.append(f'model: needed for api = "{table.spoken}"')
    return found
