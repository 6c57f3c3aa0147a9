"""What an evaluation is made of: the metrics that were asked for, the judge and the embeddings they need."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from monitors import config
from monitors.evaluation.evaluate import TIMEOUT_S
from monitors.judges import Judge
from monitors.metrics import Metric, lower_is_better
from monitors.metrics.embeddings import Embeddings
from monitors.metrics.registry import BUILT_IN, ON_REQUEST, THRESHOLD, THRESHOLD_IF_LOW_IS_GOOD, Enabled, build
from monitors.offline.run import CONCURRENCY, Plan
from monitors.runtime.plugins import close, load
from monitors.runtime.settings import ConfigError

if TYPE_CHECKING:
    from monitors.exporters.instruments import Instruments

ALL = "all"
AT_FIVE = ("hit@5", "ndcg@5", "precision@5", "recall@5")
LLM, NO_JUDGE = "llm", "none"
_ASKED_IN_A_ROW = 3
_NEVER = 1_000_000_000
_NOT_IDENTITY = frozenset({"api_key", "timeout_s", "concurrency", "max_retries", "price_in", "price_out"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for. `metrics` None stands for those of the configuration; `judge` None for its judge, if any.

    `metrics` are names, import strings or metrics, `judge` is "llm", "none", an import string or a judge.
    `steps_dir` keeps the steps that a judge wrote for `geval:` metrics.
    """

    config: config.Shared
    metrics: Sequence[str | Metric] | None = None
    judge: str | Judge | None = None
    embeddings: Embeddings | None = None
    steps_dir: Path | None = None
    concurrency: int | None = None


@contextlib.asynccontextmanager
async def opened(wanted: Wanted) -> AsyncIterator[tuple[Plan, tuple[str, ...]]]:
    """Make the plan and notes on it, and close afterwards what was opened for it. Raises ConfigError."""
    shared = _with_concurrency(wanted)
    judge, embeddings, ours = _judging(shared, wanted)
    try:
        enabled, notes = _metrics(shared, wanted, judge, embeddings)
        if not enabled:
            raise ConfigError(["no metric is left to compute", *notes])
        yield _plan(shared, wanted, enabled, embeddings), notes
    finally:
        for one in ours:
            await close(one)


def _plan(shared: config.Shared, wanted: Wanted, enabled: Sequence[Enabled], embeddings: Embeddings | None) -> Plan:
    from_config = wanted.judge in (None, LLM)
    rounds = 1 + math.ceil(_samples_at_once(wanted) * len(enabled) / shared.judge.concurrency)
    return Plan(
        metrics=enabled,
        identity=_identity(shared.judge) if from_config and shared.judge.model else "",
        embedding=_embedding(shared.embeddings, embeddings),
        concurrency=_samples_at_once(wanted),
        timeout_s=max(TIMEOUT_S, _ASKED_IN_A_ROW * rounds * shared.judge.timeout_s),
    )


def _samples_at_once(wanted: Wanted) -> int:
    return wanted.concurrency or max(CONCURRENCY, wanted.config.judge.concurrency)


def _with_concurrency(wanted: Wanted) -> config.Shared:
    """Who asks for N at once means the judge too."""
    if wanted.concurrency is None:
        return wanted.config
    judge = msgspec.structs.replace(wanted.config.judge, concurrency=wanted.concurrency)
    return msgspec.structs.replace(wanted.config, judge=judge)


def _judging(shared: config.Shared, wanted: Wanted) -> tuple[Judge | None, Embeddings | None, list[Any]]:
    """The judge, the embeddings, and those of them that are ours to close."""
    judge, ours = _judge(shared, wanted.judge)
    embeddings = wanted.embeddings
    if embeddings is None and shared.embeddings != config.Embeddings():
        from monitors.evaluation.embedding import open_embeddings  # noqa: PLC0415 - only for what a configuration names

        embeddings = open_embeddings(shared, _instruments())
        ours.append(embeddings)
    return judge, embeddings, ours


def _instruments() -> Instruments:
    """Counters of nobody's: what judging cost is in the evaluations."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - the same as in `_judging`

    from monitors.exporters.instruments import Instruments  # noqa: PLC0415

    return Instruments(CollectorRegistry(), version=version("gaugeway"))


def _judge(shared: config.Shared, wanted: str | Judge | None) -> tuple[Judge | None, list[Any]]:
    if wanted == NO_JUDGE:
        return None, []
    if wanted in (None, LLM):
        if shared.judge.base_url is None and shared.judge.model is None:
            if wanted == LLM:
                raise ConfigError(["judge: none is configured; name one in [judge] of the configuration"])
            return None, []
        from monitors.evaluation.judging import open_judging  # noqa: PLC0415 - the SDK is slow to import

        # Over a data set nothing is left out: no budget is kept, what it cost is shown.
        # Every row is asked for: the run's own file remembers, and a judge that fails often is not given up on.
        settings = msgspec.structs.replace(shared.judge, cache="off", blind_after=_NEVER)
        judging = open_judging(settings, _instruments(), paced=False)
        return (judging.judge, [judging.judge]) if judging else (None, [])
    if not isinstance(wanted, str):
        return wanted, []
    try:
        made = load(wanted, {})
        own: Judge = made() if isinstance(made, type) or not hasattr(made, "ask") else made
    except (TypeError, ValueError) as error:
        raise ConfigError([f"judge: {error}"]) from error
    return own, [own]


def _metrics(
    shared: config.Shared, wanted: Wanted, judge: Judge | None, embeddings: Embeddings | None
) -> tuple[tuple[Enabled, ...], tuple[str, ...]]:
    names = None if wanted.metrics is None else [one for one in wanted.metrics if isinstance(one, str)]
    settings = selected(shared.metrics, names)
    catalogue = build(settings, judge, embeddings, shared.judge.mode, steps_dir=wanted.steps_dir)
    given = tuple(_enabled(one) for one in wanted.metrics or () if not isinstance(one, str))
    enabled = (*_ordered(catalogue.enabled, names), *given)
    known = {one.metric.name for one in enabled}
    if lost := [name for name in names or () if name not in known and name != ALL and not _is_import(name)]:
        why = {note.partition(" ")[0]: note for note in catalogue.notes}
        raise ConfigError([f"metrics: {why.get(name, f'{name} cannot run')}" for name in lost])
    if len(known) < len(enabled):
        raise ConfigError(["metrics: two of them have the same name"])
    notes = catalogue.notes if names is None or ALL in names else ()
    return enabled, tuple(notes)


def _is_import(name: str) -> bool:
    return ":" in name and not name.startswith("geval:")


def selected(settings: Mapping[str, config.Metric], names: Sequence[str] | None) -> dict[str, config.Metric]:
    """The settings that switch on just these metrics: `names`, each with its own options where it has some.

    None leaves the settings as they are; the name "all" stands for every metric there is (those at a rank, at 5) and
    every configured one, but those that the configuration switches off.
    """
    if names is None:
        return dict(settings)
    wanted = [*BUILT_IN, *ON_REQUEST, *AT_FIVE, *settings] if ALL in names else []
    wanted += [name for name in names if name != ALL]
    off = {name: config.Metric(enabled=False) for name in [*BUILT_IN, *settings]}
    on = {
        name: msgspec.structs.replace(settings.get(name, config.Metric()), enabled=True)
        for name in wanted
        if name not in settings or settings[name].enabled or name in names
    }
    return off | on


def _ordered(enabled: Sequence[Enabled], names: Sequence[str] | None) -> list[Enabled]:
    """In the order they were asked for."""
    places = {name: place for place, name in enumerate(names or ())}
    return sorted(enabled, key=lambda one: places.get(one.metric.name, len(places)))


def _enabled(metric: Metric) -> Enabled:
    if missing := [name for name in ("name", "version", "score") if not hasattr(metric, name)]:
        raise ConfigError([f"metrics: {type(metric).__name__} is no metric: it has no {missing[0]}"])
    threshold = THRESHOLD_IF_LOW_IS_GOOD if lower_is_better(metric) else THRESHOLD
    return Enabled(metric=metric, rate=1.0, threshold=threshold, objective=0.95)


def _identity(judge: config.Judge) -> str:
    """All settings of a judge that may change what it says."""
    told = {key: value for key, value in msgspec.to_builtins(judge).items() if key not in _NOT_IDENTITY}
    return blake2b(msgspec.json.encode(told, order="sorted"), digest_size=6).hexdigest()


def _embedding(settings: config.Embeddings, given: Embeddings | None) -> str:
    if given is None:
        return ""
    model = getattr(given, "model", type(given).__name__)
    return f"{model}@{settings.base_url}" if settings.base_url else str(model)
