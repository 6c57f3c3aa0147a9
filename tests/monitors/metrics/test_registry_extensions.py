"""What the registered metrics declare, those of other installed packages too."""

import pytest

from gaugeway import extensions
from gaugeway.settings import shared as config
from monitors.metrics import registry
from monitors.metrics.registry import build
from tests.support.extension_packages import install

METRICS = """
from gaugeway import Score


class Length:
    name, version, on_by_default, lower_is_better, measures = "length", "1", True, True, "answer"

    async def score(self, sample):
        return Score(0.5)


class Lenient:
    model = "lenient"

    async def ask(self, prompt, schema):
        return schema


class First:
    version = "1"

    def __init__(self, *, k: int):
        self.name = f"first@{k}"

    async def score(self, sample):
        return Score(0.5)
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    lines = ["length = lengths:Length", "first@K = lengths:First", "broken = lengths_without:Nothing"]
    install(tmp_path, "lengths", "[gaugeway.metrics]", *lines, "[gaugeway.judges]", "lenient = lengths:Lenient")
    (tmp_path / "lengths.py").write_text(METRICS)
    monkeypatch.syspath_prepend(tmp_path)
    extensions.registered.cache_clear()
    yield
    extensions.registered.cache_clear()


def test_an_installed_metric_runs_and_says_of_itself_what_the_product_asks(installed):
    catalogue = build({"first@3": config.Metric()}, None, None)
    assert {"length", "first@3", "lexical_groundedness"} == {enabled.metric.name for enabled in catalogue.enabled}
    assert registry.zero_is_best("length")
    assert registry.declared("length", "measures") == "answer"
    assert "first@5" in registry.at_rank(5)
    assert {"length", "first@K"} <= set(registry.known())


def test_a_metric_has_an_installed_judge_by_its_name(installed):
    (judged,) = [
        enabled.metric
        for enabled in build({"faithfulness": config.Metric(options={"judge": "lenient"})}, None, None).enabled
        if enabled.metric.name == "faithfulness"
    ]
    assert judged.judge == "lenient"


def test_an_installed_metric_that_cannot_be_imported_is_noted_and_stops_nothing(installed):
    (note,) = [note for note in build({}, None, None).notes if note.startswith("broken")]
    assert note == "broken does not run: 'lengths_without:Nothing': no module named 'lengths_without'"


def test_a_signal_can_be_best_at_zero_too():
    assert registry.zero_is_best("abstained")
    assert not registry.zero_is_best("unheard_of")
