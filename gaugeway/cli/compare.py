"""`gaugeway compare`: compares two versions on captured traffic."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from gaugeway.cli import shared
from gaugeway.cli.shared import NumberRange
from gaugeway.settings.loading import load
from gaugeway.storage.stores import Store
from monitors.analysis import ab_compare
from monitors.analysis.ab_binned import Parts
from monitors.analysis.ab_compare import Arm, Compared, Sides
from monitors.analysis.ab_query import AUTO_PAIRED_UP_TO, PERIOD, VersionQuery, check_by, keys_of, period_of, read
from monitors.offline import progress
from monitors.offline.reports import signed

_COLOURS = {
    "ship": "green",
    "roll back": "red",
    "not enough data": "yellow",
    "differs": "cyan",
    "within the margin": "green",
}
_EXITS = {"ship": 0, "within the margin": 0, "roll back": 1, "not enough data": 3}
_PLAN = "with {:,} scores of each, equal versions and a loss of twice the margin are decided in 80 % of cases"

_APART = (
    "Warning: the versions served mostly at different times ({:.0%} of the scores of one are from the time when both "
    "served). Differences between the periods in which they served, such as an incident, count as differences of the "
    "versions. Choose --since so that both serve."
)


@click.command()
@click.option("--by", required=True, help="What identifies a version: model, prompt or tag:NAME; or period.")
@click.option("--a", "champion", required=True, help="The version in use, or a period: 14d..7d.")
@click.option("--b", "challenger", required=True, help="The new one, or a period: 7d..now.")
@click.option("--metric", "metrics", multiple=True, help="Metric as stored; repeatable. [all that both versions have]")
@click.option("--app", help="[each app separately]")
@shared.since_option("7d")
@click.option("--delta", type=NumberRange(0, 1, max_open=True), default=0.02, help="Acceptable loss of the mean.")
@click.option(
    "--alpha",
    type=NumberRange(0, 1, min_open=True, max_open=True),
    default=0.01,
    help="Probability of any wrong decision.",
)
@click.option("--pair-by", default="auto", help="auto, question, tag:NAME or off.")
@shared.table_or_json
@shared.stored_options
def compare(config: Path | None, data_dir: Path, **options: Any) -> None:
    """Compare two versions or periods on captured traffic: ship the new one, roll it back, or not enough data yet.

    Exit codes: 0 ship or within the margin, 1 roll back, 2 bad input, 3 not enough data. Repeated looks do not affect
    the error rate.
    """
    with shared.reported_errors():
        try:
            if options["by"] != PERIOD:
                check_by(options["by"])
        except ValueError as error:
            raise ValueError(f"--by: {error}") from error
        settings = load(config)
        lowest_is_best = shared.lowest_is_best(shared.catalogue_of(settings))
        pairing = _pairing(options["pair_by"])
        wanted = _wanted(options, pairing, shared.span(options["since"]))

        async def query(store: Store) -> tuple[list[Sides | Parts], dict[str, str]]:
            everything, _ = await read(store, wanted)
            return everything, await keys_of(store, everything, pairing)

        everything, keys = shared.with_store(settings, data_dir, query)
        rows = ab_compare.compare(
            everything,
            margin=options["delta"],
            alpha=options["alpha"],
            keys=keys,
            pairing="auto" if pairing in ("auto", "off") else "always",
            lower_is_better=lowest_is_best,
        )
        decision = ab_compare.decision(rows)
        if options["shown_as"] == "json":
            named = {name: options[name] for name in ("by", "delta", "alpha")}
            named |= {"a": wanted.a, "b": wanted.b, "decision": decision}
            shared.print_json(named | {"rows": [asdict(row) for row in rows]})
        else:
            _show(shared.console(), rows, f"{wanted.by}: {wanted.a} (A) and {wanted.b} (B)")
            if (apart := ab_compare.served_apart(rows)) is not None and wanted.periods is None:
                click.echo(_APART.format(apart), err=True)
            click.echo(decision)
    sys.exit(_EXITS[decision])


def _wanted(options: dict[str, Any], pairing: str, span: tuple[float, float]) -> VersionQuery:
    since, until = span
    periods = None
    if options["by"] == PERIOD:
        periods = period_of(options["champion"], until), period_of(options["challenger"], until)
    return VersionQuery(
        by=options["by"],
        a=options["champion"],
        b=options["challenger"],
        since=since,
        until=until,
        metrics=options["metrics"],
        app=options["app"],
        few=None if pairing == "question" or pairing.startswith("tag:") else AUTO_PAIRED_UP_TO,
        periods=periods,
        margin=options["delta"],
        alpha=options["alpha"],
    )


def _pairing(text: str) -> str:
    if text in ("auto", "question", "off") or (text.startswith("tag:") and len(text) > len("tag:")):
        return text
    raise ValueError(f"--pair-by: expected auto, question, tag:NAME or off, got {text!r}")


def _show(console: Console, rows: Sequence[Compared], title: str) -> None:
    headers = ("app, metric", "", "scores", "mean", "95 % interval", "verdict")
    shown = [(f"{row.app} {row.metric}", _lines(row)) for row in rows]
    progress.show(console, title, headers, shown, left=("", "verdict"))
    alike = any(arm.clusters is not None for row in rows for arm in _arms(row))
    depends = any(arm.design_effect is not None for row in rows for arm in _arms(row))
    for row in rows:
        notes = [f"needs about {row.more:,} more"] if row.decision == "not enough data" and row.more else []
        notes += [_PLAN.format(row.needed)] if row.decision == "not enough data" and row.needed else []
        notes += [row.reason] if row.reason else []
        notes += [_sessions(row)] if alike else []
        notes += [_effective(row)] if depends else []
        notes += [f"{row.left_out:,} scores left out (another judge, or no partner)"] if row.left_out else []
        if notes:
            said = f"[dim]{escape(row.app)} {escape(row.metric)}: {escape('; '.join(notes))}[/dim]"
            console.print(said, soft_wrap=True)


def _lines(row: Compared) -> list[tuple[str, ...]]:
    """Return a line for A, one for B, and one for their difference, with the verdict."""
    lines: list[tuple[str, ...]] = [
        (name, f"{arm.n:,}", "-" if arm.mean is None else f"{arm.mean:.3f}", _interval(arm), "")
        for name, arm in zip("AB", _arms(row), strict=True)
    ]
    interval = "-"
    if row.ci_low is not None and row.ci_high is not None:
        interval = f"{signed(row.ci_low)} to {signed(row.ci_high)}"
    pairs = "" if row.pairs is None else f"{row.pairs:,} pairs"
    difference = "-" if row.difference is None else signed(row.difference)
    return [*lines, ("B - A", pairs, difference, interval, f"[{_COLOURS[row.decision]}]{row.decision}[/]")]


def _arms(row: Compared) -> tuple[Arm, Arm]:
    return row.champion, row.challenger


def _effective(row: Compared) -> str:
    """Return the effective sample sizes and the design effects of both sides."""
    sizes = ", ".join("-" if arm.n_eff is None else f"{arm.n_eff:,.0f}" for arm in _arms(row))
    effects = ", ".join("-" if arm.design_effect is None else f"{arm.design_effect:.2f}" for arm in _arms(row))
    return f"n_eff {sizes}; design effect {effects}"


def _sessions(row: Compared) -> str:
    a, b = (f"{arm.n if arm.clusters is None else arm.clusters:,}" for arm in (row.champion, row.challenger))
    return f"{a} (A) and {b} (B) sessions, users or single scores"


def _interval(arm: Arm) -> str:
    return "-" if arm.ci_low is None else f"{arm.ci_low:.3f} to {arm.ci_high:.3f}"
