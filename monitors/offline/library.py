"""`monitors.evaluate`: score any objects from Python, without a gateway and without a file."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from monitors import config
from monitors.judges import MinimalJudge
from monitors.metrics import Metric
from monitors.metrics.embeddings import MinimalEmbeddings
from monitors.offline import dataset as reading
from monitors.offline import plan as parts
from monitors.offline.results import Run, gathered
from monitors.offline.results_cache import Kept
from monitors.offline.run import Plan, Progress, run
from monitors.records import Sample


def evaluate(
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
    """Score every record of `data` with every metric, and return the run.

    A record is a dict, a dataclass, a pydantic model, any object with attributes, or a `Sample`; its fields are those
    of `gaugeway evaluate` (`user_input`, `response`, `retrieved_contexts` ... and their other names), `fields` maps one
    of ours to the name it has in your records. `metrics` are names, import strings "pkg.mod:Name" or metrics; a mapping
    gives options: {"faithfulness": {"contradiction_only": True}}. None: the built-in ones that can run. `judge` is a
    judge, an import string, or `config.Judge(base_url=..., model=...)`; without one, only metrics that ask none run.
    With `run_file`, outcomes are kept there and a second run asks only for what is missing.

    Works inside a running event loop too (a notebook): the evaluation has a loop of its own. A judge that is passed in
    as an object must then not be bound to another loop. Raises DataError or ConfigError, both with `problems`.
    """
    return _in_a_loop(
        evaluate_async(
            data,
            metrics=metrics,
            judge=judge,
            embeddings=embeddings,
            fields=fields,
            limit=limit,
            concurrency=concurrency,
            run_file=run_file,
            on_progress=on_progress,
            source=source,
        )
    )


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
    """`evaluate`, in the event loop that is running."""
    samples, notes = reading.collect(enumerate(data, 1), limit=limit, renamed=fields)
    tables: dict[str, Any] = {}
    if isinstance(judge, config.Judge):
        tables["judge"], judge = judge, parts.LLM
    if isinstance(embeddings, config.Embeddings):
        tables["embeddings"], embeddings = embeddings, None
    if isinstance(metrics, Mapping):
        tables["metrics"] = {name: config.Metric(options=dict(options)) for name, options in metrics.items()}
        metrics = list(metrics)
    wanted = parts.Wanted(
        config=msgspec.structs.replace(config.Shared(), **tables),
        metrics=metrics,
        judge=judge,
        embeddings=embeddings,
        concurrency=concurrency,
    )
    return await evaluate_samples(
        samples, wanted, source=source, kept=Kept(run_file) if run_file else None, on_progress=on_progress, notes=notes
    )


async def evaluate_samples(
    samples: Sequence[Sample],
    wanted: parts.Wanted,
    *,
    source: str,
    kept: Kept | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    notes: Iterable[str] = (),
) -> Run:
    """Evaluate samples that are read already, and close `kept`. `on_plan` may refuse before anything is paid for.

    Raises ConfigError, what `on_plan` raises, and EngineError for the file of `kept`.
    """
    started = time.time()
    try:
        async with parts.opened(wanted) as (plan, more):
            if on_plan is not None:
                on_plan(plan)
            rows, progress = await run(samples, plan, kept=kept, on_progress=on_progress or (lambda _: None))
            return gathered(
                plan.measures(),
                rows,
                source=source,
                started=started,
                paid_usd=progress.usd,
                reused=progress.reused,
                notes=(*notes, *more),
            )
    finally:
        if kept is not None:
            await kept.aclose()


def _in_a_loop(evaluation: Coroutine[Any, Any, Run]) -> Run:
    """Run to the end; where a loop is running already, on a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(evaluation)
    ended: list[Run | BaseException] = []

    def work() -> None:
        try:
            ended.append(asyncio.run(evaluation))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            ended.append(error)

    thread = threading.Thread(target=work, name="gaugeway evaluate")
    thread.start()
    thread.join()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]
