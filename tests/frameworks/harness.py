"""Runs a framework's pipelines through a live gateway and holds what was captured against what was retrieved."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gaugeway.records import Sample
from tests.frameworks import environment, model
from tests.support.llm_server import LLMServer, Request
from tests.support.running import running_gateway

PIPELINES = Path(__file__).resolve().parent / "pipelines"
_QUIET = {"HAYSTACK_TELEMETRY_ENABLED": "False", "OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
_TIMEOUT_S = 300


Outcomes: TypeAlias = "dict[tuple[str, str], Outcome]"
"""What came of each (mode, corpus)."""

RAN = pytest.StashKey[dict[str, Outcomes]]()
"""Where a test run keeps the outcomes of each framework."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One call of a pipeline: what it was, and what Gaugeway made of it."""

    kind: str
    expected: dict[str, Any]
    sample: Sample

    @property
    def question(self) -> bool:
        """Whether it will be judged as an answer, to the question that was asked."""
        return self.sample.question == self.expected["question"] and not self.apart

    @property
    def exact(self) -> bool:
        """Whether the passages were captured in order, to the letter, with id and source where the request says so."""
        found, wanted = self.sample.contexts, self.expected["passages"]
        return len(found) == len(wanted) and all(
            one.text == passage["text"] and passage["id"] in (None, one.id) and passage["source"] in (None, one.source)
            for one, passage in zip(found, wanted, strict=True)
        )

    @property
    def whole(self) -> bool:
        """Whether all texts were captured in order, whatever the cuts and the words between; blanks do not count."""
        found, position = _squeezed(*(one.text for one in self.sample.contexts)), 0
        for passage in self.expected["passages"]:
            text = _squeezed(passage["text"])
            position = found.find(text, position) + len(text)
            if position < len(text):
                return False
        return True

    @property
    def apart(self) -> bool:
        """Whether Gaugeway knows that this is no answer to score."""
        return self.sample.skip_reason is not None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One mode over one corpus."""

    framework: str
    mode: str
    corpus: str
    calls: tuple[Comparison, ...]
    requests: tuple[Request, ...]

    @property
    def answers(self) -> list[Comparison]:
        """The calls that answer."""
        return [call for call in self.calls if call.kind != "auxiliary"]

    @property
    def auxiliaries(self) -> list[Comparison]:
        """The calls that do not answer."""
        return [call for call in self.calls if call.kind == "auxiliary"]


def outcomes(framework: str, modes: Iterable[str]) -> Outcomes:
    """Run modes of a framework."""
    return asyncio.run(_outcomes(framework, list(modes)))


async def _outcomes(framework: str, modes: list[str]) -> Outcomes:
    with LLMServer(model.answer) as upstream:
        async with running_gateway(upstream.url) as gateway:
            runs = await asyncio.to_thread(_run, framework, modes, f"http://127.0.0.1:{gateway.port}/v1")
            samples = await gateway.samples(len(upstream.requests), within_s=60.0)
    captured: dict[str, list[Sample]] = defaultdict(list)
    for sample in sorted(samples, key=lambda one: one.started_at):
        captured[sample.app].append(sample)
    arrived: dict[str, list[Request]] = defaultdict(list)
    for request in upstream.requests:
        arrived[request.headers["x-test-run"]].append(request)
    return {(run["mode"], run["corpus"]): _outcome(framework, run, captured, arrived) for run in runs}


def _outcome(
    framework: str, run: dict[str, Any], captured: dict[str, list[Sample]], arrived: dict[str, list[Request]]
) -> Outcome:
    name = f"{run['mode']}/{run['corpus']}"
    if len(run["calls"]) != len(captured[name]):
        raise AssertionError(f"{framework} {name}: {len(run['calls'])} calls, {len(captured[name])} captured")
    pairs = zip(run["calls"], captured[name], strict=True)
    calls = tuple(Comparison(kind=call["kind"], expected=call, sample=sample) for call, sample in pairs)
    return Outcome(
        framework=framework, mode=run["mode"], corpus=run["corpus"], calls=calls, requests=tuple(arrived[name])
    )


def _squeezed(*texts: str) -> str:
    return "".join("".join(text.split()) for text in texts)


def _run(framework: str, modes: list[str], base_url: str) -> list[dict[str, Any]]:
    script = PIPELINES / f"{framework}_rag.py"
    command = [str(environment.interpreter(framework)), str(script), base_url, *modes]
    settings = os.environ | _QUIET  # noqa: TID251 - what a child process is given
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=settings, check=False)
    if done.returncode:
        raise AssertionError(f"{script.name} ended with {done.returncode}\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"mode"')]
