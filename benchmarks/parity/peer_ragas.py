"""ragas on the cases it is given on standard input; runs in ragas' own environment."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from openai import AsyncOpenAI
from ragas.embeddings.base import BaseRagasEmbedding
from ragas.llms import llm_factory
from ragas.metrics import collections as metrics
from ragas.metrics.collections import SemanticSimilarity

SAMPLE = {
    "faithfulness": ("user_input", "response", "retrieved_contexts"),
    "answer_relevancy": ("user_input", "response"),
    "context_relevancy": ("user_input", "retrieved_contexts"),
    "context_precision": ("user_input", "reference", "retrieved_contexts"),
    "context_utilization": ("user_input", "response", "retrieved_contexts"),
    "context_recall": ("user_input", "retrieved_contexts", "reference"),
    "context_entity_recall": ("reference", "retrieved_contexts"),
    "answer_correctness": ("user_input", "response", "reference"),
    "answer_similarity": ("reference", "response"),
    "noise_sensitivity": ("user_input", "response", "reference", "retrieved_contexts"),
}
CLASSES = {
    "faithfulness": metrics.Faithfulness,
    "answer_relevancy": metrics.AnswerRelevancy,
    "context_relevancy": metrics.ContextRelevance,
    "context_precision": metrics.ContextPrecision,
    "context_utilization": metrics.ContextUtilization,
    "context_recall": metrics.ContextRecall,
    "context_entity_recall": metrics.ContextEntityRecall,
    "answer_correctness": metrics.AnswerCorrectness,
    "answer_similarity": SemanticSimilarity,
    "noise_sensitivity": metrics.NoiseSensitivity,
}
EMBEDDED = ("answer_relevancy", "answer_correctness", "answer_similarity")


class Vectors(BaseRagasEmbedding):
    """The case's vectors; with a client, what the stub says, at its price in time."""

    def __init__(self, vectors, client=None):
        super().__init__()
        self.vectors, self.client = vectors, client

    def embed_text(self, text, **_):
        return self.vectors[text]

    async def aembed_text(self, text, **_):
        return (await self.aembed_texts([text]))[0]

    async def aembed_texts(self, texts, **_):
        if self.client is None:
            return [self.vectors[text] for text in texts]
        reply = await self.client.embeddings.create(model="stub", input=texts)
        return [one.embedding for one in reply.data]


def make(name, llm, vectors, options):
    given = {} if name == "answer_similarity" else {"llm": llm}
    if name in EMBEDDED:
        given["embeddings"] = vectors
    return CLASSES[name](**given, **options)


def fields(name, sample):
    every = {
        "user_input": sample["question"],
        "response": sample["response"],
        "reference": sample["reference"],
        "retrieved_contexts": sample["contexts"],
    }
    return {key: every[key] for key in SAMPLE[name]}


async def compare(task):
    found = {}
    for case, one in task["cases"].items():
        client = AsyncOpenAI(base_url=f"{task['url']}/{case}/v1", api_key="x", max_retries=0)
        llm = llm_factory("stub", client=client)
        metric = make(one["metric"], llm, Vectors(one["script"].get("vectors", {})), one["peer_options"])
        try:
            found[case] = float((await metric.ascore(**fields(one["metric"], one["sample"]))).value)
        except Exception as error:  # noqa: BLE001 - what happens is the result
            found[case] = f"{type(error).__name__}: {str(error)[:150]}"
    return found


async def cost(task):
    client = AsyncOpenAI(base_url=f"{task['url']}/marked/v1", api_key="x", max_retries=0)
    llm = llm_factory("stub", client=client)
    made = [make(name, llm, Vectors({}, client), {}) for name in task["metrics"]]
    at_once = asyncio.Semaphore(task["concurrency"])

    async def one(sample):
        async with at_once:
            names = zip(task["metrics"], made, strict=True)
            return await asyncio.gather(*(metric.ascore(**fields(name, sample)) for name, metric in names))

    begun = time.perf_counter()
    scored = await asyncio.gather(*(one(sample) for sample in task["samples"]))
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "values": [[float(result.value) for result in results] for results in scored]}


if __name__ == "__main__":
    task = json.load(sys.stdin)
    found = asyncio.run(compare(task) if "cases" in task else cost(task))
    sys.stdout.write("\n" + json.dumps(found) + "\n")
