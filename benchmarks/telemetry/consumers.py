"""The product with real Phoenix and MLflow behind it: what arrives there, read back through their own APIs.

python benchmarks/telemetry/installs.py         # once
python benchmarks/telemetry/consumers.py     # writes results/consumers.md
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import httpx
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import installs  # noqa: E402 - from beside this file
from engines import ENGINES, Engine  # noqa: E402

from gateway.telemetry.tracing import OTelSpans, Server  # noqa: E402
from gaugeway.exchange import ExchangeSummary, Trace  # noqa: E402
from gaugeway.extensions import load, registered  # noqa: E402
from gaugeway.records import Evaluation, Sample, Score, Usage  # noqa: E402
from gaugeway.runtime import otlp_exporters as telemetry  # noqa: E402
from gaugeway.storage.stores import from_url  # noqa: E402
from monitors.exporters.langfuse import LangfuseSink  # noqa: E402
from monitors.exporters.outbox import OutboxExporter, SampleScores  # noqa: E402
from tests.integration.test_opentelemetry import Collector  # noqa: E402
from tests.support.product import Product, product  # noqa: E402
from tests.support.scripted_model import Model, serve  # noqa: E402

CONFIG = """
[[upstreams]]
base_url = "{model}"

[judge]
base_url = "{model}"
model = "judge-1"

[metrics.faithfulness]
rate = 1.0

[metrics.context_relevancy]
rate = 1.0

[telemetry]
otlp_endpoint = "{engine}"
otlp_headers = {{ {headers} }}
content = true
events = false

[[sinks]]
kind = "{kind}"
url = "{engine}"
content = true
metrics = ["faithfulness", "context_relevancy", "lexical_groundedness"]
"""
PASSAGES = {
    "Mars": ["Mars has two moons, Phobos and Deimos.", "Venus has no moon."],
    "Jupiter": ["Jupiter has 95 known moons.", "Jupiter is a gas giant."],
    "Saturn": ["Saturn has rings of ice.", "Saturn has 146 known moons."],
    "Neptune": ["Neptune has 16 known moons.", "Triton orbits Neptune backwards."],
}
METRICS = ("faithfulness", "context_relevancy", "lexical_groundedness")


def ask(running: Product) -> None:
    """Every second exchange belongs to a trace of the app's, whose own spans go elsewhere."""
    for index, (planet, passages) in enumerate(PASSAGES.items()):
        traceparent = f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"
        httpx.post(
            f"{running.base_url}/chat/completions",
            headers={"traceparent": traceparent} if index % 2 else {},
            json={
                "model": "m",
                "messages": [{"role": "user", "content": f"How many moons has {planet}?"}],
                "gaugeway": {"contexts": passages, "app": "planets", "session": "s1"},
            },
            timeout=30,
        ).raise_for_status()


def counted(running: Product) -> dict[str, int]:
    results = ("sent", "retried", "overflow", "gave_up", "refused", "no_trace", "unsent")
    name = "gaugeway_sink_results_total"
    return {one: int(found) for one in results if (found := running.value(running.monitors, name, result=one))}


def through_the_product(engine: Engine, scratch: Path) -> tuple[dict[str, int], list[tuple[Sample, list[Evaluation]]]]:
    """Ask, wait until all is sent, and return the counts and what the store has."""
    with serve(Model()) as model:
        config = CONFIG.format(model=model, engine=engine.url, headers=engine.headers_toml, kind=engine.name)
        with product(scratch, config) as running:
            ask(running)
            enough = engine.deliveries(len(PASSAGES), len(METRICS))
            running.until(lambda: counted(running).get("sent", 0) >= enough, 90, what=f"{enough} are sent")
            time.sleep(8)  # spans leave every 5 s, and anything too much would come now
            counts = counted(running)
            rows = running.get("/api/exchanges?limit=100")
            ids = sorted({one["sample_id"] for one in rows})
        store = from_url(f"sqlite:///{(scratch / 'data/store.db').absolute()}")

        async def read() -> list[tuple[Sample, list[Evaluation]]]:
            found = [await store.sample(one) for one in ids]
            await store.aclose()
            return [(one[0], sent(one[1])) for one in found if one is not None]

        return counts, asyncio.run(read())


def sent(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Those that the sink is given."""
    return [one for one in evaluations if one.metric in METRICS]


def scores_of(evaluations: list[Evaluation]) -> dict[str, float]:
    return {one.metric: one.outcome.value for one in evaluations if isinstance(one.outcome, Score)}


class Counts(dict[str, int]):
    """What became of how many scores."""

    def __call__(self, result: str, scores: int) -> None:
        self[result] = self.get(result, 0) + scores

    async def until(self, result: str, scores: int, within_s: float = 60.0) -> None:
        async with asyncio.timeout(within_s):
            while self.get(result, 0) < scores:  # noqa: ASYNC110 - a count has no event
                await asyncio.sleep(0.02)


def sink(engine: Engine, counts: Counts) -> OutboxExporter:
    return load(engine.name, registered("exporters"))(url=engine.url, observe=counts, content=True)


async def send_again(engine: Engine, kept: list[tuple[Sample, list[Evaluation]]]) -> Counts:
    """Send everything twice more."""
    counts = Counts()
    exporter = sink(engine, counts)
    for _ in range(2):
        for sample, evaluations in kept:
            exporter.export(sample, evaluations)
    await counts.until("sent", 2 * len(METRICS) * len(kept))
    await exporter.aclose()
    return counts


async def before_the_span(engine: Engine, sample: Sample) -> tuple[Counts, Sample, float]:
    """Send a score two seconds before its span exists."""
    counts = Counts()
    early = replace(sample, id="early", trace_id=os.urandom(16).hex(), span_id=os.urandom(8).hex())
    score = Evaluation(sample_id="early", metric="faithfulness", version="1", outcome=Score(0.25))
    exporter = sink(engine, counts)
    exporter.export(early, [score])
    await counts.until("retried", 2)
    await asyncio.to_thread(emit, engine.url, engine.headers, early)
    begin = time.monotonic()
    await counts.until("sent", 1)
    await exporter.aclose()
    return counts, early, time.monotonic() - begin


def emit(url: str, headers: dict[str, str], sample: Sample) -> None:
    """Export the exchange's span as the gateway does."""
    processor = SimpleSpanProcessor(telemetry.span_exporter(url, headers))
    spans = OTelSpans(processor, servers={"default": Server("127.0.0.1", 80)})
    assert sample.trace_id is not None
    assert sample.span_id is not None
    spans.emit(
        ExchangeSummary(
            id=sample.id,
            app=sample.app,
            route="chat_completions",
            model="m",
            stream=False,
            started_at=time.time(),
            duration_s=0.1,
            ending="complete",
            status=200,
            trace=Trace(sample.trace_id, sample.span_id),
            usage=Usage(input_tokens=1, output_tokens=1),
        )
    )
    processor.shutdown()


async def while_it_is_down(engine: Engine, sample: Sample) -> Counts:
    """Send a score while the engine is stopped, and start it again."""
    counts = Counts()
    exporter = sink(engine, counts)
    engine.stop()
    late = Evaluation(sample_id=sample.id, metric="faithfulness", version="next", outcome=Score(0.75))
    exporter.export(sample, [late])
    await counts.until("retried", 2)
    await asyncio.to_thread(engine.start)
    await counts.until("sent", 1, 90.0)
    await exporter.aclose()
    return counts


def check(engine: Engine) -> list[tuple[str, str, bool]]:
    """Run it all against one engine: (what, what was found, whether it is as it should be)."""
    rows: list[tuple[str, str, bool]] = []
    with tempfile.TemporaryDirectory(prefix="gaugeway-telemetry-") as directory:
        scratch = Path(directory)
        with engine.running(scratch / "engine"):
            (scratch / "product").mkdir()
            counts, kept = through_the_product(engine, scratch / "product")
            samples = [sample for sample, _ in kept]
            expected = {sample.id: scores_of(evaluations) for sample, evaluations in kept}
            sent = engine.deliveries(len(kept), len(METRICS))
            rows.append(("exchanges asked, evaluated", f"{len(PASSAGES)}, {len(kept)}", len(kept) == len(PASSAGES)))
            clean = set(counts) <= {"sent", "retried"} and counts.get("sent") == sent
            rows.append(("scores by the product's own count", json.dumps(counts), clean))

            def compare(what: str) -> None:
                stored = {sample.id: engine.scores(sample) for sample in samples}
                right = stored == {one: sorted(found.items()) for one, found in expected.items()}
                rows.append((what, f"{sum(map(len, stored.values()))} scores", right))

            rows += engine.spans(samples)
            compare("scores stored, equal to ours")
            again = asyncio.run(send_again(engine, kept))
            rows.append(("all sent twice more", json.dumps(again), set(again) == {"sent"}))
            compare("scores stored after that")
            rows += engine.documents(kept)
            counts, early, waited = asyncio.run(before_the_span(engine, samples[0]))
            there = engine.scores(early) == [("faithfulness", 0.25)]
            text = f"{json.dumps(counts)}, stored {waited:.1f} s after its span"
            rows.append(("a score sent before its span", text, there and set(counts) == {"sent", "retried"}))
            counts = asyncio.run(while_it_is_down(engine, samples[0]))
            there = ("faithfulness", 0.75) in engine.scores(samples[0])
            rows.append(("a score sent while the engine was down", json.dumps(counts), there))
    return rows


SCORE = """
import json, sys
from langfuse.api.core.pydantic_utilities import parse_obj_as
from langfuse.api.core.serialization import convert_and_respect_annotation_metadata
from langfuse.api.scores import CreateScoreRequest
score = parse_obj_as(CreateScoreRequest, json.load(sys.stdin))
fields = score.model_dump(mode="json", exclude_none=True)
written = convert_and_respect_annotation_metadata(object_=fields, annotation=CreateScoreRequest, direction="write")
print(json.dumps([written, sorted(score.model_extra or {})]))
"""


def langfuse() -> list[tuple[str, str, bool]]:
    """Compare what we send with what the official client of Langfuse 4 declares and sends."""
    sample = Sample(id="x1", started_at=0.0, app="shop", trace_id="0" * 31 + "1", span_id="0" * 15 + "1")
    score = Evaluation(sample_id="x1", metric="faithfulness", version="1", outcome=Score(0.5, "half"), judge="judge-1")
    keys = {"public_key": "pk", "secret_key": "sk", "environment": "production"}
    exporter = LangfuseSink(url="http://127.0.0.1:9", observe=lambda *_: None, content=True, **keys)
    (delivery,) = exporter.prepare(sample, [SampleScores(score, Score(0.5, "half"))])
    python = installs.binary("langfuse", "python")
    run = subprocess.run(
        [str(python), "-c", SCORE], input=json.dumps(delivery.item), capture_output=True, text=True, check=True
    )
    understood = json.loads(run.stdout)
    source = next(python.parents[1].glob("lib/*/site-packages/langfuse/_client/span_processor.py"))
    name = "x-langfuse-ingestion-version"
    wanted = re.findall(rf'"{name}": "(\w+)"', source.read_text())
    with contextlib.closing(Collector()) as collector:
        emit(f"{collector.url}/api/public/otel", {"authorization": "Basic abc"}, sample)
    sent = [headers[name] for headers in collector.headers]
    fields = f"{len(delivery.item)} fields, unknown: {len(understood[1])}"
    return [
        ("a score by the client's schema of `POST /api/public/scores`", fields, understood == [delivery.item, []]),
        (f"`{name}`: the client's, ours", f"{wanted}, {sent}", wanted == sent),
    ]


def main(names: list[str]) -> int:
    """Check each engine and write the table."""
    lines = [
        "# What Phoenix and MLflow receive",
        "",
        "Written by `benchmarks/telemetry/consumers.py`: real servers with SQLite on this machine, the product between",
        "them and the scripted model, everything read back through the servers' own APIs.",
        "Langfuse cannot be run this way (it needs PostgreSQL, ClickHouse, Redis and S3): what is sent to it is",
        "compared with its official client, and the sink is tested against a server that checks the documented schema,",
        "`tests/monitors/exporters/test_langfuse.py`.",
    ]
    failed = False
    for name in names or [*ENGINES, "langfuse"]:
        engine = ENGINES[name]() if name in ENGINES else None
        rows = langfuse() if engine is None else check(engine)
        title = f"client of Langfuse 4, langfuse {installs.version(name)}" if engine is None else engine.title
        lines += ["", f"## {title}", "", "| what | found | |", "|---|---|---|"]
        lines += [f"| {what} | {found} | {'ok' if right else '**wrong**'} |" for what, found, right in rows]
        failed = failed or not all(right for _, _, right in rows)
        print("\n".join(lines[-len(rows) - 4 :]), flush=True)
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results/consumers.md").write_text("\n".join([*lines, ""]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
