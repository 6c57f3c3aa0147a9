"""A real Prometheus that scrapes what it is told, and the questions Grafana would ask it."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx

from tests.support.prometheus_server import prometheus_server

NUMBER = re.compile(r'\[[0-9.]+,"-?[0-9]')
"""A time and a finite value in an answer; answers to some panels are of megabytes, so they are not decoded for it."""


class Prometheus:
    """A running server; `began` is when it was started."""

    def __init__(self, url: str) -> None:
        self.began = time.time()
        self._client = httpx.Client(base_url=f"{url}/api/v1", timeout=120, trust_env=False)

    def ready(self) -> bool:
        """Whether it has scraped something."""
        with contextlib.suppress(httpx.HTTPError):
            started = self._client.get("/status/runtimeinfo").status_code == 200
            return started and bool(self.values("up", "job"))
        return False

    def shows(self, expr: str) -> bool:
        """Whether a range query over all that happened has a number in it, as a panel would show."""
        answer = self._client.get(
            "/query_range", params={"query": expr, "start": self.began, "end": time.time(), "step": 1}
        )
        assert answer.status_code == 200, answer.text
        return NUMBER.search(answer.text) is not None

    def values(self, selector: str, label: str) -> list[str]:
        """What `label_values(selector, label)` gives."""
        answer = self._client.get(f"/label/{label}/values", params={"match[]": selector, "start": self.began})
        assert answer.status_code == 200, answer.text
        return [value for value in answer.json()["data"] if value]

    def exemplars(self, expr: str) -> list[Mapping[str, str]]:
        """The labels of the exemplars behind an expression."""
        params = {"query": expr, "start": self.began, "end": time.time()}
        found = self._client.get("/query_exemplars", params=params).json()["data"]
        return [one["labels"] for series in found for one in series["exemplars"]]

    def rules(self) -> dict[str, str]:
        """Rule -> its health."""
        groups = self._client.get("/rules").json()["data"]["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def close(self) -> None:
        """Ask no more."""
        self._client.close()


@contextlib.contextmanager
def prometheus(directory: Path, jobs: Mapping[str, str], rules: Path) -> Iterator[Prometheus]:
    """Scrape `jobs` (name -> host and port) every second and evaluate `rules`."""
    config = directory / "prometheus.yml"
    targets = "".join(f"- {{job_name: {name}, static_configs: [{{targets: ['{at}']}}]}}\n" for name, at in jobs.items())
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{rules}]\nscrape_configs:\n{targets}"
    )
    with prometheus_server(directory, config, ["--enable-feature=exemplar-storage", "--log.level=warn"]) as url:
        server = Prometheus(url)
        try:
            yield server
        finally:
            server.close()
