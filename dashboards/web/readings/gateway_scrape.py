"""Reads the gateways' counters from their admin ports."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families

from monitors.analysis.gateway_counts import Reading

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 5.0
"""Of reading and parsing: on a busy machine this process waits for the processor longer than for the gateway."""
MAX_BYTES = 16 * 1024 * 1024
ADMIN_HOST, ADMIN_PORT = "127.0.0.1", 9464
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - compared with, not bound to


class Series:
    """Values by series name and labels.

    >>> series = Series([("a_total", {"app": "x"}, 2.0), ("a_total", {"app": "y"}, 3.0)])
    >>> series.total("a_total"), series.total("a_total", app="x"), series.by("a_total", "app")
    (5.0, 2.0, {'x': 2.0, 'y': 3.0})
    """

    def __init__(self, values: Iterable[tuple[str, Mapping[str, str], float]] = ()) -> None:
        self._values: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for name, labels, value in values:
            self._values.setdefault(name, []).append((labels, value))

    def rows(self, name: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Every series of that name."""
        return self._values.get(name, ())

    def total(self, name: str, **labels: str) -> float:
        """Sum over all series with these labels; 0 without any."""
        return sum(value for found, value in self.rows(name) if labels.items() <= found.items())

    def by(self, name: str, *labels: str) -> dict[str, float]:
        """Sums by label values, joined with a space."""
        sums: dict[str, float] = {}
        for found, value in self.rows(name):
            key = " ".join(found.get(label, "") for label in labels).strip()
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def value(self, name: str) -> float | None:
        """Value of a gauge without labels; None if absent."""
        return self.rows(name)[0][1] if self.rows(name) else None

    def plus(self, other: Series) -> Series:
        """The series of both."""
        mine = [(name, labels, value) for name, found in self._values.items() for labels, value in found]
        more = [(name, labels, value) for name, found in other._values.items() for labels, value in found]
        return Series(mine + more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Response of one gateway: its series, or an error."""

    url: str
    series: Series
    error: str = ""


def gateway_urls(configured: Sequence[str] | None, gateway: Mapping[str, Any]) -> tuple[str, ...]:
    """The base URLs of the gateways' admin ports: `[monitors] gateways`, or that of the same file's `[gateway]`.

    >>> gateway_urls(None, {"admin_host": "::", "admin_port": 1234})
    ('http://[::1]:1234',)
    >>> gateway_urls(["http://a:9464/"], {})
    ('http://a:9464',)
    """
    if configured is not None:
        return tuple(address.rstrip("/") for address in configured)
    host = str(gateway.get("admin_host", ADMIN_HOST))
    host = _ANYWHERE.get(host, host)
    return (f"http://{f'[{host}]' if ':' in host else host}:{gateway.get('admin_port', ADMIN_PORT)}",)


def series_of(families: Iterable[Metric]) -> Series:
    """The samples of our metric families; histograms are left out."""
    return Series(
        (sample.name, sample.labels, sample.value)
        for family in families
        if family.name.startswith("gaugeway_") and family.type != "histogram"
        for sample in family.samples
    )


def together(answers: Iterable[Answer]) -> Series:
    """The series of all gateways."""
    total = Series()
    for answer in answers:
        total = total.plus(answer.series)
    return total


def reading_of(answer: Answer) -> Reading:
    """The exchanges that a gateway counted, by app and outcome."""
    exchanges: dict[tuple[str, str], float] = {}
    for labels, value in answer.series.rows("gaugeway_exchanges_total"):
        key = labels.get("app", ""), labels.get("outcome", "")
        exchanges[key] = exchanges.get(key, 0.0) + value
    return Reading(url=answer.url, exchanges=exchanges)


async def own(registry: CollectorRegistry) -> Series:
    """Counters of this process, collected in a thread as for `/metrics`."""
    return await asyncio.to_thread(lambda: series_of(registry.collect()))


async def ask_all(urls: Sequence[str], token: str | None, *, only: tuple[str, ...] = ()) -> list[Answer]:
    """Query all gateways concurrently; `only` names the series to parse, histograms' buckets included."""
    import httpx  # noqa: PLC0415 - only once the page is looked at: 6 MB, 40 ms

    headers = {"authorization": f"Bearer {token}"} if token else {}
    plain = all(url.lower().startswith("http:") for url in urls)  # and redirects are not followed
    tls = not plain and _tls_context()
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, headers=headers, verify=tls) as client:
        return list(await asyncio.gather(*(_ask(client, url, only) for url in urls)))


@cache
def _tls_context() -> ssl.SSLContext:
    """Load the certificates once: that takes tens of milliseconds."""
    import httpx  # noqa: PLC0415 - as above

    return httpx.create_ssl_context(trust_env=False)


async def _ask(client: httpx.AsyncClient, url: str, only: tuple[str, ...]) -> Answer:
    import httpx  # noqa: PLC0415 - as above

    try:
        async with asyncio.timeout(TIMEOUT_S):
            text = await _read(client, f"{url}/metrics")
            return Answer(url=url, series=await asyncio.to_thread(_parsed, text, only))
    except TimeoutError:
        return Answer(url=url, series=Series(), error=f"no answer within {TIMEOUT_S:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        return Answer(url=url, series=Series(), error=f"{type(error).__name__}: {error}"[:200])


def _parsed(text: str, only: tuple[str, ...]) -> Series:
    """The series of an answer. Without their TYPE lines the buckets of a histogram are series like any other."""
    if only:  # parsing a line takes ten times as long as skipping it
        text = "".join(line for line in text.splitlines(keepends=True) if line.startswith(only))
    return series_of(text_string_to_metric_families(text))


async def _read(client: httpx.AsyncClient, url: str) -> str:
    async with client.stream("GET", url) as response:
        if response.status_code != HTTPStatus.OK:
            raise ValueError(f"HTTP {response.status_code}")
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
        return body.decode()
