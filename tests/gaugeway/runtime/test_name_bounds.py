"""Names and counts are bounded where a sample enters the monitors, from whatever gateway it comes."""

import asyncio
import time
from dataclasses import replace

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import CaptureInfo, Context, Evaluation, PromptPart, Sample, Score, Skipped, Supplement, Usage
from gaugeway.runtime.label_cap import MAX_PAIRS
from gaugeway.sampling import MetricSampler
from gaugeway.settings.bounds import (
    MAX_NAME,
    MAX_PARTS,
    MAX_REASON,
    MAX_TAGS,
    MAX_TOKENS,
    bounded_name,
    bounded_sample,
    token_count,
)
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Point, Summary
from monitors.alerting.changes import ENOUGH, MAX_APPS, Versions
from monitors.analysis.quality import largest
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.persist import WorkerObserver
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.exporters.factory import PrometheusExporter
from monitors.exporters.instruments import Instruments
from monitors.metrics.registry import Enabled

LONG = "x" * 50_000


def _has_reference(found):
    return found is not None and found[0].reference is not None


class Fine:
    """A metric that takes everything with a reference."""

    name, version, judge = "fine", "1", None

    async def score(self, sample):
        return Score(1.0) if sample.reference else Skipped("no_reference")


def sample(name="s", **fields):
    return Sample(id=name, started_at=time.time(), response="Yes.", **fields)


def evaluated(path, samples, supplements=(), done=lambda found: found is not None):
    """Run these through a worker as an older gateway would have queued them; what is stored, and `/metrics`."""
    registry = CollectorRegistry()

    async def run():
        queue, store = MemoryQueue(), SQLiteStore(path)
        await queue.put(samples)
        await queue.supply(supplements)
        observer = WorkerObserver()
        observer.failed = pytest.fail
        worker = Worker(
            queue,
            store,
            Evaluator([Enabled(metric=Fine(), rate=1.0, threshold=0.5, objective=0.9)], MetricSampler("s")),
            settings=WorkerSettings(concurrency=4, poll_s=0.01),
            exporters=[PrometheusExporter(Instruments(registry, version="1"), {})],
            observer=observer,
        )
        running = asyncio.ensure_future(worker.run())
        async with asyncio.timeout(60):
            while not all(done(found) for found in [await store.sample(one.id) for one in samples]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        worker.stop()
        await running
        stored = [await store.sample(one.id) for one in samples]
        await store.aclose()
        return [found[0] for found in stored if found is not None]

    return asyncio.run(run()), generate_latest(registry)


def test_a_sample_of_an_older_gateway_is_stored_with_bounded_names_and_counts(tmp_path):
    odd = sample(
        app=LONG,
        model=LONG,
        session="a\x00b",
        tags={f"t{number}": LONG for number in range(1000)},
        context_key=LONG,
        response_id=LONG,
        contexts=(Context(text="t", id=LONG, source=LONG),),
        usage=Usage(input_tokens=10**30, output_tokens=3),
    )
    (stored,), shown = evaluated(tmp_path / "s.db", [odd])
    assert len(stored.app) == len(stored.model) == len(stored.context_key) == len(stored.response_id) == MAX_NAME
    assert "\x00" not in stored.session
    assert len(stored.tags) == 2 * MAX_TAGS
    assert all(len(value) == MAX_NAME for value in stored.tags.values())
    assert len(stored.contexts[0].id) == len(stored.contexts[0].source) == 1000
    assert stored.usage == Usage(input_tokens=None, output_tokens=3)
    assert len(shown) < 20_000


def test_a_supplement_still_finds_its_sample_when_their_key_is_cut(tmp_path):
    said = Supplement(id="1", received_at=1.0, source="feedback", key=LONG, reference="The reference.")
    (stored,), _ = evaluated(tmp_path / "s.db", [sample(context_key=LONG)], [said], _has_reference)
    assert stored.reference == "The reference."


def test_how_a_sample_was_found_is_bounded():
    texts = ["Short.", "ä" * 40_000, "b" * 40_000]
    parts = tuple(
        PromptPart(role=LONG, kind="instructions", start=n, end=n + 1, text=one) for n, one in enumerate(texts)
    )
    passages = tuple(PromptPart(role="user", kind="passage", start=n, end=n + 1, passage=n) for n in range(MAX_PARTS))
    found = CaptureInfo(source=LONG, marker="a\nb", reason=LONG, parts=(*parts, *passages))
    kept = bounded_sample(sample(capture=replace(found, parts=parts))).capture
    assert (len(kept.source), kept.marker[:3], len(kept.reason)) == (MAX_NAME, "a\ufffdb", MAX_REASON)
    assert [len(one.text.encode()) for one in kept.parts] == [6, 16_380, 16_381]
    assert kept.shortened
    assert {len(one.role) for one in kept.parts} == {MAX_NAME}
    assert bounded_sample(sample(capture=found)).capture.parts == passages
    fits = CaptureInfo(source="documents", parts=passages)
    assert bounded_sample(sample(capture=fits)).capture == fits
    again = bounded_sample(sample(capture=kept)).capture
    assert again == kept


def test_bounding_twice_changes_nothing():
    once = bounded_sample(sample(app=LONG, model="a\nb", tags={LONG: "\ud800"}))
    assert bounded_sample(once) == once


def test_what_is_fit_stays():
    for name in ("support", "日本 語", "a b", "👩‍👧", "x" * MAX_NAME, ""):
        assert bounded_name(name) == name


@pytest.mark.parametrize("odd", ["a\x00", "a\x1b[31m", "a\u202e", "a\u2066", "a\ud800", "a\x7f", "a\u2028", "a\ufeff"])
def test_what_is_unfit_can_be_encoded_and_stays_distinct(odd):
    found = bounded_name(odd)
    assert found.encode()
    assert found != bounded_name(odd + odd)
    assert found.startswith("a\ufffd")


@pytest.mark.parametrize("odd", [10**30, -1, True, "7", 1.0, None, MAX_TOKENS + 1])
def test_a_count_that_cannot_be_is_none(odd):
    assert token_count(odd) is None


@pytest.mark.full
def test_pairs_of_app_and_model_are_bounded():
    registry = CollectorRegistry()
    exporter = PrometheusExporter(Instruments(registry, version="1"), {})
    for app in range(60):
        for model in range(60):
            one = sample(app=f"a{app}", model=f"m{model}")
            exporter.export(one, [Evaluation(sample_id="s", metric="fine", version="1", outcome=Score(1.0))])
    counts = [s for f in registry.collect() for s in f.samples if s.name == "gaugeway_score_count"]
    assert MAX_PAIRS <= len(counts) <= MAX_PAIRS + 60
    assert sum(one.value for one in counts) == 3600


def point(number, app):
    return Point(
        sample_id=f"{app}-{number}",
        started_at=float(number),
        app=app,
        model="m",
        metric="x",
        outcome="score",
        value=1.0,
        reason="",
        rate=1.0,
    )


def test_versions_of_apps_with_traffic_stay_while_clients_invent_apps():
    versions = Versions()
    versions.notice([point(number, "real") for number in range(2 * ENOUGH)])
    for page in range(20):
        versions.notice([point(page, f"{page}-{number}") for number in range(500)])
    assert all(len(some) <= MAX_APPS for some in msgspec.json.decode(versions.dumps()))
    assert [one.app for one in versions.all()] == ["real"]
    versions.notice([point(number, "late") for number in range(2 * ENOUGH)])
    assert {one.app for one in versions.all()} == {"real", "late"}


def summary(app, n):
    return Summary(app=app, metric="m", slice="", n=n, failed=0, w=n, wx=n, w2=n, w2x=n, w2x2=n)


def test_of_many_streams_those_with_the_most_scores_are_kept():
    kept = largest([*(summary(f"a{number}", 1) for number in range(100)), summary("real", 50)], 10)
    assert len(kept) == 10
    assert kept[0].app == "real"
