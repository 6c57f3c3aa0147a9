"""`gaugeway trial`: tries a candidate on live traffic before anybody switches to it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from gaugeway.cli import shared
from gaugeway.cli.shared import stored_options
from gaugeway.runtime import audit
from gaugeway.settings.loading import load
from gaugeway.storage.trials import Trials, open_trials
from monitors.trials import desk
from monitors.trials.desk import TrialReport
from monitors.trials.report_files import SUFFIXES, sentence_of, written

_EXIT = {"ship": 0, "do not ship": 1, "not yet": 2}
_POLL_S = 5.0
_NUMBERS = ("max_contexts",)
_LONGEST_PROMPT = 1_000_000  # internal bound: a file that the operator names


@click.group()
def trial() -> None:
    """Try a candidate on live traffic: the same requests, both answers judged, a verdict with a stated error."""


@trial.command()
@click.argument("name")
@click.option("--app", required=True, help="The app whose exchanges are tried.")
@click.option(
    "--candidate",
    "given",
    multiple=True,
    required=True,
    metavar="KEY=VALUE",
    help="upstream, base_url, api_key, model, system_prompt=FILE, params.NAME, max_contexts, drop_source, price.input, "
    "price.output; repeatable. name=NAME begins another candidate.",
)
@click.option("--primary", required=True, help="The metric that decides, or preference.")
@click.option(
    "--metrics", default="", show_default=False, help="Further metrics, comma-separated. [all that judge answers]"
)
@click.option("--send", required=True, type=click.Choice(["redacted", "original"]), help="What may be sent.")
@click.option("--usd", required=True, type=float, help="The most that the candidates' answers may cost.")
@click.option("--judge-usd", type=float, help="The most that judging may cost. [--usd]")
@click.option("--days", type=float, default=14.0, help="The trial ends after so many days.")
@click.option("--margin", type=float, default=0.02, help="The loss that would be accepted.")
@click.option("--alpha", type=float, default=0.05, help="The error rate of all verdicts together.")
@click.option("--rate", type=float, default=1.0, help="Share of the app's exchanges.")
@click.option("--per-second", type=float, default=1.0, help="Most requests a second.")
@click.option("--parallel", type=int, default=4, help="Most requests at once.")
@click.option("--watch", is_flag=True, help="The candidate is the version before a switch: page if it was better.")
@click.option("--timeout-s", type=float, default=120.0, help="Timeout of a request.")
@click.option("--yes", is_flag=True, help="Do not ask whether to send requests there.")
@stored_options
def start(config: Path | None, data_dir: Path, yes: bool, **options: Any) -> None:  # noqa: FBT001 - click passes options by name
    """Start a trial; the running monitors send the requests."""
    with shared.reported_errors():
        settings = load(config)
        arms, metrics = _arms(options.pop("given")), options.pop("metrics")
        given = {name: value for name, value in options.items() if value is not None}
        given |= {"arms": arms, "by": audit.whoami(), "metrics": [one for one in metrics.split(",") if one]}
        trial_ = desk.definition(given, settings, time.time())
        trial_ = desk.checked(trial_, settings, shared.catalogue_of(settings))
    for arm in trial_.arms:
        click.echo(f"{arm.name}: {', '.join(desk.changes_of(arm))}; requests of {trial_.app} go to {arm.base_url}")
    if not yes:
        click.confirm("Start?", abort=True)
    shared.ask_kept(open_trials, config, data_dir, lambda kept: kept.start(trial_))
    sends_to = ",".join(arm.base_url for arm in trial_.arms)
    shared.record(data_dir, "trial_start", trial=trial_.name, sends_to=sends_to)
    click.echo(f"trial {trial_.name} runs; see 'gaugeway trial show {trial_.name}'")


@trial.command("list")
@stored_options
def list_trials(config: Path | None, data_dir: Path) -> None:
    """List the trials with their verdicts so far."""
    rows = [("NAME", "APP", "STATE", "VERDICT", "TRIED", "USD", "STARTED")]
    for report in _reports(config, data_dir):
        tried, usd = sum(arm.tried for arm in report.arms), sum(arm.usd for arm in report.arms)
        state = f"{report.state}: {report.why}" if report.why else report.state
        about = (str(tried), f"{usd:.4f}", shared.utc(report.started_at))
        rows.append((report.name, report.app, state, report.verdict, *about))
    shared.print_table(rows, "no trials")


@trial.command()
@click.argument("name")
@shared.table_or_json
@stored_options
def show(config: Path | None, data_dir: Path, name: str, shown_as: str) -> None:
    """Show a trial: the verdict, each metric, and what was left out."""
    (report,) = _reports(config, data_dir, name)
    click.echo(written(report, ".json" if shown_as == "json" else ".md", plain=True).rstrip())


@trial.command()
@click.argument("name")
@stored_options
def stop(config: Path | None, data_dir: Path, name: str) -> None:
    """End a trial; its results stay."""
    if not shared.ask_kept(open_trials, config, data_dir, lambda kept: kept.end(name, "stopped", time.time())):
        shared.fail(f"no trial {name} runs")
    shared.record(data_dir, "trial_stop", trial=name)
    click.echo(f"trial {name} ended")


@trial.command()
@click.argument("name")
@stored_options
def remove(config: Path | None, data_dir: Path, name: str) -> None:
    """Delete a trial with its results; the scores of its answers stay with their exchanges."""
    if not shared.ask_kept(open_trials, config, data_dir, lambda kept: kept.remove(name)):
        shared.fail(f"there is no trial {name}")
    shared.record(data_dir, "trial_remove", trial=name)
    click.echo(f"removed trial {name}")


@trial.command()
@click.argument("name")
@click.option("--timeout", default="0s", help="How long to wait for a verdict: 30m, 24h, 7d.")
@click.option("--output", type=shared.FILE, multiple=True, help=f"A report: {', '.join(SUFFIXES)}; repeatable.")
@stored_options
def gate(config: Path | None, data_dir: Path, name: str, timeout: str, output: tuple[Path, ...]) -> None:
    """Wait for the verdict. Exit codes: 0 ship, 1 do not ship, 2 not decided in time, or bad input."""
    with shared.reported_errors():
        if wrong := [str(path) for path in output if path.suffix not in SUFFIXES]:
            raise ValueError(f"--output: {wrong[0]}: a report ends in {', '.join(SUFFIXES)}")
        begin, _ = shared.span(timeout)
        until = time.time() + (time.time() - begin)
    (report,) = _reports(config, data_dir, name)
    while report.verdict == "not yet" and report.state == "running" and time.time() < until:
        time.sleep(min(_POLL_S, max(0.0, until - time.time())))
        (report,) = _reports(config, data_dir, name)
    with shared.reported_errors():
        for path in output:
            path.write_text(written(report, path.suffix), encoding="utf-8")
    click.echo(sentence_of(report))
    sys.exit(_EXIT[report.verdict])


def _reports(config: Path | None, data_dir: Path, name: str | None = None) -> Sequence[TrialReport]:
    """Return the reports on all trials, or on one."""
    with shared.reported_errors():
        catalogue = shared.catalogue_of(load(config))

    async def read(kept: Trials) -> list[TrialReport]:
        stored = await kept.all() if name is None else [await kept.get(name)]
        return [await desk.report(kept, one, catalogue) for one in stored]

    found: list[TrialReport] = shared.ask_kept(open_trials, config, data_dir, read)
    return found


def _arms(given: Sequence[str]) -> list[dict[str, Any]]:
    """Read KEY=VALUE of the candidates. Raises ValueError."""
    arms: list[dict[str, Any]] = [{}]
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--candidate: expected KEY=VALUE, got {text!r}")
        if key == "name" and arms[-1]:
            arms.append({})
        table, dot, name = key.partition(".")
        if dot:
            if table not in ("params", "price"):
                raise ValueError(f"--candidate: {key!r}: only params and price have names after a dot")
            arms[-1].setdefault(table, {})[name] = _json(value)
        elif key == "system_prompt":
            with Path(value).open(encoding="utf-8") as file:
                arms[-1][key] = file.read(_LONGEST_PROMPT)
        else:
            arms[-1][key] = _json(value) if key in _NUMBERS else value
    return arms


def _json(text: str) -> Any:
    """Return a JSON value; a text that is none stands for itself."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    return text
