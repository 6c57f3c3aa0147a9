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
    "dashboards.build": "dashboards.drilldown dashboards.pipeline dashboards.quality dashboards.traffic",
    "dashboards.drilldown": "dashboards.frame dashboards.panels",
    "dashboards.frame": "dashboards.panels",
    "dashboards.pipeline": "dashboards.frame dashboards.panels dashboards.pressure",
    "dashboards.pressure": "dashboards.panels",
    "dashboards.quality": "dashboards.frame dashboards.panels",
    "dashboards.traffic": "dashboards.frame dashboards.panels",
    "dashboards.web": "gateway.contexts gateway.exchange gateway.stored_templates monitors.alert_api monitors.alerts monitors.api monitors.attempts monitors.audit monitors.capture_coverage monitors.comparing monitors.comparing_counts monitors.comparing_store monitors.config monitors.desk monitors.metrics monitors.notifiers monitors.offline monitors.prompt_text monitors.quality monitors.silences monitors.slicing monitors.statistics monitors.stores monitors.tasks monitors.telling monitors.templates monitors.templates_api monitors.token_check monitors.versions monitors.watching",  # noqa: E501
    "gateway.__main__": "gateway.cli",
    "gateway.accounting": "gateway.accounts gateway.exchange gateway.instruments gateway.limits gateway.metering gateway.operations gateway.prices gateway.restrictions",  # noqa: E501
    "gateway.accounts": "gateway.buckets gateway.errors gateway.keys gateway.turnstile",
    "gateway.admission": "gateway.config gateway.instruments gateway.keeper gateway.keystores gateway.limits gateway.sharing gateway.syncing monitors.settings monitors.sqlite monitors.tasks",  # noqa: E501
    "gateway.answers": "gateway.contexts gateway.exchange monitors.bounds",
    "gateway.app": "gateway.accounting gateway.admission gateway.cache gateway.config gateway.exchange gateway.express gateway.handoff gateway.instruments gateway.limits gateway.loops gateway.offload gateway.origins gateway.prices gateway.proxy gateway.reading gateway.realtime gateway.reloading gateway.routes gateway.spill gateway.supplements gateway.target gateway.template_sync gateway.tracing gateway.upstream gateway.upstreams gateway.worker_metrics monitors.audit monitors.config monitors.importer monitors.queues monitors.redaction_key monitors.serving monitors.settings monitors.telemetry monitors.templates",  # noqa: E501
    "gateway.auxiliary": "gateway.contexts gateway.exchange gateway.instructions",
    "gateway.cache": "gateway.exchange",
    "gateway.capture": "gateway.answers gateway.auxiliary gateway.contexts gateway.encoding gateway.exchange gateway.prompts gateway.resubmissions gateway.sse monitors.bounds monitors.choosing",  # noqa: E501
    "gateway.cli": "dashboards.cli gateway.admission gateway.app gateway.config gateway.config_schema gateway.demo gateway.inspect_cli gateway.keys_cli gateway.supervisor gateway.templates_cli monitors.app monitors.audit monitors.cli monitors.comparing_cli monitors.config monitors.config_option monitors.descriptors monitors.endpoints monitors.forgetting_cli monitors.labels_cli monitors.locking monitors.moving_cli monitors.offline_cli monitors.serving monitors.settings monitors.simulating_cli",  # noqa: E501
    "gateway.client": "gateway.errors monitors.tasks",
    "gateway.config": "gateway.contexts gateway.target monitors.config monitors.endpoints monitors.importer monitors.redaction monitors.settings",  # noqa: E501
    "gateway.config_schema": "gateway.config monitors.config",
    "gateway.contexts": "gateway.exchange monitors.bounds",
    "gateway.demo": "gateway.contexts monitors.tasks",
    "gateway.express": "gateway.errors gateway.exchange gateway.headers gateway.proxy gateway.upstream gateway.upstreams monitors.serving",  # noqa: E501
    "gateway.handoff": "gateway.encoding gateway.exchange gateway.instruments gateway.offload gateway.pressure monitors.engines monitors.labels monitors.queues monitors.tasks",  # noqa: E501
    "gateway.headers": "gateway.exchange",
    "gateway.inspect_cli": "gateway.config gateway.inspection gateway.reading monitors.config monitors.config_option monitors.settings monitors.stores",  # noqa: E501
    "gateway.inspection": "gateway.answers gateway.auxiliary gateway.contexts gateway.exchange monitors.bounds monitors.prompt_text",  # noqa: E501
    "gateway.instruments": "gateway.exchange gateway.worker_metrics monitors.labels",
    "gateway.keeper": "gateway.keys gateway.keystores gateway.limits monitors.tasks",
    "gateway.keys": "gateway.errors gateway.exchange monitors.bounds",
    "gateway.keys_cli": "gateway.keys gateway.keystores gateway.limits gateway.prices monitors.audit monitors.config monitors.config_option monitors.settings",  # noqa: E501
    "gateway.keystores": "gateway.keys gateway.prices gateway.subjects monitors.importer monitors.postgres monitors.sqlite",  # noqa: E501
    "gateway.limits": "gateway.accounts gateway.buckets gateway.config gateway.errors gateway.exchange gateway.keys gateway.prices gateway.turnstile",  # noqa: E501
    "gateway.loops": "gateway.errors",
    "gateway.metering": "gateway.encoding gateway.exchange",
    "gateway.offload": "gateway.config gateway.exchange gateway.sampling_process gateway.template_sync monitors.settings",  # noqa: E501
    "gateway.openapi": "gateway.supplements",
    "gateway.origins": "gateway.errors gateway.exchange gateway.headers",
    "gateway.pressure": "monitors.queues monitors.tasks",
    "gateway.prices": "gateway.config",
    "gateway.prompts": "gateway.contexts gateway.exchange",
    "gateway.proxy": "gateway.accounting gateway.cache gateway.client gateway.contexts gateway.errors gateway.exchange gateway.headers gateway.ids gateway.keys gateway.limits gateway.loops gateway.operations gateway.origins gateway.relay gateway.restrictions gateway.routing gateway.splice gateway.target gateway.upstream gateway.upstreams gateway.usage monitors.serving",  # noqa: E501
    "gateway.reading": "gateway.capture gateway.config gateway.contexts gateway.resubmissions gateway.stored_templates gateway.template_sync monitors.importer monitors.redaction monitors.templates",  # noqa: E501
    "gateway.realtime": "gateway.accounting gateway.contexts gateway.errors gateway.exchange gateway.headers gateway.keys gateway.limits gateway.loops gateway.metering gateway.operations gateway.origins gateway.proxy gateway.restrictions gateway.target monitors.tasks",  # noqa: E501
    "gateway.relay": "gateway.cache gateway.client gateway.exchange gateway.headers gateway.metering gateway.upstream gateway.usage",  # noqa: E501
    "gateway.reloading": "gateway.config gateway.limits monitors.audit monitors.settings",
    "gateway.restrictions": "gateway.errors gateway.exchange gateway.keys gateway.operations",
    "gateway.routes": "gateway.errors gateway.openapi gateway.supplements monitors.admin monitors.token_check",
    "gateway.routing": "gateway.exchange gateway.json_cursor monitors.bounds",
    "gateway.sampling_process": "gateway.capture gateway.config gateway.contexts gateway.exchange gateway.reading gateway.stored_templates monitors.templates",  # noqa: E501
    "gateway.sharing": "gateway.buckets gateway.subjects monitors.importer monitors.postgres monitors.redis",
    "gateway.snapshot": "monitors.settings",
    "gateway.spill": "gateway.pressure monitors.engines monitors.queues monitors.tasks",
    "gateway.splice": "gateway.errors gateway.json_cursor",
    "gateway.stored_templates": "gateway.contexts monitors.templates",
    "gateway.supervisor": "gateway.config gateway.reloading gateway.snapshot gateway.worker_metrics monitors.audit monitors.settings monitors.tasks",  # noqa: E501
    "gateway.supplements": "gateway.contexts gateway.errors gateway.exchange gateway.tracing monitors.bounds monitors.engines monitors.queues monitors.tasks",  # noqa: E501
    "gateway.syncing": "gateway.limits gateway.sharing monitors.tasks",
    "gateway.target": "gateway.errors",
    "gateway.template_sync": "gateway.contexts gateway.stored_templates monitors.engines monitors.tasks monitors.templates",  # noqa: E501
    "gateway.templates_cli": "gateway.contexts gateway.stored_templates monitors.audit monitors.config monitors.store_cli monitors.templates",  # noqa: E501
    "gateway.tracing": "gateway.exchange monitors.bounds",
    "gateway.upstream": "gateway.exchange",
    "gateway.upstreams": "gateway.config gateway.ejection gateway.errors gateway.exchange gateway.headers gateway.routing gateway.target gateway.upstream",  # noqa: E501
    "gateway.usage": "gateway.exchange",
    "gateway.worker_metrics": "monitors.tasks",
    "monitors": "monitors.offline",
    "monitors.__main__": "monitors.cli",
    "monitors.admin": "monitors.attempts monitors.audit monitors.token_check",
    "monitors.alert_api": "monitors.audit monitors.desk monitors.notifiers monitors.silences",
    "monitors.alerts": "monitors.cause_judging monitors.causes monitors.config monitors.delivery monitors.describing monitors.desk monitors.notifiers monitors.rules monitors.stores monitors.streams monitors.telling monitors.versions monitors.watching",  # noqa: E501
    "monitors.api": "monitors.admin monitors.capture_coverage monitors.desk monitors.openapi monitors.quality monitors.stores monitors.token_check",  # noqa: E501
    "monitors.app": "dashboards.web monitors.admin monitors.alert_api monitors.alerts monitors.api monitors.audit monitors.cause_judging monitors.compare_api monitors.config monitors.embedding monitors.evaluation monitors.exporters monitors.gauges monitors.instruments monitors.judging monitors.labelling_store monitors.labels_api monitors.leading monitors.metrics monitors.notifying monitors.otlp monitors.plane monitors.prompt_marking monitors.queues monitors.redaction monitors.redaction_key monitors.rules monitors.rules_api monitors.serving monitors.settings monitors.sinks monitors.sqlite monitors.stores monitors.telemetry monitors.templates monitors.templates_api",  # noqa: E501
    "monitors.capture_coverage": "monitors.labels monitors.statistics monitors.stores",
    "monitors.cause_judging": "monitors.causes monitors.evaluation monitors.metrics monitors.stores monitors.streams",
    "monitors.causes": "monitors.statistics",
    "monitors.choosing": "monitors.sampling",
    "monitors.cli": "monitors.app monitors.config monitors.config_option monitors.locking monitors.serving monitors.settings",  # noqa: E501
    "monitors.clickhouse": "monitors.engines monitors.migrating",
    "monitors.compare_api": "monitors.comparing monitors.comparing_store monitors.metrics monitors.stores",
    "monitors.comparing": "monitors.comparing_counts monitors.statistics monitors.stores monitors.streams",
    "monitors.comparing_cli": "monitors.comparing monitors.comparing_counts monitors.comparing_store monitors.config monitors.store_cli monitors.stores",  # noqa: E501
    "monitors.comparing_counts": "monitors.statistics monitors.stores",
    "monitors.comparing_store": "monitors.comparing monitors.comparing_counts monitors.slicing monitors.stores",
    "monitors.config": "monitors.endpoints monitors.notifiers monitors.options monitors.settings",
    "monitors.config_option": "monitors.files",
    "monitors.delivery": "monitors.config monitors.desk monitors.notifiers monitors.stores monitors.tasks monitors.telling",  # noqa: E501
    "monitors.describing": "monitors.cause_judging monitors.causes monitors.slicing monitors.statistics monitors.stores monitors.streams monitors.topics monitors.watching",  # noqa: E501
    "monitors.desk": "monitors.notifiers monitors.silences monitors.stores",
    "monitors.detectors": "monitors.importer monitors.statistics",
    "monitors.embedding": "monitors.config monitors.embeddings monitors.instruments monitors.settings",
    "monitors.embeddings": "monitors.bounds monitors.judges monitors.replies monitors.tasks",
    "monitors.evaluation": "monitors.judges monitors.metrics",
    "monitors.exporters": "monitors.instruments monitors.replies monitors.tasks",
    "monitors.forgetting": "monitors.normalising",
    "monitors.forgetting_cli": "monitors.config monitors.forgetting monitors.queues monitors.store_cli monitors.stores monitors.templates",  # noqa: E501
    "monitors.gauges": "monitors.alerts monitors.delivery monitors.instruments monitors.labels monitors.versions",
    "monitors.importer": "monitors.extras",
    "monitors.instruments": "monitors.capture_coverage monitors.labelling monitors.labels monitors.quality",
    "monitors.joining": "monitors.bounds",
    "monitors.judges": "monitors.bounds monitors.fading monitors.replies monitors.sampling monitors.sqlite",
    "monitors.judging": "monitors.causes monitors.config monitors.instruments monitors.judges monitors.settings",
    "monitors.labelling": "monitors.statistics monitors.stores monitors.streams",
    "monitors.labelling_store": "monitors.labelling monitors.metrics monitors.stores",
    "monitors.labels": "monitors.bounds",
    "monitors.labels_api": "monitors.labelling monitors.labelling_store monitors.stores",
    "monitors.labels_cli": "monitors.config monitors.labelling monitors.labelling_store monitors.offline monitors.statistics monitors.store_cli monitors.stores",  # noqa: E501
    "monitors.leading": "monitors.importer monitors.stores monitors.tasks",
    "monitors.leading_postgres": "monitors.leading monitors.postgres monitors.stores monitors.tasks",
    "monitors.metrics": "monitors.config monitors.embeddings monitors.importer monitors.judges monitors.normalising monitors.options monitors.settings monitors.tasks",  # noqa: E501
    "monitors.moving": "monitors.queues monitors.stores",
    "monitors.moving_cli": "monitors.config monitors.migrating monitors.moving monitors.postgres monitors.queues monitors.settings monitors.sqlite monitors.store_cli monitors.stores monitors.templates",  # noqa: E501
    "monitors.notifiers": "monitors.replies",
    "monitors.notifying": "monitors.config monitors.endpoints monitors.importer monitors.notifiers monitors.options monitors.settings",  # noqa: E501
    "monitors.offline": "monitors.config monitors.embedding monitors.embeddings monitors.evaluation monitors.importer monitors.instruments monitors.judges monitors.judging monitors.metrics monitors.settings monitors.sqlite monitors.stores",  # noqa: E501
    "monitors.offline_cli": "monitors.config monitors.config_option monitors.offline monitors.settings monitors.stores",
    "monitors.openapi": "monitors.alert_api monitors.alerts monitors.capture_coverage monitors.comparing monitors.desk monitors.labelling monitors.quality monitors.silences monitors.stores monitors.templates monitors.versions",  # noqa: E501
    "monitors.options": "monitors.importer monitors.settings",
    "monitors.otlp": "monitors.bounds monitors.engines monitors.settings",
    "monitors.persisting": "monitors.engines monitors.queues monitors.stores monitors.tasks",
    "monitors.plane": "monitors.alerts monitors.capture_coverage monitors.choosing monitors.config monitors.evaluation monitors.exporters monitors.instruments monitors.joining monitors.judges monitors.judging monitors.labelling_store monitors.labels monitors.leading monitors.metrics monitors.pressure monitors.prompt_marking monitors.quality monitors.queues monitors.sampling monitors.settings monitors.spending monitors.statistics monitors.stores monitors.tasks monitors.worker",  # noqa: E501
    "monitors.postgres": "monitors.engines monitors.migrating",
    "monitors.pressure": "monitors.fading",
    "monitors.prompt_marking": "monitors.judges monitors.metrics monitors.templates",
    "monitors.quality": "monitors.statistics monitors.stores",
    "monitors.queues": "monitors.bounds monitors.forgetting monitors.importer monitors.postgres monitors.redis monitors.sqlite",  # noqa: E501
    "monitors.redis": "monitors.engines",
    "monitors.rules": "monitors.config monitors.detectors monitors.importer monitors.options monitors.slicing monitors.streams monitors.watching",  # noqa: E501
    "monitors.rules_api": "monitors.alert_api monitors.audit monitors.versions",
    "monitors.serving": "monitors.descriptors",
    "monitors.settings": "monitors.importer monitors.placeholders",
    "monitors.simulating": "monitors.detectors monitors.statistics monitors.stores monitors.streams",
    "monitors.simulating_cli": "monitors.config monitors.detectors monitors.labelling_store monitors.rules monitors.simulating monitors.simulating_report monitors.store_cli monitors.stores monitors.streams",  # noqa: E501
    "monitors.simulating_report": "monitors.simulating",
    "monitors.sinks": "monitors.config monitors.exporters monitors.importer monitors.instruments monitors.options monitors.settings",  # noqa: E501
    "monitors.slicing": "monitors.stores",
    "monitors.spending": "monitors.judges monitors.stores",
    "monitors.sqlite": "monitors.engines monitors.files",
    "monitors.store_cli": "monitors.config monitors.config_option monitors.embedding monitors.instruments monitors.judging monitors.metrics monitors.offline monitors.settings monitors.stores",  # noqa: E501
    "monitors.stores": "monitors.bounds monitors.clickhouse monitors.engines monitors.forgetting monitors.importer monitors.joining monitors.postgres monitors.redaction monitors.sqlite monitors.statistics monitors.tasks",  # noqa: E501
    "monitors.streams": "monitors.detectors monitors.stores",
    "monitors.telemetry": "monitors.replies monitors.settings",
    "monitors.telling": "monitors.config",
    "monitors.templates": "monitors.clickhouse monitors.forgetting monitors.importer monitors.postgres monitors.sqlite monitors.stores",  # noqa: E501
    "monitors.templates_api": "monitors.alert_api monitors.audit monitors.templates",
    "monitors.testing": "monitors.config monitors.embeddings monitors.judges monitors.metrics monitors.offline",
    "monitors.token_check": "monitors.attempts",
    "monitors.topics": "monitors.normalising",
    "monitors.versions": "monitors.stores",
    "monitors.watching": "monitors.config monitors.detectors monitors.slicing monitors.statistics monitors.stores monitors.streams",  # noqa: E501
    "monitors.worker": "monitors.bounds monitors.choosing monitors.engines monitors.evaluation monitors.exporters monitors.joining monitors.judges monitors.metrics monitors.persisting monitors.pressure monitors.queues monitors.stores monitors.tasks",  # noqa: E501
}

PURE = (
    "monitors/records.py",
    "monitors/joining.py",
    "monitors/sampling.py",
    "monitors/causes",
    "monitors/prompt_text.py",
    "monitors/topics.py",
    "monitors/slicing.py",
    "monitors/streams.py",
    "monitors/watching.py",
    "monitors/versions.py",
    "monitors/quality.py",
    "monitors/choosing.py",
    "monitors/statistics",
    "monitors/detectors",
    "gateway/sse.py",
    "gateway/splice.py",
    "gateway/encoding.py",
    "gateway/exchange.py",
    "gateway/capture.py",
    "gateway/headers.py",
    "gateway/target.py",
    "gateway/contexts",
    "gateway/routing.py",
    "gateway/ejection.py",
    "gateway/usage.py",
    "gateway/answers.py",
    "gateway/prices.py",
    "gateway/buckets.py",
    "gateway/subjects.py",
    "monitors/attempts.py",
    "monitors/fading.py",
    "monitors/pressure.py",
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
    """A module's package or top-level module: gateway.contexts.tools -> gateway.contexts."""
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
    } | {"gateway.upstream.httpx"}
    for path in ours():
        module = module_of(path)
        named = {name for name in imported(path) if name in adapters and room(name) != room(module)}
        assert not named or module in ("gateway.app", "monitors.app", "monitors.judging"), (module, named)


def test_the_standard_library_is_known_to_this_test():
    assert sys.stdlib_module_names >= {name for name in IMPURE if name not in {"httpx", "openai", "aiosqlite"}}
