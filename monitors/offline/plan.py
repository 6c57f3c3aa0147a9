"""Builds the plan of an evaluation: the requested metrics with the judge and the embeddings they need."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gaugeway.extensions import load, registered
from gaugeway.settings import ConfigError
from gaugeway.settings import shared as config
from monitors.evaluation.evaluator import TIMEOUT_S
from monitors.judges import Judge, MinimalJudge, adapted
from monitors.judges.grounding import Verifier
from monitors.metrics import Metric, lower_is_better
from monitors.metrics.embeddings import Embeddings, MinimalEmbeddings
from monitors.metrics.registered import at_rank, names, on_by_default, resolve
from monitors.metrics.registry import THRESHOLD, THRESHOLD_IF_LOW_IS_GOOD, Enabled, build
from monitors.offline.run import CONCURRENCY, Plan

if TYPE_CHECKING:
    from monitors.exporters.instruments import Instruments

ALL = "all"
_RANK = 5
"""Of the ranked metrics that "all" stands for."""
LLM, NO_JUDGE = "llm", "none"
_CALLS_IN_A_ROW = 3
_NEVER = 1_000_000_000
_NOT_IDENTITY = frozenset(
    {"api_key", "timeout_s", "concurrency", "max_retries", "price_in", "price_out", "grounding", "next_model"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """What to evaluate with. Without `metrics` or `judge` those of the configuration are used.

    `metrics` are names, import strings or metric objects; `judge` is "llm" (the configured one), "none", an import
    string or a judge object. `steps_dir` caches the steps a judge wrote for `geval:` metrics.
    """

    config: config.Shared
    metrics: Sequence[str | Metric] | None = None
    judge: str | MinimalJudge | None = None
    embeddings: MinimalEmbeddings | None = None
    steps_dir: Path | None = None
    concurrency: int | None = None


@contextlib.asynccontextmanager
async def open_plan(request: EvaluationRequest) -> AsyncIterator[tuple[Plan, tuple[str, ...]]]:
    """Yield the plan and notes for the user; close what was opened for it afterwards. Raises ConfigError."""
    shared = _with_concurrency(request)
    verifier = _verifier(shared, request)
    judge, embeddings, ours = _judging(shared, request, verifier)
    try:
        enabled, notes = _metrics(shared, request, judge, embeddings, verifier)
        if not enabled:
            raise ConfigError(["there is no metric to compute", *notes])
        yield _plan(shared, request, enabled, embeddings), notes
    finally:
        for client in ours:
            await client.aclose()


def _plan(
    shared: config.Shared, request: EvaluationRequest, enabled: Sequence[Enabled], embeddings: MinimalEmbeddings | None
) -> Plan:
    from_config = request.judge in (None, LLM)
    rounds = 1 + math.ceil(_samples_at_once(request) * len(enabled) / shared.judge.concurrency)
    return Plan(
        metrics=enabled,
        identity=_identity(shared.judge) if from_config and shared.judge.model else "",
        embedding=_embedding(shared.embeddings, embeddings),
        concurrency=_samples_at_once(request),
        timeout_s=max(TIMEOUT_S, _CALLS_IN_A_ROW * rounds * shared.judge.timeout_s),
    )


def _samples_at_once(request: EvaluationRequest) -> int:
    return request.concurrency or max(CONCURRENCY, request.config.judge.concurrency)


def _with_concurrency(request: EvaluationRequest) -> config.Shared:
    """Apply the requested concurrency to the judge too."""
    if request.concurrency is None:
        return request.config
    judge = msgspec.structs.replace(request.config.judge, concurrency=request.concurrency)
    return msgspec.structs.replace(request.config, judge=judge)


def _verifier(shared: config.Shared, request: EvaluationRequest) -> Verifier | None:
    """Return the configured verifier, without cache and circuit breaker; none where no model is wanted."""
    if shared.judge.grounding is None or request.judge == NO_JUDGE:
        return None
    from monitors.evaluation.verifiers import open_verifier  # noqa: PLC0415 - the SDK is slow to import

    return open_verifier(msgspec.structs.replace(shared.judge, cache="off", blind_after=_NEVER), _instruments())


def _judging(
    shared: config.Shared, request: EvaluationRequest, verifier: Verifier | None
) -> tuple[Judge | None, MinimalEmbeddings | None, list[Judge | Embeddings | Verifier]]:
    """Return the judge, the embeddings, and those of them that were opened here and need closing."""
    judge, ours = _judge(shared, request.judge, verifier)
    if verifier is not None:
        ours.append(verifier)
    embeddings = request.embeddings
    if embeddings is None and shared.embeddings != config.Embeddings():
        from monitors.evaluation.models import open_embeddings  # noqa: PLC0415 - only for what a configuration names

        if (opened := open_embeddings(shared, _instruments())) is not None:
            embeddings = opened
            ours.append(opened)
    return judge, embeddings, ours


def _instruments() -> Instruments:
    """Return instruments that nothing exports: the cost is in the evaluations."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - the same as in `_judging`

    from monitors.exporters.instruments import Instruments  # noqa: PLC0415

    return Instruments(CollectorRegistry(), version=version("gaugeway"))


def _judge(
    shared: config.Shared, wanted: str | MinimalJudge | None, verifier: Verifier | None
) -> tuple[Judge | None, list[Judge | Embeddings | Verifier]]:
    if wanted == NO_JUDGE:
        return None, []
    if wanted in (None, LLM):
        if shared.judge.base_url is None and shared.judge.model is None:
            if wanted == LLM and shared.judge.grounding is None:
                raise ConfigError(["judge: none is configured; name one in [judge] of the configuration"])
            return None, []
        from monitors.evaluation.models import open_judge  # noqa: PLC0415 - the SDK is slow to import

        # Every row is judged: no budget, no answer cache (the run file has the outcomes), and no circuit breaker.
        settings = msgspec.structs.replace(shared.judge, cache="off", blind_after=_NEVER)
        judging = open_judge(settings, _instruments(), paced=False, verifier=verifier)
        return (judging.judge, [judging.judge]) if judging else (None, [])
    if not isinstance(wanted, str):
        return adapted(wanted), []
    try:
        made = load(wanted, registered("judges"), "judge")
        own = adapted(made() if isinstance(made, type) or not hasattr(made, "ask") else made)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"judge: {error}"]) from error
    return own, [own]


def _metrics(
    shared: config.Shared,
    request: EvaluationRequest,
    judge: Judge | None,
    embeddings: MinimalEmbeddings | None,
    verifier: Verifier | None,
) -> tuple[tuple[Enabled, ...], tuple[str, ...]]:
    wanted = None if request.metrics is None else [metric for metric in request.metrics if isinstance(metric, str)]
    settings = selected(shared.metrics, wanted)
    catalogue = build(settings, judge, embeddings, shared.judge.mode, steps_dir=request.steps_dir, verifier=verifier)
    given = tuple(_enabled(metric) for metric in request.metrics or () if not isinstance(metric, str))
    enabled = (*_ordered(catalogue.enabled, wanted), *given)
    known = {enabled_metric.metric.name for enabled_metric in enabled}
    if lost := [name for name in wanted or () if name not in known and name != ALL and not _is_import(name)]:
        why = {note.partition(" ")[0]: note for note in catalogue.notes}
        raise ConfigError([f"metrics: {why.get(name, f'{name} cannot run')}" for name in lost])
    if len(known) < len(enabled):
        raise ConfigError(["metrics: two metrics have the same name"])
    notes = catalogue.notes if wanted is None or ALL in wanted else ()
    return enabled, tuple(notes)


def _is_import(name: str) -> bool:
    return (named := resolve(name)) is not None and named.target == name


def selected(settings: Mapping[str, config.Metric], wanted: Sequence[str] | None) -> dict[str, config.Metric]:
    """Return settings that enable exactly the metrics `wanted`, with their configured options.

    None returns the settings unchanged. The name "all" stands for every registered metric (ranked ones at 5) and every
    configured one, except those the configuration disables.
    """
    if wanted is None:
        return dict(settings)
    every = [*names(), *at_rank(_RANK), *settings] if ALL in wanted else []
    off = {name: config.Metric(enabled=False) for name in [*filter(on_by_default, names()), *settings]}
    on = {
        name: msgspec.structs.replace(settings.get(name, config.Metric()), enabled=True)
        for name in (*every, *wanted)
        if name != ALL and (name not in settings or settings[name].enabled or name in wanted)
    }
    return off | on


def _ordered(enabled: Sequence[Enabled], wanted: Sequence[str] | None) -> list[Enabled]:
    """Sort by the order of `wanted`."""
    places = {name: place for place, name in enumerate(wanted or ())}
    return sorted(enabled, key=lambda enabled_metric: places.get(enabled_metric.metric.name, len(places)))


def _enabled(metric: Metric) -> Enabled:
    if missing := [name for name in ("name", "version", "score") if not hasattr(metric, name)]:
        raise ConfigError([f"metrics: {type(metric).__name__} is not a metric: it has no {missing[0]}"])
    threshold = THRESHOLD_IF_LOW_IS_GOOD if lower_is_better(metric) else THRESHOLD
    return Enabled(metric=metric, rate=1.0, threshold=threshold)


def _identity(judge: config.Judge) -> str:
    """Return a hash of the settings that may change a judge's answers."""
    relevant = {key: value for key, value in msgspec.to_builtins(judge).items() if key not in _NOT_IDENTITY}
    if judge.grounding is not None and judge.grounding.cascade and judge.mode == "separate":
        table = judge.grounding
        relevant["grounding"] = [table.kind, table.api, table.base_url, table.model, table.least, table.document_chars]
    return blake2b(msgspec.json.encode(relevant, order="sorted"), digest_size=6).hexdigest()


def _embedding(settings: config.Embeddings, given: MinimalEmbeddings | None) -> str:
    if given is None:
        return ""
    model = getattr(given, "model", type(given).__name__)
    return f"{model}@{settings.base_url}" if settings.base_url else str(model)
