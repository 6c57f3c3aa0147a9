"""deepeval on the cases it is given on standard input; runs in deepeval's own environment."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from deepeval import metrics
from deepeval.models import GPTModel, LocalModel
from deepeval.test_case import LLMTestCase, SingleTurnParams

CLASSES = {
    "faithfulness": metrics.FaithfulnessMetric,
    "answer_relevancy": metrics.AnswerRelevancyMetric,
    "context_relevancy": metrics.ContextualRelevancyMetric,
    "hallucination": metrics.HallucinationMetric,
    "context_precision": metrics.ContextualPrecisionMetric,
    "context_recall": metrics.ContextualRecallMetric,
}


def case_of(sample):
    return LLMTestCase(
        input=sample["question"],
        actual_output=sample["response"],
        expected_output=sample["reference"],
        retrieval_context=sample["contexts"],
        context=sample["contexts"],
    )


def make(one, url):
    if not one["metric"].startswith("geval:"):
        model = LocalModel(model="stub", base_url=url, api_key="x")
        return CLASSES[one["metric"]](model=model, async_mode=False, include_reason=False, **one["peer_options"])
    with_logprobs = one["peer_options"].get("logprobs", True)
    model = (
        GPTModel(model="gpt-4.1", base_url=url, api_key="x")
        if with_logprobs
        else LocalModel(model="stub", base_url=url, api_key="x")
    )
    return metrics.GEval(
        name="tone",
        criteria=one["options"]["criteria"],
        evaluation_steps=one["options"]["steps"],
        evaluation_params=[SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT],
        model=model,
        async_mode=False,
    )


def compare(task):
    found = {}
    for case, one in task["cases"].items():
        metric = make(one, f"{task['url']}/{case}/v1")
        try:
            found[case] = float(metric.measure(case_of(one["sample"]), _show_indicator=False))
        except Exception as error:  # noqa: BLE001 - what happens is the result
            found[case] = f"{type(error).__name__}: {str(error)[:150]}"
    return found


async def cost(task):
    url, reasons = f"{task['url']}/marked/v1", task["reasons"]
    at_once = asyncio.Semaphore(task["concurrency"])

    def made():  # a deepeval metric keeps its last result in itself: one for each sample
        model = LocalModel(model="stub", base_url=url, api_key="x")
        return [CLASSES[name](model=model, include_reason=reasons) for name in task["metrics"]]

    async def one(sample):
        async with at_once:
            case = case_of(sample)
            return await asyncio.gather(*(metric.a_measure(case, _show_indicator=False) for metric in made()))

    begun = time.perf_counter()
    scored = await asyncio.gather(*(one(sample) for sample in task["samples"]))
    return {"seconds": time.perf_counter() - begun, "values": [[float(one) for one in values] for values in scored]}


if __name__ == "__main__":
    task = json.load(sys.stdin)
    found = compare(task) if "cases" in task else asyncio.run(cost(task))
    sys.stdout.write("\n" + json.dumps(found) + "\n")
