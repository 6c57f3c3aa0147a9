"""The exporter to Arize Phoenix: scores as annotations of the exchange's span, and of single passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from gaugeway.records import Sample
from monitors.exporters import retrieval_spans as retrieval
from monitors.exporters.outbox import Api, Delivery, Observer, OutboxExporter, SampleScores
from monitors.metrics.judged.passage_verdicts import relevances

Annotations: TypeAlias = tuple[str, list[dict[str, Any]]]
"""The resource and its annotations."""


class PhoenixSink(OutboxExporter[Annotations]):
    """Posts to `/v1/span_annotations` and, with `documents`, to `/v1/document_annotations`.

    With `sync`, Phoenix reports spans it does not know yet; these are retried later. It
    keeps one annotation for a span, name and identifier, so an evaluation that is sent twice is there once. The
    passages are on the retrieval span that goes out over OpenTelemetry with content on: without it leave `documents`
    off. Explanations quote the answer and are sent only with `content`.
    """

    def __init__(
        self,
        *,
        url: str,
        observe: Observer,
        api_key: str | None = None,
        metrics: Sequence[str] = ("*",),
        content: bool = False,
        documents: bool = False,
        timeout_s: float = 10.0,
        give_up_s: float = 600.0,
    ) -> None:
        super().__init__("phoenix", observe=observe, metrics=metrics, give_up_s=give_up_s)
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._api = Api(url, headers=headers, timeout_s=timeout_s)
        self._content = content
        self._documents = documents

    def prepare(self, sample: Sample, scores: Sequence[SampleScores]) -> Iterator[Delivery[Annotations]]:
        spans = [self._annotation(sample, scored) for scored in scores]
        yield Delivery(("span_annotations", spans), sample.id, len(spans))
        if self._documents:
            documents = [
                {
                    "span_id": retrieval.span_id(sample),
                    "document_position": place,
                    "name": scored.evaluation.metric,
                    "annotator_kind": _kind(scored),
                    "result": {"score": relevance},
                }
                for scored in scores
                for place, relevance in relevances(sample.contexts, scored.score.evidence)
            ]
            if documents:
                yield Delivery(("document_annotations", documents), f"{sample.id} documents", len(documents))

    async def send(self, item: Annotations) -> None:
        resource, data = item
        await self._api.call("POST", f"/v1/{resource}", {"data": data}, params={"sync": "true"})

    def _annotation(self, sample: Sample, scored: SampleScores) -> dict[str, Any]:
        result: dict[str, Any] = {"score": scored.score.value}
        if self._content and scored.score.reason:
            result["explanation"] = scored.score.reason
        return {
            "span_id": sample.span_id,
            "name": scored.evaluation.metric,
            "annotator_kind": _kind(scored),
            "identifier": scored.identity,
            "result": result,
            "metadata": {
                "exchange": sample.id,
                "app": sample.app,
                "version": scored.evaluation.version,
                **({"judge": scored.evaluation.judge} if scored.evaluation.judge else {}),
            },
        }


def _kind(scored: SampleScores) -> str:
    return "LLM" if scored.evaluation.judge else "CODE"
