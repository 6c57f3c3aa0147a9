"""The exporter to Langfuse: scores on the observation of the exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import httpx

from gaugeway.records import Sample
from monitors.exporters.outbox import Api, Delivery, Observer, OutboxExporter, SampleScores


class LangfuseSink(OutboxExporter[dict[str, Any]]):
    """Posts each score to `/api/public/scores`, with the project's two keys.

    Its id is made from the evaluation's identity, and Langfuse keeps one score for an id. It takes scores of a trace
    that it does not know yet. Comments quote the answer and are sent only with `content`.
    """

    def __init__(
        self,
        *,
        url: str,
        observe: Observer,
        public_key: str | None = None,
        secret_key: str | None = None,
        environment: str | None = None,
        metrics: Sequence[str] = ("*",),
        content: bool = False,
        timeout_s: float = 10.0,
        give_up_s: float = 600.0,
    ) -> None:
        keys = (("public_key", public_key), ("secret_key", secret_key))
        problems = [f"{name}: a langfuse sink needs it" for name, key in keys if not key]
        super().__init__("langfuse", observe=observe, metrics=metrics, give_up_s=give_up_s)
        try:
            self._api = Api(url, auth=httpx.BasicAuth(public_key or "", secret_key or ""), timeout_s=timeout_s)
        except ValueError as error:
            problems.append(str(error))
        if problems:
            raise ValueError("\n".join(problems))
        self._environment = environment
        self._content = content

    def prepare(self, sample: Sample, scores: Sequence[SampleScores]) -> Iterator[Delivery[dict[str, Any]]]:
        for scored in scores:
            yield Delivery(self._score(sample, scored), scored.identity, 1)

    async def send(self, item: dict[str, Any]) -> None:
        await self._api.call("POST", "/api/public/scores", item)

    def _score(self, sample: Sample, scored: SampleScores) -> dict[str, Any]:
        evaluation = scored.evaluation
        fields = {
            "id": sha256(scored.identity.encode()).hexdigest()[:32],
            "traceId": sample.trace_id,
            "observationId": sample.span_id,
            "name": evaluation.metric,
            "value": scored.score.value,
            "dataType": "NUMERIC",
            "comment": scored.score.reason if self._content and scored.score.reason else None,
            "environment": self._environment,
            "metadata": {
                "exchange": sample.id,
                "app": sample.app,
                "version": evaluation.version,
                "judge": evaluation.judge or "none",
                **({"conversation": name} if (name := sample.session or sample.conversation) else {}),
            },
        }
        return {key: value for key, value in fields.items() if value is not None}
