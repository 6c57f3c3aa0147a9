"""docs/reference/limits.md says what the code does: every bound, its default, its setting and its counter."""

import ast
import importlib
import re
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway.config import Config
from gateway.telemetry.metrics import Instruments as GatewayInstruments
from gaugeway.text.lexical.idf import shipped
from gaugeway.text.lexical.passages import PassageCache
from monitors.exporters.instruments import Instruments as MonitorsInstruments
from monitors.exporters.passage_cache import PassageCacheCollector

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "limits.md"
UNITS = {
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "ms": 0.001,
    "s": 1,
    "min": 60,
    "h": 3600,
    "days": 86_400,
    "%": 0.01,
}
NAMED_LIKE_A_BOUND = re.compile(r"^_?(?:MAX|MOST|LONGEST)(?:_|$)|_(?:MAX|MOST|LONGEST)$")

_RETRY = "time between our own attempts"
_FORMAT = "a number of the format or formula"
_OFFLINE = "commands an operator runs on a data set"
_MESSAGE = "size of a message that we send"
NOT_FROM_OUTSIDE: dict[str, str] = {
    "dashboards.web.views.alerts:MOST_BEFORE_S": "span of a chart",
    "dashboards.web.views.alerts:MOST_SINCE_S": "span of a chart",
    "gateway.http.sse_repeats:_MOST_ATTEMPTS": "attempts at a short cut",
    "gateway.http.sse_repeats:_MOST_RUNS": "attempts at a short cut",
    "gateway.http.sse_repeats:_MOST_LAST": "attempts at a short cut",
    "gaugeway.demo.model_reply:_MAX_CHOICES": "the demo's scripted model",
    "gaugeway.demo.model:_MAX_DIMENSIONS": "the demo's scripted model",
    "gateway.upstreams.outlier_ejection:MAX_EJECT_S": _RETRY,
    "gateway.handoff.buffer:_MAX_BACK_OFF_S": _RETRY,
    "gateway.handoff.backlog:_BATCH_MAX": "size of a batch",
    "gaugeway.runtime.retry:_MAX_DOUBLINGS": _RETRY,
    "gaugeway.prompts.learning.judge_marks:_MOST_EMPTY": "patience with a prompt without passages",
    "gaugeway.prompts.learning.judge_marks:_MOST_READ": "patience of a test of a template",
    "gaugeway.prompts.learning.judge_marks:_LONGEST_QUESTION": "of a question that confirms a template",
    "gateway.access.key_sync:_LONGEST_S": _RETRY,
    "gateway.handoff.sampler_client:_MAX_PAUSE_S": _RETRY,
    "gateway.handoff.spill:_MAX_BACK_OFF_S": _RETRY,
    "gaugeway.processes.child_process:_MAX_BACK_OFF_S": _RETRY,
    "gateway.api.feedback:_MAX_BACK_OFF_S": _RETRY,
    "gateway.access.limit_sync:_LONGEST_S": _RETRY,
    "gaugeway.text.lexical.matching:_MOST_CELLS": "size of a matrix; more are computed one after the other",
    "gaugeway.runtime.audit:_LONGEST": "a field of a line of the audit log, cut",
    "gaugeway.storage.engines.clickhouse.connection:_LONGEST_LINGER_MS": "size of a batch",
    "gaugeway.storage.engines.circuit:_MAX_BACK_OFF_S": _RETRY,
    "monitors.exporters.outbox:LONGEST_S": _RETRY,
    "monitors.judges.middleware.retry:LONGEST_RETRY_AFTER_S": _RETRY,
    "monitors.judges.middleware.retry:LONGEST_S": _RETRY,
    "gateway.upstreams.policy:MAX_RETRY_AFTER_S": _RETRY,
    "gaugeway.text.lexical.matching:LONGEST_RUN": _FORMAT,
    "monitors.alerting.notifiers.email:MAX_SUBJECT": _MESSAGE,
    "monitors.alerting.notifiers.pagerduty:MAX_SUMMARY": _MESSAGE,
    "monitors.alerting.notifiers.http:MAX_RETRY_AFTER_S": _RETRY,
    "monitors.alerting.notifiers.teams:MAX_ALERTS": _MESSAGE,
    "monitors.alerting.notifiers.teams:MAX_BYTES": _MESSAGE,
    "monitors.alerting.notifiers.teams:MAX_EXCHANGES": _MESSAGE,
    "monitors.alerting.notifiers.teams:MAX_FIELD": _MESSAGE,
    "monitors.alerting.notifiers.teams:MAX_LINK": _MESSAGE,
    "monitors.alerting.notifiers.teams:MAX_NOTE": _MESSAGE,
    "monitors.alerting.notifiers.teams:MAX_TEXT": _MESSAGE,
    "monitors.alerting.notifiers.slack:MAX_ALERTS": _MESSAGE,
    "monitors.alerting.notifiers.slack:MAX_FIELD": _MESSAGE,
    "monitors.alerting.notifiers.slack:MAX_FIELDS": _MESSAGE,
    "monitors.alerting.notifiers.slack:MAX_LINK": _MESSAGE,
    "monitors.alerting.notifiers.slack:MAX_NOTE": _MESSAGE,
    "monitors.alerting.notifiers.slack:MAX_TEXT": _MESSAGE,
    "monitors.offline.thresholds:MAX_FAILED": _OFFLINE,
    "monitors.offline.dataset:MAX_PROBLEMS": _OFFLINE,
    "monitors.offline.imports.criteria:MAX_CRITERION": _OFFLINE,
    "monitors.offline.imports.criteria:_MOST_SCORES": _OFFLINE,
    "monitors.offline.imports.fields:_LONGEST_TAG": _OFFLINE,
    "monitors.offline.imports.promptfoo_config:LONGEST_TAG": _OFFLINE,
    "monitors.offline.imports.result:_LONGEST_NAME": _OFFLINE,
    "monitors.offline.imports.sources:MAX_DEPTH": _OFFLINE,
    "monitors.offline.imports.sources:MAX_FILE_BYTES": _OFFLINE,
    "monitors.offline.imports.sources:MAX_NODES": _OFFLINE,
    "monitors.offline.imports.sources:MAX_ROWS": _OFFLINE,
    "monitors.offline.imports.sources:MAX_YAML_BYTES": _OFFLINE,
    "monitors.metrics.answer_relevancy:MOST_QUESTIONS": "bound of an option",
    "monitors.api.otlp.counting:_LONGEST": _FORMAT,
    "monitors.evaluation.persist:MAX_BACK_OFF_S": _RETRY,
    "gaugeway.redaction.phones:_ANNOUNCED_MOST": _FORMAT,
    "gaugeway.redaction.phones:_MOST": _FORMAT,
    "gaugeway.redaction.phones:_TRUNK_MOST": _FORMAT,
    "gaugeway.sampling:MAX_RATIO": _FORMAT,
    "gaugeway.settings.placeholders:_LONGEST_SECRET": "a secret's file, which the operator names",
    "monitors.analysis.simulate:LONGEST_HOURS": _OFFLINE,
    "monitors.analysis.simulate:LONGEST_LEARNING_HOURS": _OFFLINE,
    "monitors.analysis.simulate:LONGEST_SCORES": _OFFLINE,
    "gaugeway.cli.simulate:MOST_SCORES": _OFFLINE,
    "gaugeway.storage.engines.clickhouse.queries:_MOST_BYTES": "size of a batch",
    "gateway.proxy.loops:_MAX_BYTES": "follows from MAX_HOPS",
    "gateway.http.json_member:_LONGEST": _FORMAT,
    "gaugeway.runtime.replies:_LONGEST": _FORMAT,
    "monitors.alerting.delivery:_MAX_REASON": _MESSAGE,
    "gateway.capture.fingerprints:_MOST_READ": "characters of a question that are hashed",
    "monitors.statistics.clusters:MOST_CORRELATED": _FORMAT,
    "monitors.statistics.clusters:MOST_SHARE": _FORMAT,
    "monitors.statistics.clusters:MOST_SHARE_OF_A_QUESTION": _FORMAT,
    "monitors.judges.openai_client:MAX_ERROR_TEXT": "an error's text in a log line, cut",
    "monitors.alerting.notifiers.message:MAX_LABEL": _MESSAGE,
    "monitors.alerting.notifiers.message:MAX_QUESTION": _MESSAGE,
    "monitors.alerting.notifiers.message:MAX_HEADLINE": _MESSAGE,
    "monitors.alerting.example_texts:MAX_TEXT": _MESSAGE,
    "monitors.alerting.example_texts:MOST_FAULTS": _MESSAGE,
    "monitors.alerting.changes:MOST_NAMED": _MESSAGE,
    "gaugeway.prompts.passage_records:_LONGEST": "characters of a line that can belong to a record",
    "gaugeway.settings.placeholders:_MOST_REMEMBERED": "values of the configuration, which the operator wrote",
    "monitors.alerting.notifiers.message:MAX_ANSWER": _MESSAGE,
    "monitors.alerting.notifiers.message:MAX_FAULTS": _MESSAGE,
    "monitors.alerting.notifiers.message:MAX_WORST": _MESSAGE,
    "monitors.alerting.notifiers.email:MAX_ALERTS": _MESSAGE,
    "monitors.alerting.notifiers.email:MAX_FACT": _MESSAGE,
    "monitors.alerting.notifiers.slack:MAX_NOTE_OF_FEW": _MESSAGE,
    "monitors.alerting.notifiers.slack:MAX_EXCHANGES": _MESSAGE,
    "gaugeway.storage.stores.calendar:_MAX_DAY": _FORMAT,
    "gaugeway.storage.stores.rollups:MOST_SPANS": "days of one query, by the clock of whoever asks",
}
"""Constants named like a bound that no client, upstream or text can reach -> what they bound instead."""


class Row(NamedTuple):
    what: str
    default: str
    setting: str
    beyond: str
    counter: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and not line.startswith(("|---", "| what |")):
            assert len(cells) == len(Row._fields), line
            found.append(Row(*cells))
    return found


def number(text: str) -> float | None:
    """'100 MiB' -> 104857600, 'none' -> None."""
    if text == "none":
        return None
    match = re.match(r"([\d,.]+)(?: (\S+))?", text)
    assert match, text
    return float(match[1].replace(",", "")) * UNITS.get(match[2] or "", 1)


def default_of(key: str) -> object:
    """The default of `table.key` of the configuration, or the value of `module:NAME`."""
    if ":" in key:
        module, name = key.split(":")
        return getattr(importlib.import_module(module), name)
    table, name = key.split(".")
    kind = get_type_hints(Config, include_extras=True)[table]
    struct = next(one for one in (kind, *get_args(kind)) if hasattr(one, "__struct_fields__"))
    field = next(field for field in msgspec.structs.fields(struct) if field.name == name)
    return field.default


def series() -> set[str]:
    names = set()
    for instruments in (GatewayInstruments, MonitorsInstruments):
        registry = CollectorRegistry(auto_describe=True)
        instruments(registry, version="0")
        registry.register(PassageCacheCollector(PassageCache(shipped())))
        names |= set(registry._names_to_collectors)  # noqa: SLF001 - `collect` has no suffixes
    return names


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.what)
def test_a_row_says_what_the_code_does(row):
    settings = re.findall(r"`([^`]+)`", row.setting)
    assert settings, row
    assert (
        default_of(settings[0]) == pytest.approx(number(row.default))
        if number(row.default) is not None
        else default_of(settings[0]) is None
    )
    counters = re.findall(r"`(gaugeway_\w+)", row.counter)
    assert counters or row.counter == "-", row
    assert set(counters) <= series(), row


def assigned(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module assigns to."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return []
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def bounds_of_the_code() -> list[str]:
    found = []
    for path in sorted(
        path for name in ("gaugeway", "gateway", "monitors", "dashboards/web") for path in (ROOT / name).rglob("*.py")
    ):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        names = [name for statement in ast.parse(path.read_text("utf-8")).body for name in assigned(statement)]
        found += [f"{module}:{name}" for name in names if NAMED_LIKE_A_BOUND.search(name)]
    return found


def keys_that_bound() -> list[str]:
    found = []
    for table in ("gateway", "capture", "queue", "cache", "limits"):
        kind = get_type_hints(Config)[table]
        found += [
            f"{table}.{key}"
            for key in kind.__struct_fields__
            if re.search(r"(^|_)max_|_bytes$|_timeout_s$|^buffer_", key)
        ]
    return found


@pytest.mark.parametrize("name", [*bounds_of_the_code(), *keys_that_bound()])
def test_every_bound_has_its_row_or_a_reason(name):
    listed = {setting for row in rows() for setting in re.findall(r"`([^`]+)`", row.setting)}
    assert (name in listed) != (name in NOT_FROM_OUTSIDE), name


def test_no_reason_outlives_its_constant():
    assert set(NOT_FROM_OUTSIDE) <= set(bounds_of_the_code()) | set(keys_that_bound())
