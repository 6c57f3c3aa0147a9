"""A verifier opened from a configuration, as the product opens it, and an answer to verify."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from gaugeway.records import Context, Sample
from gaugeway.settings.shared import GroundingVerifier, Judge
from monitors.evaluation.evaluator import evaluate
from monitors.evaluation.verifiers import open_verifier
from monitors.exporters.instruments import Instruments
from monitors.metrics.grounding import Grounding
from tests.support.verifier_server import TEMPLATE

TRUE = "The mill was built in 1907 by two brothers."
ALSO_TRUE = "It grinds wheat and rye."
FALSE = "It was sold to the city in 1931."
PASSAGES = (f"{TRUE} {ALSO_TRUE} It stands at the river.", "Bread is baked from flour and water.")
KINDS = {
    "lettucedetect chat": ("/v1", {"kind": "lettucedetect", "model": "lettucedect-v2"}),
    "lettucedetect spans": ("", {"kind": "lettucedetect", "api": "spans"}),
    "lettucedetect tokens": ("", {"kind": "lettucedetect", "api": "tokens"}),
    "minicheck": ("/v1", {"kind": "minicheck", "model": "bespoke-minicheck"}),
    "classify predict": ("", {"kind": "classify"}),
    "classify classify": ("", {"kind": "classify", "api": "classify", "model": "hhem", "template": TEMPLATE}),
}
"""Name -> path of the API on the scripted server, and the keys of `[judge.grounding]`."""


def sample(response: str = f"{TRUE} {FALSE}", *, passages=PASSAGES, id: str = "1", app: str = "shop") -> Sample:  # noqa: A002
    contexts = tuple(Context(text=text) for text in passages)
    return Sample(id=id, started_at=0.0, app=app, question="Who built the mill?", response=response, contexts=contexts)


def table(name: str, url: str, **more) -> GroundingVerifier:
    path, keys = KINDS[name]
    return GroundingVerifier(**{"base_url": url + path, "max_retries": 0, **keys, **more})


class Opened:
    """A verifier behind its whole stack, the metric on it, and the registry that counts."""

    def __init__(self, grounding: GroundingVerifier, *, answers=None, **judge) -> None:
        self.instruments = Instruments(CollectorRegistry(), version="0")
        self.verifier = open_verifier(Judge(grounding=grounding, **judge), self.instruments, answers=answers)
        self.metric = Grounding(self.verifier)

    def count(self, name: str, **labels: str) -> float:
        return self.instruments.registry.get_sample_value(f"gaugeway_{name}", labels) or 0.0

    async def scores(self, *samples: Sample, at_once: bool = True):
        """The evaluations of the samples."""
        calls = [evaluate(self.metric, one, rate=1.0, clock=asyncio.get_running_loop().time) for one in samples]
        return await asyncio.gather(*calls) if at_once else [await call for call in calls]


def run(opened: Opened, *samples: Sample, at_once: bool = True):
    async def main():
        try:
            return await opened.scores(*samples, at_once=at_once)
        finally:
            await opened.verifier.aclose()

    return asyncio.run(main())
