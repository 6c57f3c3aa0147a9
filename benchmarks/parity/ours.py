"""Gaugeway on the same cases, through the judge and the embeddings it ships."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gaugeway.records import Context, Failed, Sample, Score, Skipped
from gaugeway.settings.shared import Metric
from monitors.evaluation.evaluator import evaluate
from monitors.judges.openai import OpenAIJudge
from monitors.metrics.embeddings.openai import OpenAIEmbeddings
from monitors.metrics.registry import build


def sample_of(given: dict[str, Any], name: str) -> Sample:
    return Sample(
        id=name,
        started_at=0.0,
        question=given["question"],
        response=given["response"],
        reference=given["reference"],
        contexts=tuple(Context(text=text) for text in given["contexts"]),
        context_source="explicit",
    )


async def _value(name: str, case: dict[str, Any], url: str, mode: str) -> float | str:
    base = f"{url}/{name}/v1"
    judge = OpenAIJudge(base, None, "stub", concurrency=64)
    embeddings = OpenAIEmbeddings(base, None, "stub")
    catalogue = build({case["metric"]: Metric(options=case["options"])}, judge, embeddings, mode)
    metric = next(one.metric for one in catalogue.enabled if one.metric.name == case["metric"])
    outcome = (await evaluate(metric, sample_of(case["sample"], name), rate=1.0, clock=time.monotonic)).outcome
    await judge.aclose()
    await embeddings.aclose()
    match outcome:
        case Score(value=value):
            return value
        case Skipped(reason=reason):
            return f"skipped: {reason}"
        case Failed(error=error, detail=detail):
            return f"failed: {error}" + ("" if error == "unreadable" else f" {detail}")
    return re.sub(r"\s+", " ", repr(outcome))


async def compare(cases: dict[str, Any], url: str, mode: str) -> dict[str, float | str]:
    """Our outcome of every case."""
    return {name: await _value(name, case, url, mode) for name, case in cases.items()}


async def cost(task: dict[str, Any]) -> dict[str, Any]:
    """The four metrics on all samples, `concurrency` samples at once."""
    base = f"{task['url']}/marked/v1"
    judge, embeddings = OpenAIJudge(base, None, "stub", concurrency=1000), OpenAIEmbeddings(base, None, "stub")
    settings = {"lexical_groundedness": Metric(enabled=False)}
    catalogue = build(settings, judge, embeddings if task["questions"] else None, task["mode"])
    metrics = {one.metric.name: one.metric for one in catalogue.enabled}
    at_once = asyncio.Semaphore(task["concurrency"])

    async def one(number: int, given: dict[str, Any]) -> list[Any]:
        async with at_once:
            sample = sample_of(given, str(number))
            asked = (evaluate(metrics[name], sample, rate=1.0, clock=time.monotonic) for name in task["metrics"])
            return await asyncio.gather(*asked)

    begun = time.perf_counter()
    scored = await asyncio.gather(*(one(number, given) for number, given in enumerate(task["samples"])))
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "values": [[one.outcome.value for one in row] for row in scored]}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(asyncio.run(cost(json.load(sys.stdin)))) + "\n")
