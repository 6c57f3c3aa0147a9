"""`monitors.evaluate`: the Python API of offline evaluation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import msgspec

from gaugeway.records import Sample
from gaugeway.settings import shared as config
from monitors.judges import MinimalJudge
from monitors.metrics import Metric, scores_conversations
from monitors.metrics.embeddings import MinimalEmbeddings
from monitors.offline import dataset
from monitors.offline.dataset_values import protected
from monitors.offline.results import Run
from monitors.offline.results_codec import ResultsCache
from monitors.offline.run import LLM, EvaluationRequest, Plan, Progress, open_plan, run

P = ParamSpec("P")


async def evaluate_async(
    data: Iterable[Any],
    *,
    metrics: Sequence[str | Metric] | Mapping[str, Mapping[str, Any]] | None = None,
    judge: str | MinimalJudge | config.Judge | None = None,
    embeddings: MinimalEmbeddings | config.Embeddings | None = None,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
    concurrency: int | None = None,
    run_file: str | Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    source: str = "data",
) -> Run:
    """Score every record of `data` with every metric; return the run.

    A record is a dict, a dataclass, a pydantic model, any object with attributes, or a `Sample`; its fields are those
    of `gaugeway evaluate` (`user_input`, `response`, `retrieved_contexts` ... and their other names), `fields` maps one
    of these names to the name in your records. `metrics` are names, import strings "pkg.mod:Name" or metrics; a mapping
    gives options: {"faithfulness": {"contradiction_only": True}}. None: the built-in ones that can run. `judge` is a
    judge, an import string, or `config.Judge(base_url=..., model=...)`; without one, only metrics that need none run.
    With `run_file`, outcomes are cached there and a second run computes only what is missing.

    `evaluate` is the same without `await`. It works inside a running event loop too (a notebook): the evaluation then
    runs in its own loop on a thread, so a judge object must not be bound to another loop. Raises DataError or
    ConfigError, both with `problems`.
    """
    samples, notes = dataset.collect(enumerate(data, 1), limit=limit, renamed=fields)
    tables: dict[str, Any] = {}
    if isinstance(judge, config.Judge):
        tables["judge"], judge = judge, LLM
    if isinstance(embeddings, config.Embeddings):
        tables["embeddings"], embeddings = embeddings, None
    if isinstance(metrics, Mapping):
        tables["metrics"] = {name: config.Metric(options=dict(options)) for name, options in metrics.items()}
        metrics = list(metrics)
    given: dict[str, Any] = {"metrics": metrics, "judge": judge, "embeddings": embeddings, "concurrency": concurrency}
    request = EvaluationRequest(config=msgspec.structs.replace(config.Shared(), **tables), **given)
    cache = ResultsCache(run_file) if run_file else None
    return await evaluate_samples(samples, request, source=source, cache=cache, on_progress=on_progress, notes=notes)


async def evaluate_samples(
    samples: Sequence[Sample],
    request: EvaluationRequest,
    *,
    source: str,
    cache: ResultsCache | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    notes: Iterable[str] = (),
) -> Run:
    """Evaluate samples and close `cache`. `on_plan` may raise to stop before anything is paid for.

    Histories and tool calls are redacted as `[capture]` of the configuration says.

    Raises ConfigError, what `on_plan` raises, and EngineError for the cache file.
    """
    started = time.time()
    capture = request.config.capture if isinstance(request.config, config.Config) else config.Sampled()
    try:
        samples = protected(samples, capture)
        async with open_plan(request) as (plan, more):
            if on_plan is not None:
                on_plan(plan)
            rows, progress = await run(samples, plan, cache=cache, on_progress=on_progress or (lambda _: None))
            return Run(
                source=source,
                created_at=started,
                measures=tuple(plan.measures()),
                rows=tuple(rows),
                seconds=max(0.0, time.time() - started),
                paid_usd=progress.usd,
                reused=progress.reused,
                notes=(*notes, *more, *_not_computed(samples, plan), *_not_known(samples, plan)),
            )
    finally:
        if cache is not None:
            await cache.aclose()


def _not_computed(samples: Sequence[Sample], plan: Plan) -> list[str]:
    """Say once which metrics no sample can have: each sample is skipped with a word that does not say why."""
    names = [enabled.metric.name for enabled in plan.metrics if scores_conversations(enabled.metric)]
    if not names or any(sample.transcript for sample in samples):
        return []
    verb = "is about whole conversations" if len(names) == 1 else "are about whole conversations"
    return [f"{', '.join(names)} {verb}: computed on live traffic only, so every record is skipped (no_transcript)"]


def _not_known(samples: Sequence[Sample], plan: Plan) -> list[str]:
    """Say which metrics records name as theirs and nothing computes: a misspelt name scores nothing."""
    named = dict.fromkeys(name for sample in samples for name in sample.only_metrics or ())
    missing = [name for name in named if name not in {enabled.metric.name for enabled in plan.metrics}]
    return [f"only_metrics of some records names {', '.join(missing)}, not computed in this run"] if missing else []


def _blocking(function: Callable[P, Coroutine[Any, Any, Run]], name: str) -> Callable[P, Run]:
    """Return the function `name` that runs the coroutine to its end."""

    @wraps(function)
    def blocking(*args: P.args, **options: P.kwargs) -> Run:
        return _run_in_own_loop(function(*args, **options))

    blocking.__name__ = blocking.__qualname__ = name
    return blocking


def _run_in_own_loop(evaluation: Coroutine[Any, Any, Run]) -> Run:
    """Run the coroutine to its end; inside a running loop, on another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(evaluation)
    results: list[Run | BaseException] = []

    def work() -> None:
        try:
            results.append(asyncio.run(evaluation))
        except BaseException as error:  # noqa: BLE001 - re-raised on the calling thread
            results.append(error)

    thread = threading.Thread(target=work, name="gaugeway evaluate")
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


evaluate = _blocking(evaluate_async, "evaluate")
