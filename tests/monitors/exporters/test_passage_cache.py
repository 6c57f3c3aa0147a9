"""The series about parsed passages."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from gaugeway.records import Context, Sample
from monitors.exporters.prometheus import PassageCacheCollector
from monitors.metrics.lexical_groundedness import LexicalGroundedness


def test_hits_misses_and_size_are_read_when_asked_for():
    registry = CollectorRegistry()
    metric = LexicalGroundedness()
    registry.register(PassageCacheCollector(metric.passages))
    sample = Sample(
        id="s", started_at=0.0, response="Otters eat fish.", contexts=(Context(text="Otters eat fish and crabs."),)
    )
    for _ in range(3):
        asyncio.run(metric.score(sample))
    assert registry.get_sample_value("gaugeway_passage_lookups_total", {"result": "hit"}) == 2
    assert registry.get_sample_value("gaugeway_passage_lookups_total", {"result": "miss"}) == 1
    assert registry.get_sample_value("gaugeway_passage_cache_tokens") == 5
    assert registry.get_sample_value("gaugeway_passage_cache_bytes") == metric.passages.bytes > 5
