"""The exporter to MLflow 3: scores as assessments (feedback) on traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx

from gaugeway.records import Sample
from monitors.exporters.outbox import Api, Delivery, Observer, OutboxExporter, SampleScores

IDENTITY = "gaugeway.evaluation.id"


class Assessments(NamedTuple):
    """The assessments of one exchange and its trace."""

    trace_id: str
    assessments: list[dict[str, Any]]


class MLflowSink(OutboxExporter[Assessments]):
    """Writes to `/api/3.0/mlflow/traces/{trace}/assessments`.

    MLflow assigns each assessment an id and would keep a second copy: ours carries the evaluation's identity
    in its metadata, is looked for first, and changed where it differs. A trace that came over OpenTelemetry is called
    `tr-` and its trace id. `public_key` and `secret_key` are user and password of a server with basic authentication.
    Rationales quote the answer and are sent only with `content`.
    """

    def __init__(
        self,
        *,
        url: str,
        observe: Observer,
        api_key: str | None = None,
        public_key: str | None = None,
        secret_key: str | None = None,
        metrics: Sequence[str] = ("*",),
        content: bool = False,
        timeout_s: float = 10.0,
        give_up_s: float = 600.0,
    ) -> None:
        super().__init__("mlflow", observe=observe, metrics=metrics, give_up_s=give_up_s)
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        auth = httpx.BasicAuth(public_key, secret_key or "") if public_key else None
        self._api = Api(url, headers=headers, auth=auth, timeout_s=timeout_s)
        self._content = content

    def prepare(self, sample: Sample, scores: Sequence[SampleScores]) -> Iterator[Delivery[Assessments]]:
        trace_id = f"tr-{sample.trace_id}"
        assessments = [self._assessment(sample, trace_id, scored) for scored in scores]
        yield Delivery(Assessments(trace_id, assessments), trace_id, len(assessments))

    async def send(self, item: Assessments) -> None:
        path = f"/api/3.0/mlflow/traces/{item.trace_id}"
        trace = (await self._api.call("GET", path)).get("trace") or {}
        stored = (trace.get("trace_info") or {}).get("assessments") or []
        known = {_identity(assessment): assessment for assessment in stored}
        for assessment in item.assessments:
            if (there := known.get(assessment["metadata"][IDENTITY])) is None:
                await self._api.call("POST", f"{path}/assessments", {"assessment": assessment})
            elif _differs(there, assessment):
                changed: dict[str, Any] = {
                    key: assessment[key] for key in ("feedback", "rationale") if key in assessment
                }
                body: dict[str, Any] = {
                    "assessment": {**changed, "trace_id": item.trace_id, "assessment_id": there["assessment_id"]},
                    "update_mask": ",".join(changed),
                }
                await self._api.call("PATCH", f"{path}/assessments/{there['assessment_id']}", body)

    def _assessment(self, sample: Sample, trace_id: str, scored: SampleScores) -> dict[str, Any]:
        evaluation = scored.evaluation
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {
            "assessment_name": evaluation.metric,
            "trace_id": trace_id,
            "span_id": sample.span_id,
            "source": {
                "source_type": "LLM_JUDGE" if evaluation.judge else "CODE",
                "source_id": evaluation.judge or "gaugeway",
            },
            "create_time": now,
            "last_update_time": now,
            "feedback": {"value": scored.score.value},
            "metadata": {
                IDENTITY: scored.identity,
                "gaugeway.evaluation.version": evaluation.version,
                "gaugeway.exchange.id": sample.id,
                "gaugeway.app": sample.app,
            },
            **({"rationale": scored.score.reason} if self._content and scored.score.reason else {}),
        }


def _identity(stored: dict[str, Any]) -> str:
    metadata: dict[str, str] = stored.get("metadata") or {}
    return metadata.get(IDENTITY, "")


def _differs(stored: dict[str, Any], assessment: dict[str, Any]) -> bool:
    value = (stored.get("feedback") or {}).get("value")
    return bool(
        value != assessment["feedback"]["value"]
        or ("rationale" in assessment and stored.get("rationale") != assessment["rationale"])
    )
