"""Series about the cache of parsed passages."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gaugeway.text.lexical.passages import PassageCache


class PassageCacheCollector(Collector):
    """Reads hits, misses and size of a cache when Prometheus asks."""

    def __init__(self, cache: PassageCache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        lookups = CounterMetricFamily(
            "gaugeway_passage_lookups", "Passages looked up by lexical_groundedness.", labels=("result",)
        )
        lookups.add_metric(("hit",), self._cache.hits)
        lookups.add_metric(("miss",), self._cache.misses)
        yield lookups
        yield GaugeMetricFamily("gaugeway_passage_cache_tokens", "Tokens of the parsed passages.", self._cache.tokens)
        size = "Estimated memory of the parsed passages, in bytes."
        yield GaugeMetricFamily("gaugeway_passage_cache_bytes", size, self._cache.bytes)
