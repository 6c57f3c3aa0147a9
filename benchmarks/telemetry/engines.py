"""Phoenix and MLflow as processes on free ports, and what they have stored, asked through their APIs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import installs

from gaugeway.records import Evaluation, Sample, Score
from monitors.exporters import retrieval_spans as retrieval
from monitors.metrics.judged.passage_verdicts import relevances

Row = tuple[str, str, bool]
START_S = 120
_SPAN = """query ($id: String!) { getSpanByOtelId(spanId: $id) {
  name spanKind parentId tokenCountTotal numDocuments attributes
  spanAnnotations { name score identifier annotatorKind explanation }
  documentEvaluations { name score documentPosition } } }"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Engine(ABC):
    """A server that is started in a directory of its own; it can be stopped and started again with what it has."""

    name = ""
    health = ""
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.title = f"{self.name} {installs.version(self.name)}"
        self._process: subprocess.Popen[bytes] | None = None
        self._home = Path()

    @property
    def headers_toml(self) -> str:
        return ", ".join(f'"{name}" = "{value}"' for name, value in self.headers.items())

    @contextlib.contextmanager
    def running(self, home: Path) -> Iterator[None]:
        self._home = home
        home.mkdir()
        try:
            self.start()
            yield
        finally:
            self.stop()

    def start(self) -> None:
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["nice", "-n", "19", *self.command()],
                cwd=self._home,
                env={**os.environ, **self.environment()},  # noqa: TID251 - passed on
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(self.url + self.health, timeout=2).is_success:
                    return
            time.sleep(0.3)
        raise SystemExit(f"{self.title} did not start:\n" + (self._home / "log").read_text()[-3000:])

    def stop(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]:
        return {}

    def deliveries(self, exchanges: int, metrics: int) -> int:
        """How many scores the sink has to deliver."""
        return exchanges * metrics

    @abstractmethod
    def scores(self, sample: Sample) -> list[tuple[str, float]]:
        """What is stored on the exchange's span."""

    @abstractmethod
    def spans(self, samples: list[Sample]) -> list[Row]: ...

    def documents(self, kept: list[tuple[Sample, list[Evaluation]]]) -> list[Row]:  # noqa: ARG002
        return []


class Phoenix(Engine):
    """Asked through GraphQL, as its own pages do."""

    name = "phoenix"
    health = "/healthz"
    headers = {"x-project-name": "planets"}  # noqa: RUF012

    def command(self) -> list[str]:
        return [str(installs.binary("phoenix", "phoenix")), "serve"]

    def environment(self) -> dict[str, str]:
        return {
            "PHOENIX_WORKING_DIR": str(self._home),
            "PHOENIX_PORT": str(self.port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }

    def deliveries(self, exchanges: int, metrics: int) -> int:
        return exchanges * (metrics + 2)  # and the relevance of two passages

    def _span(self, span_id: str) -> dict[str, Any]:
        body = {"query": _SPAN, "variables": {"id": span_id}}
        answer = httpx.post(f"{self.url}/graphql", json=body, timeout=30).raise_for_status().json()
        return (answer.get("data") or {}).get("getSpanByOtelId") or {}

    def scores(self, sample: Sample) -> list[tuple[str, float]]:
        annotations = self._span(sample.span_id or "").get("spanAnnotations") or []
        return sorted((one["name"], one["score"]) for one in annotations)

    def spans(self, samples: list[Sample]) -> list[Row]:
        exchanges = [self._span(sample.span_id or "") for sample in samples]
        kinds = [one.get("spanKind") for one in exchanges]
        tokens = [one.get("tokenCountTotal") or 0 for one in exchanges]
        passages = [self._span(retrieval.span_id(sample)) for sample in samples]
        shown = []
        for sample, one in zip(samples, passages, strict=True):
            found = json.loads(one.get("attributes") or "{}").get("retrieval", {}).get("documents", [])
            texts = [document["document"]["content"] for document in found]
            shown.append(
                one.get("spanKind") == "retriever"
                and one["parentId"] == sample.span_id
                and texts == [context.text for context in sample.contexts]
            )
        listed = httpx.get(f"{self.url}/v1/projects/planets/spans?limit=100", timeout=30).json()["data"]
        names = sorted({one["name"] for one in listed})
        kind_of = {one["name"]: one["span_kind"] for one in listed}
        return [
            ("spans in the project", f"{len(listed)}: {', '.join(names)}", len(listed) == 3 * len(samples)),
            ("exchange spans of kind LLM", str(kinds.count("llm")), kinds == ["llm"] * len(samples)),
            ("tokens on them", str(sum(tokens)), all(tokens)),
            ("retriever spans below them with the passages", str(sum(shown)), all(shown)),
            ("kind of the evaluation span", str(kind_of.get("evaluation planets")), "EVALUATOR" in kind_of.values()),
        ]

    def documents(self, kept: list[tuple[Sample, list[Evaluation]]]) -> list[Row]:
        wanted, stored = 0, 0
        right = True
        for sample, evaluations in kept:
            expected = sorted(
                (one.metric, place, value)
                for one in evaluations
                if isinstance(one.outcome, Score)
                for place, value in relevances(sample.contexts, one.outcome.evidence)
            )
            found = self._span(retrieval.span_id(sample)).get("documentEvaluations") or []
            there = sorted((one["name"], one["documentPosition"], one["score"]) for one in found)
            wanted, stored, right = wanted + len(expected), stored + len(there), right and there == expected
        return [("relevance stored on single passages, equal to ours", f"{stored} of {wanted}", right and stored > 0)]


class MLflow(Engine):
    """Asked through its REST API, version 3."""

    name = "mlflow"
    health = "/health"
    headers = {"x-mlflow-experiment-id": "0"}  # noqa: RUF012

    def command(self) -> list[str]:
        store = f"sqlite:///{self._home / 'mlflow.db'}"
        return [
            *(str(installs.binary("mlflow", "mlflow")), "server", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--workers", "1", "--backend-store-uri", store),
        ]

    def environment(self) -> dict[str, str]:
        folder = installs.binary("mlflow", "mlflow").parent
        return {
            "PATH": f"{folder}:{os.environ['PATH']}",  # noqa: TID251 - passed on
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "HOME": str(self._home),
        }

    def _get(self, path: str, **params: str) -> dict[str, Any]:
        answer = httpx.get(f"{self.url}/api/3.0/mlflow/traces/{path}", params=params, timeout=30)
        return answer.json() if answer.is_success else {}

    def scores(self, sample: Sample) -> list[tuple[str, float]]:
        info = self._get(f"tr-{sample.trace_id}").get("trace", {}).get("trace_info", {})
        return sorted(
            (one["assessment_name"], one["feedback"]["value"])
            for one in info.get("assessments", [])
            if one.get("span_id") == sample.span_id
        )

    def spans(self, samples: list[Sample]) -> list[Row]:
        names: list[str] = []
        shown = tokens = 0
        for sample in samples:
            trace = self._get("get", trace_id=f"tr-{sample.trace_id}").get("trace", {})
            names += [one["name"] for one in trace.get("spans", [])]
            text = json.dumps(trace)
            shown += all(context.text in text for context in sample.contexts)
            tokens += "mlflow.chat.tokenUsage" in text
        return [
            ("spans in the traces", f"{len(names)}: {', '.join(sorted(set(names)))}", len(names) == 2 * len(samples)),
            ("traces that show the passages", str(shown), shown == len(samples)),
            ("exchange spans whose tokens MLflow knows", str(tokens), tokens == len(samples)),
        ]


ENGINES = {"phoenix": Phoenix, "mlflow": MLflow}
