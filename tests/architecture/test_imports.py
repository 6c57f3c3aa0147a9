"""Who may import whom: one direction, no circles, and a pure core."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Package or module -> what of ours it may import, beside `monitors.records`, which everyone may. An entry that is no
# longer needed fails the test too.
OURS = ("gateway", "monitors", "dashboards")

ALLOWED = {
    "dashboards.grafana_src.build": "dashboards.grafana_src.app dashboards.grafana_src.pipeline dashboards.grafana_src.quality dashboards.grafana_src.traffic",
    "dashboards.grafana_src.app": "dashboards.grafana_src.board dashboards.grafana_src.panels",
    "dashboards.grafana_src.board": "dashboards.grafana_src.panels",
    "dashboards.grafana_src.pipeline": "dashboards.grafana_src.board dashboards.grafana_src.panels dashboards.grafana_src.backpressure",
    "dashboards.grafana_src.backpressure": "dashboards.grafana_src.panels",
    "dashboards.grafana_src.quality": "dashboards.grafana_src.board dashboards.grafana_src.panels",
    "dashboards.grafana_src.traffic": "dashboards.grafana_src.board dashboards.grafana_src.panels",
    "dashboards.web": "gateway.contexts gateway.exchange gateway.capture.stored_templates monitors.api.alerts monitors.alerting.engine monitors.api.app monitors.runtime.attempts monitors.runtime.audit monitors.analysis.capture_coverage monitors.analysis.ab_compare monitors.analysis.ab_binned monitors.analysis.ab_query monitors.config monitors.alerting.acknowledgements monitors.metrics monitors.alerting.notifiers monitors.offline monitors.analysis.prompt_text monitors.analysis.quality monitors.alerting.silences monitors.alerting.slices monitors.statistics monitors.storage.stores monitors.runtime.tasks monitors.alerting.repeat_policy monitors.storage.templates monitors.api.templates monitors.runtime.token_check monitors.alerting.versions monitors.alerting.rule_watch",  # noqa: E501
    "gateway.__main__": "gateway.cli.main",
    "gateway.access.accounting": "gateway.access.account gateway.exchange gateway.telemetry.metrics gateway.access.gate gateway.access.metering gateway.access.operations gateway.access.prices gateway.access.restrictions",  # noqa: E501
    "gateway.access.account": "gateway.access.token_bucket gateway.http.errors gateway.access.keys gateway.access.concurrency",
    "gateway.access.admission": "gateway.config gateway.telemetry.metrics gateway.access.key_sync gateway.access.key_stores gateway.access.gate gateway.access.shared_limits gateway.access.limit_sync monitors.runtime.settings monitors.storage.engines.sqlite monitors.runtime.tasks",  # noqa: E501
    "gateway.capture.response_text": "gateway.contexts gateway.exchange monitors.runtime.bounds",
    "gateway.app": "gateway.access.accounting gateway.access.admission gateway.proxy.cache gateway.config gateway.exchange gateway.proxy.fast_path gateway.handoff.buffer gateway.telemetry.metrics gateway.access.gate gateway.proxy.loops gateway.handoff.sampler_client gateway.http.origins gateway.access.prices gateway.proxy.handler gateway.capture.factory gateway.proxy.websocket gateway.reload gateway.api.health gateway.handoff.spill gateway.api.feedback gateway.http.url gateway.handoff.template_sync gateway.telemetry.tracing gateway.upstreams gateway.upstreams.router gateway.telemetry.worker_metrics monitors.runtime.audit monitors.config monitors.runtime.plugins monitors.storage.queues monitors.redaction.key monitors.runtime.serving monitors.runtime.settings monitors.runtime.otlp_exporters monitors.storage.templates",  # noqa: E501
    "gateway.capture.auxiliary_calls": "gateway.contexts gateway.exchange gateway.capture.instructions",
    "gateway.proxy.cache": "gateway.exchange",
    "gateway.capture.exchange_reader": "gateway.capture.response_text gateway.capture.auxiliary_calls gateway.contexts gateway.http.encoding gateway.exchange gateway.capture.prompt_version gateway.capture.duplicates gateway.http.sse monitors.runtime.bounds monitors.choosing",  # noqa: E501
    "gateway.cli.main": "dashboards.cli gateway.access.admission gateway.app gateway.config gateway.cli.config_schema gateway.demo gateway.cli.inspect gateway.cli.keys gateway.supervisor gateway.cli.templates monitors.app monitors.runtime.audit monitors.cli.main monitors.cli.compare monitors.config monitors.cli.config_option monitors.runtime.descriptors monitors.runtime.endpoints monitors.cli.forget monitors.cli.labels monitors.runtime.locking monitors.cli.migrate monitors.cli.evaluate monitors.runtime.serving monitors.runtime.settings monitors.cli.simulate",  # noqa: E501
    "gateway.proxy.client": "gateway.http.errors monitors.runtime.tasks",
    "gateway.config": "gateway.contexts gateway.http.url monitors.config monitors.runtime.endpoints monitors.runtime.plugins monitors.redaction monitors.runtime.settings",  # noqa: E501
    "gateway.cli.config_schema": "gateway.config monitors.config",
    "gateway.contexts": "gateway.exchange monitors.runtime.bounds",
    "gateway.demo": "gateway.contexts monitors.runtime.tasks",
    "gateway.proxy.fast_path": "gateway.http.errors gateway.exchange gateway.http.headers gateway.proxy.handler gateway.upstreams gateway.upstreams.router monitors.runtime.serving",  # noqa: E501
    "gateway.handoff.buffer": "gateway.http.encoding gateway.exchange gateway.telemetry.metrics gateway.handoff.sampler_client gateway.handoff.backpressure monitors.storage.engines.failures monitors.runtime.label_cap monitors.storage.queues monitors.runtime.tasks",  # noqa: E501
    "gateway.http.headers": "gateway.exchange",
    "gateway.cli.inspect": "gateway.config gateway.cli.inspection gateway.capture.factory monitors.config monitors.cli.config_option monitors.runtime.settings monitors.storage.stores",  # noqa: E501
    "gateway.cli.inspection": "gateway.capture.response_text gateway.capture.auxiliary_calls gateway.contexts gateway.exchange monitors.runtime.bounds monitors.analysis.prompt_text",  # noqa: E501
    "gateway.telemetry.metrics": "gateway.exchange gateway.telemetry.worker_metrics monitors.runtime.label_cap",
    "gateway.access.key_sync": "gateway.access.keys gateway.access.key_stores gateway.access.gate monitors.runtime.tasks",
    "gateway.access.keys": "gateway.http.errors gateway.exchange monitors.runtime.bounds",
    "gateway.cli.keys": "gateway.access.keys gateway.access.key_stores gateway.access.gate gateway.access.prices monitors.runtime.audit monitors.config monitors.cli.config_option monitors.runtime.settings",  # noqa: E501
    "gateway.access.key_stores": "gateway.access.keys gateway.access.prices gateway.access.key_names monitors.runtime.plugins monitors.storage.engines.postgres monitors.storage.engines.sqlite",  # noqa: E501
    "gateway.access.gate": "gateway.access.account gateway.access.token_bucket gateway.config gateway.http.errors gateway.exchange gateway.access.keys gateway.access.prices gateway.access.concurrency",  # noqa: E501
    "gateway.proxy.loops": "gateway.http.errors",
    "gateway.access.metering": "gateway.http.encoding gateway.exchange",
    "gateway.handoff.sampler_client": "gateway.config gateway.exchange gateway.handoff.sampler_process gateway.handoff.template_sync monitors.runtime.settings",  # noqa: E501
    "gateway.api.openapi": "gateway.api.feedback",
    "gateway.http.origins": "gateway.http.errors gateway.exchange gateway.http.headers",
    "gateway.handoff.backpressure": "monitors.storage.queues monitors.runtime.tasks",
    "gateway.access.prices": "gateway.config",
    "gateway.capture.prompt_version": "gateway.contexts gateway.exchange",
    "gateway.proxy.handler": "gateway.access.accounting gateway.proxy.cache gateway.proxy.client gateway.contexts gateway.http.errors gateway.exchange gateway.http.headers gateway.http.ids gateway.access.keys gateway.access.gate gateway.proxy.loops gateway.access.operations gateway.http.origins gateway.proxy.response gateway.access.restrictions gateway.upstreams.policy gateway.http.json_member gateway.http.url gateway.upstreams gateway.upstreams.router gateway.proxy.stream_usage monitors.runtime.serving",  # noqa: E501
    "gateway.capture.factory": "gateway.capture.exchange_reader gateway.config gateway.contexts gateway.capture.duplicates gateway.capture.stored_templates gateway.handoff.template_sync monitors.runtime.plugins monitors.redaction monitors.storage.templates",  # noqa: E501
    "gateway.proxy.websocket": "gateway.access.accounting gateway.contexts gateway.http.errors gateway.exchange gateway.http.headers gateway.access.keys gateway.access.gate gateway.proxy.loops gateway.access.metering gateway.access.operations gateway.http.origins gateway.proxy.handler gateway.access.restrictions gateway.http.url monitors.runtime.tasks",  # noqa: E501
    "gateway.proxy.response": "gateway.proxy.cache gateway.proxy.client gateway.exchange gateway.http.headers gateway.access.metering gateway.upstreams gateway.proxy.stream_usage",  # noqa: E501
    "gateway.reload": "gateway.config gateway.access.gate monitors.runtime.audit monitors.runtime.settings",
    "gateway.access.restrictions": "gateway.http.errors gateway.exchange gateway.access.keys gateway.access.operations",
    "gateway.api.health": "gateway.http.errors gateway.api.openapi gateway.api.feedback monitors.runtime.auth monitors.runtime.token_check",
    "gateway.upstreams.policy": "gateway.exchange gateway.http.json_cursor monitors.runtime.bounds",
    "gateway.handoff.sampler_process": "gateway.capture.exchange_reader gateway.config gateway.contexts gateway.exchange gateway.capture.factory gateway.capture.stored_templates monitors.storage.templates",  # noqa: E501
    "gateway.access.shared_limits": "gateway.access.token_bucket gateway.access.key_names monitors.runtime.plugins monitors.storage.engines.postgres monitors.storage.engines.redis",
    "gateway.snapshot": "monitors.runtime.settings",
    "gateway.handoff.spill": "gateway.handoff.backpressure monitors.storage.engines.failures monitors.storage.queues monitors.runtime.tasks",
    "gateway.http.json_member": "gateway.http.errors gateway.http.json_cursor",
    "gateway.capture.stored_templates": "gateway.contexts monitors.storage.templates",
    "gateway.supervisor": "gateway.config gateway.reload gateway.snapshot gateway.telemetry.worker_metrics monitors.runtime.audit monitors.runtime.settings monitors.runtime.tasks",  # noqa: E501
    "gateway.api.feedback": "gateway.contexts gateway.http.errors gateway.exchange gateway.telemetry.tracing monitors.runtime.bounds monitors.storage.engines.failures monitors.storage.queues monitors.runtime.tasks",  # noqa: E501
    "gateway.access.limit_sync": "gateway.access.gate gateway.access.shared_limits monitors.runtime.tasks",
    "gateway.http.url": "gateway.http.errors",
    "gateway.handoff.template_sync": "gateway.contexts gateway.capture.stored_templates monitors.storage.engines.failures monitors.runtime.tasks monitors.storage.templates",  # noqa: E501
    "gateway.cli.templates": "gateway.contexts gateway.capture.stored_templates monitors.runtime.audit monitors.config monitors.cli.store_options monitors.storage.templates",  # noqa: E501
    "gateway.telemetry.tracing": "gateway.exchange monitors.runtime.bounds",
    "gateway.upstreams": "gateway.exchange",
    "gateway.upstreams.router": "gateway.config gateway.upstreams.outlier_ejection gateway.http.errors gateway.exchange gateway.http.headers gateway.upstreams.policy gateway.http.url gateway.upstreams",  # noqa: E501
    "gateway.proxy.stream_usage": "gateway.exchange",
    "gateway.telemetry.worker_metrics": "monitors.runtime.tasks",
    "monitors": "monitors.offline",
    "monitors.__main__": "monitors.cli.main",
    "monitors.runtime.auth": "monitors.runtime.attempts monitors.runtime.audit monitors.runtime.token_check",
    "monitors.api.alerts": "monitors.runtime.audit monitors.alerting.acknowledgements monitors.alerting.notifiers monitors.alerting.silences",
    "monitors.alerting.engine": "monitors.evaluation.cause_judging monitors.alerting.causes monitors.config monitors.alerting.delivery monitors.alerting.description monitors.alerting.acknowledgements monitors.alerting.notifiers monitors.alerting.rules monitors.storage.stores monitors.alerting.stream monitors.alerting.repeat_policy monitors.alerting.versions monitors.alerting.rule_watch",  # noqa: E501
    "monitors.api.app": "monitors.runtime.auth monitors.analysis.capture_coverage monitors.alerting.acknowledgements monitors.api.openapi monitors.analysis.quality monitors.storage.stores monitors.runtime.token_check",  # noqa: E501
    "monitors.app": "dashboards.web monitors.runtime.auth monitors.api.alerts monitors.alerting.engine monitors.api.app monitors.runtime.audit monitors.evaluation.cause_judging monitors.api.compare monitors.config monitors.evaluation.embedding monitors.evaluation.evaluate monitors.exporters monitors.exporters.alert_gauges monitors.exporters.instruments monitors.evaluation.judging monitors.analysis.labelling_store monitors.api.labels monitors.storage.leader monitors.metrics monitors.alerting.notifiers.factory monitors.api.otlp monitors.scheduler monitors.evaluation.prompt_marking monitors.storage.queues monitors.redaction monitors.redaction.key monitors.alerting.rules monitors.api.rules monitors.runtime.serving monitors.runtime.settings monitors.exporters.factory monitors.storage.engines.sqlite monitors.storage.stores monitors.runtime.otlp_exporters monitors.storage.templates monitors.api.templates",  # noqa: E501
    "monitors.analysis.capture_coverage": "monitors.runtime.label_cap monitors.statistics monitors.storage.stores",
    "monitors.evaluation.cause_judging": "monitors.alerting.causes monitors.evaluation.evaluate monitors.metrics monitors.storage.stores monitors.alerting.stream",
    "monitors.alerting.causes": "monitors.statistics",
    "monitors.choosing": "monitors.sampling",
    "monitors.cli.main": "monitors.app monitors.config monitors.cli.config_option monitors.runtime.locking monitors.runtime.serving monitors.runtime.settings",  # noqa: E501
    "monitors.storage.engines.clickhouse": "monitors.storage.engines.failures monitors.storage.engines.migrate",
    "monitors.api.compare": "monitors.analysis.ab_compare monitors.analysis.ab_query monitors.metrics monitors.storage.stores",
    "monitors.analysis.ab_compare": "monitors.analysis.ab_binned monitors.statistics monitors.storage.stores monitors.alerting.stream",
    "monitors.cli.compare": "monitors.analysis.ab_compare monitors.analysis.ab_binned monitors.analysis.ab_query monitors.config monitors.cli.store_options monitors.storage.stores",  # noqa: E501
    "monitors.analysis.ab_binned": "monitors.statistics monitors.storage.stores",
    "monitors.analysis.ab_query": "monitors.analysis.ab_compare monitors.analysis.ab_binned monitors.alerting.slices monitors.storage.stores",
    "monitors.config": "monitors.runtime.endpoints monitors.alerting.notifiers monitors.runtime.options monitors.runtime.settings",
    "monitors.cli.config_option": "monitors.runtime.files",
    "monitors.alerting.delivery": "monitors.config monitors.alerting.acknowledgements monitors.alerting.notifiers monitors.storage.stores monitors.runtime.tasks monitors.alerting.repeat_policy",  # noqa: E501
    "monitors.alerting.description": "monitors.evaluation.cause_judging monitors.alerting.causes monitors.alerting.slices monitors.statistics monitors.storage.stores monitors.alerting.stream monitors.alerting.causes.topics monitors.alerting.rule_watch",  # noqa: E501
    "monitors.alerting.acknowledgements": "monitors.alerting.notifiers monitors.alerting.silences monitors.storage.stores",
    "monitors.alerting.detectors": "monitors.runtime.plugins monitors.statistics",
    "monitors.evaluation.embedding": "monitors.config monitors.metrics.embeddings monitors.exporters.instruments monitors.runtime.settings",
    "monitors.metrics.embeddings": "monitors.runtime.bounds monitors.judges monitors.runtime.replies monitors.runtime.tasks",
    "monitors.evaluation.evaluate": "monitors.judges monitors.metrics",
    "monitors.exporters": "monitors.exporters.instruments monitors.runtime.replies monitors.runtime.tasks",
    "monitors.storage.erase": "monitors.runtime.normalising",
    "monitors.cli.forget": "monitors.config monitors.storage.erase monitors.storage.queues monitors.cli.store_options monitors.storage.stores monitors.storage.templates",  # noqa: E501
    "monitors.exporters.alert_gauges": "monitors.alerting.engine monitors.alerting.delivery monitors.exporters.instruments monitors.runtime.label_cap monitors.alerting.versions",
    "monitors.runtime.plugins": "monitors.runtime.extras",
    "monitors.exporters.instruments": "monitors.analysis.capture_coverage monitors.analysis.human_labels monitors.runtime.label_cap monitors.analysis.quality",
    "monitors.storage.joining": "monitors.runtime.bounds",
    "monitors.judges": "monitors.runtime.bounds monitors.runtime.decay monitors.runtime.replies monitors.sampling monitors.storage.engines.sqlite",
    "monitors.evaluation.judging": "monitors.alerting.causes monitors.config monitors.exporters.instruments monitors.judges monitors.runtime.settings",
    "monitors.analysis.human_labels": "monitors.statistics monitors.storage.stores monitors.alerting.stream",
    "monitors.analysis.labelling_store": "monitors.analysis.human_labels monitors.metrics monitors.storage.stores",
    "monitors.runtime.label_cap": "monitors.runtime.bounds",
    "monitors.api.labels": "monitors.analysis.human_labels monitors.analysis.labelling_store monitors.storage.stores",
    "monitors.cli.labels": "monitors.config monitors.analysis.human_labels monitors.analysis.labelling_store monitors.offline monitors.statistics monitors.cli.store_options monitors.storage.stores",  # noqa: E501
    "monitors.storage.leader": "monitors.runtime.plugins monitors.storage.stores monitors.runtime.tasks",
    "monitors.storage.leader.postgres": "monitors.storage.leader monitors.storage.engines.postgres monitors.storage.stores monitors.runtime.tasks",
    "monitors.metrics": "monitors.config monitors.metrics.embeddings monitors.runtime.plugins monitors.judges monitors.runtime.normalising monitors.runtime.options monitors.runtime.settings monitors.runtime.tasks",  # noqa: E501
    "monitors.storage.copy": "monitors.storage.queues monitors.storage.stores",
    "monitors.cli.migrate": "monitors.config monitors.storage.engines.migrate monitors.storage.copy monitors.storage.engines.postgres monitors.storage.queues monitors.runtime.settings monitors.storage.engines.sqlite monitors.cli.store_options monitors.storage.stores monitors.storage.templates",  # noqa: E501
    "monitors.alerting.notifiers": "monitors.runtime.replies",
    "monitors.alerting.notifiers.factory": "monitors.config monitors.runtime.endpoints monitors.runtime.plugins monitors.alerting.notifiers monitors.runtime.options monitors.runtime.settings",  # noqa: E501
    "monitors.offline": "monitors.config monitors.evaluation.embedding monitors.metrics.embeddings monitors.evaluation.evaluate monitors.runtime.plugins monitors.exporters.instruments monitors.judges monitors.evaluation.judging monitors.metrics monitors.runtime.settings monitors.storage.engines.sqlite monitors.storage.stores",  # noqa: E501
    "monitors.cli.evaluate": "monitors.config monitors.cli.config_option monitors.offline monitors.runtime.settings monitors.storage.stores",
    "monitors.api.openapi": "monitors.api.alerts monitors.alerting.engine monitors.analysis.capture_coverage monitors.analysis.ab_compare monitors.alerting.acknowledgements monitors.analysis.human_labels monitors.analysis.quality monitors.alerting.silences monitors.storage.stores monitors.storage.templates monitors.alerting.versions",  # noqa: E501
    "monitors.runtime.options": "monitors.runtime.plugins monitors.runtime.settings",
    "monitors.api.otlp": "monitors.runtime.bounds monitors.storage.engines.failures monitors.runtime.settings",
    "monitors.evaluation.persist": "monitors.storage.engines.failures monitors.storage.queues monitors.storage.stores monitors.runtime.tasks",
    "monitors.scheduler": "monitors.alerting.engine monitors.analysis.capture_coverage monitors.choosing monitors.config monitors.evaluation.evaluate monitors.exporters monitors.exporters.instruments monitors.storage.joining monitors.judges monitors.evaluation.judging monitors.analysis.labelling_store monitors.runtime.label_cap monitors.storage.leader monitors.metrics monitors.evaluation.backpressure monitors.evaluation.prompt_marking monitors.analysis.quality monitors.storage.queues monitors.sampling monitors.runtime.settings monitors.judges.spending monitors.statistics monitors.storage.stores monitors.runtime.tasks monitors.evaluation.worker",  # noqa: E501
    "monitors.storage.engines.postgres": "monitors.storage.engines.failures monitors.storage.engines.migrate",
    "monitors.evaluation.backpressure": "monitors.runtime.decay",
    "monitors.evaluation.prompt_marking": "monitors.judges monitors.metrics monitors.storage.templates",
    "monitors.analysis.quality": "monitors.statistics monitors.storage.stores",
    "monitors.storage.queues": "monitors.runtime.bounds monitors.storage.erase monitors.runtime.plugins monitors.storage.engines.postgres monitors.storage.engines.redis monitors.storage.engines.sqlite",  # noqa: E501
    "monitors.storage.engines.redis": "monitors.storage.engines.failures",
    "monitors.alerting.rules": "monitors.config monitors.alerting.detectors monitors.runtime.plugins monitors.runtime.options monitors.alerting.slices monitors.alerting.stream monitors.alerting.rule_watch",  # noqa: E501
    "monitors.api.rules": "monitors.api.alerts monitors.runtime.audit monitors.alerting.versions",
    "monitors.runtime.serving": "monitors.runtime.descriptors",
    "monitors.runtime.settings": "monitors.runtime.plugins monitors.runtime.placeholders",
    "monitors.analysis.simulate": "monitors.alerting.detectors monitors.statistics monitors.storage.stores monitors.alerting.stream",
    "monitors.cli.simulate": "monitors.config monitors.alerting.detectors monitors.analysis.labelling_store monitors.alerting.rules monitors.analysis.simulate monitors.analysis.simulate_report monitors.cli.store_options monitors.storage.stores monitors.alerting.stream",  # noqa: E501
    "monitors.analysis.simulate_report": "monitors.analysis.simulate",
    "monitors.exporters.factory": "monitors.config monitors.exporters monitors.runtime.plugins monitors.exporters.instruments monitors.runtime.options monitors.runtime.settings",  # noqa: E501
    "monitors.alerting.slices": "monitors.storage.stores",
    "monitors.judges.spending": "monitors.judges monitors.storage.stores",
    "monitors.storage.engines.sqlite": "monitors.storage.engines.failures monitors.runtime.files",
    "monitors.cli.store_options": "monitors.config monitors.cli.config_option monitors.evaluation.embedding monitors.exporters.instruments monitors.evaluation.judging monitors.metrics monitors.offline monitors.runtime.settings monitors.storage.stores",  # noqa: E501
    "monitors.storage.stores": "monitors.runtime.bounds monitors.storage.engines.clickhouse monitors.storage.engines.failures monitors.storage.erase monitors.runtime.plugins monitors.storage.joining monitors.storage.engines.postgres monitors.redaction monitors.storage.engines.sqlite monitors.statistics monitors.runtime.tasks",  # noqa: E501
    "monitors.alerting.stream": "monitors.alerting.detectors monitors.storage.stores",
    "monitors.runtime.otlp_exporters": "monitors.runtime.replies monitors.runtime.settings",
    "monitors.alerting.repeat_policy": "monitors.config",
    "monitors.storage.templates": "monitors.storage.engines.clickhouse monitors.storage.erase monitors.runtime.plugins monitors.storage.engines.postgres monitors.storage.engines.sqlite monitors.storage.stores",  # noqa: E501
    "monitors.api.templates": "monitors.api.alerts monitors.runtime.audit monitors.storage.templates",
    "monitors.testing": "monitors.config monitors.metrics.embeddings monitors.judges monitors.metrics monitors.offline",
    "monitors.runtime.token_check": "monitors.runtime.attempts",
    "monitors.alerting.causes.topics": "monitors.runtime.normalising",
    "monitors.alerting.versions": "monitors.storage.stores",
    "monitors.alerting.rule_watch": "monitors.config monitors.alerting.detectors monitors.alerting.slices monitors.statistics monitors.storage.stores monitors.alerting.stream",  # noqa: E501
    "monitors.evaluation.worker": "monitors.runtime.bounds monitors.choosing monitors.storage.engines.failures monitors.evaluation.evaluate monitors.exporters monitors.storage.joining monitors.judges monitors.metrics monitors.evaluation.persist monitors.evaluation.backpressure monitors.storage.queues monitors.storage.stores monitors.runtime.tasks",  # noqa: E501
}

PURE = (
    "monitors/records.py",
    "monitors/storage/joining.py",
    "monitors/sampling.py",
    "monitors/alerting/causes",
    "monitors/analysis/prompt_text.py",
    "monitors/alerting/causes/topics.py",
    "monitors/alerting/slices.py",
    "monitors/alerting/stream.py",
    "monitors/alerting/rule_watch.py",
    "monitors/alerting/versions.py",
    "monitors/analysis/quality.py",
    "monitors/choosing.py",
    "monitors/statistics",
    "monitors/alerting/detectors",
    "gateway/http/sse.py",
    "gateway/http/json_member.py",
    "gateway/http/encoding.py",
    "gateway/exchange.py",
    "gateway/capture/exchange_reader.py",
    "gateway/http/headers.py",
    "gateway/http/url.py",
    "gateway/contexts",
    "gateway/upstreams/policy.py",
    "gateway/upstreams/outlier_ejection.py",
    "gateway/proxy/stream_usage.py",
    "gateway/capture/response_text.py",
    "gateway/access/prices.py",
    "gateway/access/token_bucket.py",
    "gateway/access/key_names.py",
    "monitors/runtime/attempts.py",
    "monitors/runtime/decay.py",
    "monitors/evaluation/backpressure.py",
)
IMPURE = {"asyncio", "httpx", "openai", "sqlite3", "aiosqlite", "socket", "time", "datetime", "os", "random", "secrets"}


def files(root: Path) -> list[Path]:
    return [root] if root.is_file() else sorted(root.rglob("*.py"))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = ROOT.joinpath(*node.module.split("."))
            for alias in node.names:
                deeper = (inside / f"{alias.name}.py").exists() or (inside / alias.name).is_dir()
                found.add(f"{node.module}.{alias.name}" if deeper else node.module)
    return found


def room(module: str) -> str:
    """A module's package or top-level module: gateway.contexts.tool_messages -> gateway.contexts."""
    return ".".join(module.split(".")[:2])


def ours() -> list[Path]:
    return [path for package in OURS for path in files(ROOT / package)]


def edges() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in ours():
        here = room(module_of(path))
        others = {room(name) for name in imported(path) if name.split(".")[0] in OURS}
        if others := others - {here, "monitors.records"}:
            found.setdefault(here, set()).update(others)
    return found


def test_every_room_imports_exactly_what_it_may():
    assert edges() == {here: set(names.split()) for here, names in ALLOWED.items()}


def test_the_monitors_never_import_the_gateway():
    assert not [
        name for here, names in edges().items() if here.startswith("monitors") for name in names if "gateway" in name
    ]


def test_no_two_rooms_need_each_other_even_by_a_detour():
    graph = edges()
    order: list[str] = []

    def visit(here: str, path: tuple[str, ...]) -> None:
        assert here not in path, " -> ".join([*path, here])
        if here not in order:
            for there in sorted(graph.get(here, ())):
                visit(there, (*path, here))
            order.append(here)

    for here in sorted(graph):
        visit(here, ())


def test_records_import_nothing_of_ours():
    assert not {
        name for name in imported(ROOT / "monitors/records.py") if name.split(".")[0] in ("gateway", "monitors")
    }


@pytest.mark.parametrize("part", PURE)
def test_the_core_is_pure(part):
    for path in files(ROOT / part):
        assert not {name.split(".")[0] for name in imported(path)} & IMPURE, path


def test_only_the_places_that_put_things_together_name_adapters():
    adapters = {
        module_of(path)
        for package in ("queues", "stores", "judges", "embeddings", "exporters", "notifiers")
        for path in (ROOT / "monitors" / package).glob("*.py")
        if path.stem
        not in (
            "__init__",
            "opening",
            "reading",
            "sdk",
            "body",
            "patience",
            "anchors",
            "pacing",
            "spans",
            "clickhouse_schema",
        )  # shared
    } | {"gateway.upstreams.httpx"}
    for path in ours():
        module = module_of(path)
        named = {name for name in imported(path) if name in adapters and room(name) != room(module)}
        assert not named or module in ("gateway.app", "monitors.app", "monitors.evaluation.judging"), (module, named)


def test_the_standard_library_is_known_to_this_test():
    assert sys.stdlib_module_names >= {name for name in IMPURE if name not in {"httpx", "openai", "aiosqlite"}}
