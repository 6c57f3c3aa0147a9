"""The examples of extensions in CONTRIBUTING.md work as they stand, registered by the entry points shown there."""

import asyncio
import re
import socket
import tomllib
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gateway.capture.factory import extractors_of
from gateway.config import Capture
from gaugeway import evaluate, extensions, prompts
from gaugeway.exchange import Request, Response
from gaugeway.prompts import trace
from gaugeway.records import Evaluation, Sample, Score
from gaugeway.settings import convert
from gaugeway.settings.shared import Config
from monitors.alerting.notifiers.factory import open_notifiers
from monitors.exporters.factory import open_sinks
from monitors.exporters.instruments import Instruments
from tests.support.extension_packages import install
from tests.support.receivers import alert

TEXT = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text("utf-8")


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """The package of the examples, installed."""
    for name, code in re.findall(r"```python\n# (acme/\w+\.py)\n(.*?)```", TEXT, re.DOTALL):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code, "utf-8")
    (block,) = re.findall(r"```toml\n(\[project\.entry-points.*?)```", TEXT, re.DOTALL)
    points = tomllib.loads(block)["project"]["entry-points"]
    lines = [line for group, names in points.items() for line in (f"[{group}]", *map(" = ".join, names.items()))]
    install(tmp_path, "acme", *lines)
    monkeypatch.syspath_prepend(tmp_path)
    extensions.registered.cache_clear()
    prompts.default_order.cache_clear()
    yield tmp_path
    extensions.registered.cache_clear()
    prompts.default_order.cache_clear()


def test_the_metric_scores_a_data_set(acme):
    row = {
        "question": "q",
        "answer": "Two years [a].",
        "contexts": [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}],
    }
    (summary,) = evaluate([row], metrics=["citation"]).summary
    assert (summary.metric, summary.mean) == ("citation", 0.5)


def test_the_reader_is_used_by_default_where_its_evidence_belongs(acme):
    body = {"messages": [{"role": "user", "content": "How long?"}], "acme_passages": ["Two years."]}
    request = Request(route="chat_completions", headers={}, body=body)
    found = trace(request, Response(status=200, body={}), extractors_of(Capture()))
    assert [name for name, _ in found] == ["explicit", "tools", "results", "templates", "patterns", "acme"]
    assert [context.text for context in found[-1][1].contexts] == ["Two years."]


def test_a_registered_reader_that_cannot_be_imported_is_left_out_with_a_warning(tmp_path, monkeypatch, acme, caplog):
    install(tmp_path / "other", "other", "[gaugeway.readers]", "other = nowhere:Reader")
    monkeypatch.syspath_prepend(tmp_path / "other")
    extensions.registered.cache_clear()
    assert "other" not in prompts.default_order()
    assert caplog.messages == ["extractor left out: 'other': no module named 'nowhere'"]


def test_the_notifier_gets_an_alert(acme):
    table = {"kind": "journal", "path": str(acme / "journal")}
    config = convert({"notifiers": [table], "monitors": {"public_url": "https://quality.example"}}, Config)
    asyncio.run(open_notifiers(config)["journal-0"].notify(alert()))
    assert (acme / "journal").read_text().endswith(" https://quality.example\n")


def test_the_exporter_sends_a_score(acme):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(5)
        table = {"kind": "statsd", "url": f"udp://127.0.0.1:{server.getsockname()[1]}", "prefix": "rag."}
        (exporter,) = open_sinks(convert({"sinks": [table]}, Config), Instruments(CollectorRegistry(), version="0"))
        score = Evaluation(sample_id="s", metric="faithfulness", version="1", outcome=Score(0.25))
        exporter.export(Sample(id="s", started_at=0.0), [score])
        assert server.recv(100) == b"rag.faithfulness:0.25|g"
        asyncio.run(exporter.aclose())
