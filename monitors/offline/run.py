"""Plans and runs an evaluation: the metrics with their models, over samples concurrently, cached outcomes reused."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from gaugeway.extensions import load, registered
from gaugeway.records import Evaluation, Failed, Sample, Skipped
from gaugeway.settings import ConfigError
from gaugeway.settings import shared as config
from monitors.evaluation.evaluator import TIMEOUT_S, evaluate, is_judged, judge_of
from monitors.evaluation.judge_repeats import is_repeated, judge_again
from monitors.judges import Judge, MinimalJudge, adapted
from monitors.judges.grounding import Verifier
from monitors.metrics import Metric, lower_is_better
from monitors.metrics.embeddings import MinimalEmbeddings
from monitors.metrics.registry import (
    THRESHOLD,
    THRESHOLD_IF_LOW_IS_GOOD,
    Enabled,
    at_rank,
    build,
    names,
    on_by_default,
    resolve,
)
from monitors.offline.dataset_fields import content_key
from monitors.offline.results import Measure, Row
from monitors.offline.results_codec import Key, ResultsCache

if TYPE_CHECKING:
    from monitors.exporters.instruments import Instruments

T = TypeVar("T")
CONCURRENCY = 8
NOT_SELECTED = "not_selected"


class Progress(msgspec.Struct):
    """The progress of a run: samples done of `total`, evaluations failed or taken from the cache, USD paid so far."""

    total: int
    done: int = 0
    failed: int = 0
    reused: int = 0
    usd: float = 0.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `identity` hashes the judge's settings, `embedding` names the embeddings; each may be empty.

    The share `repeat` of the samples is judged a second time.
    """

    metrics: Sequence[Enabled]
    repeat: float = 0.0
    identity: str = ""
    embedding: str = ""
    concurrency: int = CONCURRENCY
    timeout_s: float = 600.0

    def key(self, metric: Metric) -> Key:
        """Return the inputs of an outcome of `metric` in addition to the sample."""
        judge = judge_of(metric)
        parts = [] if judge is None else [judge, self.identity]
        if self.embedding and "embeddings" in _parameters(metric):
            parts.append(self.embedding)
        return Key(metric.name, str(metric.version), "|".join(filter(None, parts)))

    def measures(self) -> list[Measure]:
        """Return the metrics as a run records them."""
        return [
            Measure(
                name=enabled.metric.name,
                version=str(enabled.metric.version),
                judge=judge_of(enabled.metric),
                lower_is_better=lower_is_better(enabled.metric),
                threshold=enabled.threshold,
            )
            for enabled in self.metrics
        ]


async def run(
    samples: Sequence[Sample],
    plan: Plan,
    *,
    cache: ResultsCache | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> tuple[list[Row], Progress]:
    """Evaluate all samples concurrently; return the rows in the order of the samples.

    Each sample's outcomes are cached as soon as it is done, so an interrupted run is not paid for twice.
    """
    progress = Progress(total=len(samples))
    rows: dict[int, Row] = {}

    async def work(item: tuple[int, Sample]) -> None:
        index, sample = item
        rows[index] = await _row(sample, plan, cache, progress)
        progress.done += 1
        on_progress(progress)

    await for_each(enumerate(samples), work, plan.concurrency)
    return [rows[index] for index in range(len(samples))], progress


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int) -> None:
    """Run `work` on all items, at most `concurrency` at a time; the first exception cancels the rest and is raised."""
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await work(item)

    workers = [asyncio.ensure_future(worker()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.wait(workers)


async def _row(sample: Sample, plan: Plan, cache: ResultsCache | None, progress: Progress) -> Row:
    content = content_key(sample)
    known: Mapping[Key, Evaluation] = await cache.get(content, sample.id) if cache else {}
    chosen = [enabled.metric for enabled in plan.metrics if _selected(enabled.metric, sample)]
    keys = {metric.name: plan.key(metric) for metric in chosen}
    missing = [metric for metric in chosen if keys[metric.name] not in known]
    found = await asyncio.gather(*(evaluated(metric, sample, plan.timeout_s) for metric in missing))
    fresh = {evaluation.metric: evaluation for evaluation in found}
    if cache:
        await cache.put(content, [(keys[name], evaluation) for name, evaluation in fresh.items()])
    progress.reused += len(keys) - len(fresh)
    progress.failed += sum(isinstance(evaluation.outcome, Failed) for evaluation in fresh.values())
    progress.usd += sum(evaluation.cost_usd for evaluation in fresh.values())
    evaluations = {enabled.metric.name: _not_selected(enabled.metric, sample) for enabled in plan.metrics}
    evaluations |= {name: fresh[name] if name in fresh else known[key] for name, key in keys.items()}
    row = Row(sample=sample, evaluations=evaluations)
    return replace(row, repeats=await _second_judgements(row, plan, known, cache, progress))


async def _second_judgements(
    row: Row, plan: Plan, known: Mapping[Key, Evaluation], cache: ResultsCache | None, progress: Progress
) -> Mapping[str, Evaluation]:
    """Judge a row again by the judged metrics that scored it, if it is to be repeated; cached like the first time."""
    if not is_repeated(row.sample, plan.repeat):
        return {}
    scored = [one.metric for one in plan.metrics if is_judged(one.metric) and row.score(one.metric.name) is not None]
    keys = {metric.name: replace(key := plan.key(metric), judge=f"{key.judge}|second") for metric in scored}
    missing = [metric for metric in scored if keys[metric.name] not in known]
    again = await judge_again(missing, row.sample, timeout_s=plan.timeout_s)
    fresh = {keys[evaluation.metric]: evaluation for evaluation in again}
    if cache:
        await cache.put(content_key(row.sample), fresh.items())
    progress.usd += sum(evaluation.cost_usd for evaluation in again)
    return {name: fresh[key] if key in fresh else known[key] for name, key in keys.items()}


def _selected(metric: Metric, sample: Sample) -> bool:
    return sample.only_metrics is None or metric.name in sample.only_metrics


def _not_selected(metric: Metric, sample: Sample) -> Evaluation:
    """Return the outcome of a metric that the record does not name."""
    return Evaluation(
        sample_id=sample.id, metric=metric.name, version=str(metric.version), outcome=Skipped(NOT_SELECTED)
    )


async def evaluated(metric: Metric, sample: Sample, timeout_s: float) -> Evaluation:
    """Compute one evaluation; `timeout_s` applies to metrics that call a judge."""
    deadline_s = TIMEOUT_S if judge_of(metric) is None else timeout_s
    return await evaluate(metric, sample, rate=sample.rate, clock=time.perf_counter, timeout_s=deadline_s)


def _parameters(metric: Metric) -> frozenset[str]:
    try:
        return frozenset(signature(type(getattr(metric, "raw", metric))).parameters)
    except (TypeError, ValueError):
        return frozenset()


ALL = "all"
_RANK = 5
"""Of the ranked metrics that "all" stands for."""
LLM, NO_JUDGE = "llm", "none"
_CALLS_IN_A_ROW = 3
_NEVER = 1_000_000_000
_NOT_IDENTITY = frozenset(
    {"api_key", "timeout_s", "concurrency", "max_retries", "price_in", "price_out", "grounding", "next_model", "repeat"}
)


class EvaluationRequest(msgspec.Struct, frozen=True, kw_only=True):
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
    async with contextlib.AsyncExitStack() as opened:
        verifier = _verifier(shared, request, opened)
        judge = _judge(shared, request.judge, verifier, opened)
        embeddings = _embeddings(shared, request, opened)
        enabled, notes = _metrics(shared, request, judge, embeddings, verifier)
        if not enabled:
            raise ConfigError(["there is no metric to compute", *notes])
        yield _plan(shared, request, enabled, embeddings), notes


def _plan(
    shared: config.Shared, request: EvaluationRequest, enabled: Sequence[Enabled], embeddings: MinimalEmbeddings | None
) -> Plan:
    from_config = request.judge in (None, LLM)
    rounds = 1 + math.ceil(_samples_at_once(request) * len(enabled) / shared.judge.concurrency)
    return Plan(
        metrics=enabled,
        repeat=shared.judge.repeat,
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


def _verifier(shared: config.Shared, request: EvaluationRequest, opened: contextlib.AsyncExitStack) -> Verifier | None:
    """Return the configured verifier, without cache and circuit breaker; none where no model is wanted."""
    if shared.judge.grounding is None or request.judge == NO_JUDGE:
        return None
    from monitors.evaluation.verifiers import open_verifier  # noqa: PLC0415 - the SDK is slow to import

    verifier = open_verifier(msgspec.structs.replace(shared.judge, cache="off", blind_after=_NEVER), _instruments())
    if verifier is not None:
        opened.push_async_callback(verifier.aclose)
    return verifier


def _embeddings(
    shared: config.Shared, request: EvaluationRequest, opened: contextlib.AsyncExitStack
) -> MinimalEmbeddings | None:
    if request.embeddings is not None or shared.embeddings == config.Embeddings():
        return request.embeddings
    from monitors.evaluation.models import open_embeddings  # noqa: PLC0415 - only for what a configuration names

    if (embeddings := open_embeddings(shared, _instruments())) is not None:
        opened.push_async_callback(embeddings.aclose)
    return embeddings


def _instruments() -> Instruments:
    """Return instruments that nothing exports: the cost is in the evaluations."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - only where a model is opened

    from monitors.exporters.instruments import Instruments  # noqa: PLC0415

    return Instruments(CollectorRegistry(), version=version("gaugeway"))


def _judge(
    shared: config.Shared,
    wanted: str | MinimalJudge | None,
    verifier: Verifier | None,
    opened: contextlib.AsyncExitStack,
) -> Judge | None:
    if wanted == NO_JUDGE:
        return None
    if wanted in (None, LLM):
        if shared.judge.base_url is None and shared.judge.model is None:
            if wanted == LLM and shared.judge.grounding is None:
                raise ConfigError(["judge: none is configured; name one in [judge] of the configuration"])
            return None
        from monitors.evaluation.models import open_judge  # noqa: PLC0415 - the SDK is slow to import

        # Every row is judged: no budget, no answer cache (the run file has the outcomes), and no circuit breaker.
        settings = msgspec.structs.replace(shared.judge, cache="off", blind_after=_NEVER)
        if (judging := open_judge(settings, _instruments(), paced=False, verifier=verifier)) is None:
            return None
        opened.push_async_callback(judging.judge.aclose)
        return judging.judge
    if not isinstance(wanted, str):
        return adapted(wanted)
    try:
        made = load(wanted, registered("judges"), "judge")
        own = adapted(made() if isinstance(made, type) or not hasattr(made, "ask") else made)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"judge: {error}"]) from error
    opened.push_async_callback(own.aclose)
    return own


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
    everything = wanted is None or ALL in wanted
    return enabled, tuple(note for note in catalogue.notes if everything or note.startswith("metrics."))


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
