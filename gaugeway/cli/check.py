"""`gaugeway check`: checks a configuration; the JSON Schema of `gaugeway.toml`, for completion in editors."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from gateway import config as configuration
from gateway.access import admission
from gaugeway.cli.plane import given_tables, plane_options
from gaugeway.cli.shared import data_dir_problem, fail
from gaugeway.extensions import load, registered
from gaugeway.settings import ConfigError
from gaugeway.settings.endpoints import port_problems
from gaugeway.settings.loading import address_warnings
from gaugeway.settings.options import option_types
from gaugeway.settings.placeholders import concealed
from gaugeway.settings.shared import Metric, Notifier, Shared, Sink
from monitors import app
from monitors.alerting.notifiers.factory import given_of
from monitors.evaluation.judge_marks import MARKED_PER_DAY
from monitors.exporters.factory import GIVEN, SPANS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _print_schema(context: click.Context, parameter: click.Parameter, asked: bool) -> None:  # noqa: ARG001, FBT001 - click's
    if not asked:
        return
    click.echo(json.dumps(config_schema(), indent=2))
    context.exit()


@click.command()
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of gaugeway.toml, for editors, and exit.",
)
@plane_options
def check(supervised: bool, **options: Any) -> None:  # noqa: FBT001 - click passes options by name
    """Check a configuration; each error names its key, the reason and the nearest valid key."""
    try:
        config, problems = configuration.examine(options["config"], *given_tables(options))
    except ConfigError as error:
        fail(error)
    app.examine(config, problems)
    admission.examine(config, problems)
    problems.extend(port_problems(configuration.listeners(config)))
    if not supervised:
        problem = data_dir_problem(options["data_dir"])
        problems.extend([] if problem is None else [problem])
        app.examine_files(config, options["data_dir"], problems)
        admission.examine_file(config, options["data_dir"], problems)
    if click.get_current_context().get_parameter_source("config") is ParameterSource.DEFAULT and options["config"]:
        click.echo(f"gaugeway: using ./{options['config']}", err=True)
    found = [*address_warnings(config), *configuration.credential_warnings(config)]
    warnings = [*problems.warnings, *(text for text in found if not problems.cover(text))]
    for warning in warnings:
        click.echo(f"gaugeway: warning: {concealed(warning)}", err=True)
    if problems.lines:
        fail(ConfigError(problems.lines))
    count = len(warnings)
    verdict = f"ok, {count} warning{'s' if count > 1 else ''}" if count else "ok"
    click.echo(f"{options['config'] or 'the default configuration'}: {verdict}")
    if audits := configuration.audits_per_day(config):
        click.echo(
            f"The judge sees {audits} exchanges a day of each app, redacted, to check what was captured "
            "([capture] audits_per_day = 0 turns it off)."
        )
    if configuration.asks_judge(config):
        click.echo(
            "The judge sees one request of each new prompt, redacted, to find its question and passages "
            f"(at most {MARKED_PER_DAY} a day; [capture] ask_judge = false turns it off)."
        )


def config_schema() -> dict[str, Any]:
    """Return the schema: keys, types and ranges. Rules across several keys are checked by `gaugeway check` only.

    The options of an extension stand in its table, which allows any other key for a metric and for unregistered kinds.
    """
    schema = msgspec.json.schema(configuration.Config)
    tables = schema["$defs"]
    tables[Metric.__name__]["properties"].pop("options")
    tables[Metric.__name__].pop("additionalProperties")
    tables[Sink.__name__]["properties"].pop("options")
    _add_options(tables[Notifier.__name__], "notifiers", given_of(Shared()))
    _add_options(tables[Sink.__name__], "exporters", [SPANS, *GIVEN])
    return {"$schema": DIALECT, "title": "gaugeway.toml", **schema}


def _add_options(table: dict[str, Any], kind: str, given: Collection[str]) -> None:
    """Add the options of all registered extensions of a kind, without those that cannot be loaded, to their table."""
    targets, keys = registered(kind), table["properties"]
    for name in targets:
        with contextlib.suppress(ValueError):
            types = option_types(load(name, targets), given)
            keys |= {key: msgspec.json.schema(type_) for key, type_ in types.items() if key not in keys}
    table.pop("additionalProperties")
    table["if"] = {"properties": {"kind": {"enum": list(targets)}}}
    table["then"] = {"propertyNames": {"enum": list(keys)}}
