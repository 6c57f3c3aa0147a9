"""`gaugeway init`: writes a commented `gaugeway.toml` from a few questions, or from options, and checks it."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from jinja2 import Environment, PackageLoader, StrictUndefined

from gateway import config as configuration
from gaugeway.cli.shared import DEFAULT, FILE, NumberRange
from gaugeway.settings import ConfigError
from gaugeway.settings.endpoints import base_url_problem, needs_key

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
KEY_VARIABLE = "OPENAI_API_KEY"
SLACK_VARIABLE = "SLACK_WEBHOOK"


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What the file is written from. Keys are named by the environment variable that holds them.

    Without `key_variable` the judge's key is in `KEY_VARIABLE` if its address needs one.
    """

    upstream: str
    judge: str | None = None
    judge_url: str | None = None
    key_variable: str | None = None
    rate: float = 0.2
    slo: float | None = None
    slack: bool = False

    @property
    def variable(self) -> str | None:
        """The environment variable with the judge's key; None if it needs none."""
        needed = _has_key(self.judge_url or self.upstream)
        return self.key_variable or (KEY_VARIABLE if needed else None)


@click.command()
@click.option("--upstream", help="Base URL of the provider, as configured in a client.")
@click.option("--judge", help="Model that judges the answers; '' for none.")
@click.option("--judge-url", help="Base URL of the judge. [that of --upstream]")
@click.option("--key-variable", help=f"Variable with the judge's API key. [{KEY_VARIABLE}]")
@click.option("--rate", type=NumberRange(0.0, 1.0), default=0.2, help="Share of answers judged.")
@click.option(
    "--slo",
    type=NumberRange(0.0, 1.0, min_open=True, max_open=True),
    help="Least mean faithfulness. [a learned baseline]",
)
@click.option("--slack/--no-slack", default=None, help=f"Notify Slack; the webhook is in {SLACK_VARIABLE}.")
@click.option("--output", type=FILE, default=DEFAULT)
@click.option("--force", is_flag=True, help="Overwrite the file.")
def init(output: Path, *, force: bool, **given: Any) -> None:
    """Write a commented gaugeway.toml. Asks for what the options do not say, on a terminal."""
    if output.exists() and not force:
        raise click.BadParameter(f"{output} exists; --force overwrites it", param_hint="--output")
    _check_options(given)
    asks = _is_terminal()
    if given["upstream"] is None:
        if not asks:
            raise click.UsageError("--upstream is required when standard input is not a terminal")
        given["upstream"] = click.prompt(
            "Base URL of your provider", default="https://api.openai.com/v1", value_proc=_answer(_url_problem)
        )
    if given["judge"] is None and asks:
        question = "Model that judges the answers" + ("" if given["judge_url"] else " (empty: none)")
        default = None if given["judge_url"] else ""
        model = click.prompt(question, default=default, show_default=False, value_proc=_answer(_model_problem))
        given["judge"] = model.strip()
    if given["judge_url"] is not None and not given["judge"]:
        raise click.UsageError("--judge-url is the address of a judge: it needs --judge MODEL")
    if given["judge"] and given["slo"] is not None and given["rate"] == 0.0:
        raise click.UsageError("--slo needs scores, and with --rate 0 no answer is judged")
    if given["slack"] is None:
        given["slack"] = asks and click.confirm("Notify Slack?", default=False)
    answers = Answers(**given | {"judge": given["judge"] or None})
    _write(answers, output)
    click.echo(f"{output} written. Next:\n\n{_next(answers, output)}")


def _check_options(given: dict[str, Any]) -> None:
    """Raise BadParameter for the first option that cannot be used, before anything is asked."""
    checks = {
        "upstream": _url_problem,
        "judge": _model_problem,
        "judge_url": _judge_url_problem,
        "key_variable": _variable_problem,
    }
    for name, check in checks.items():
        if given[name] is not None and (problem := check(given[name])) is not None:
            raise click.BadParameter(problem, param_hint=f"--{name.replace('_', '-')}")


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _answer(check: Callable[[str], str | None]) -> Callable[[str], str]:
    """Return what reads an answer to a question; click asks again when `check` finds a problem with it."""

    def read(said: str) -> str:
        if (problem := check(said)) is not None:
            raise click.UsageError(problem)
        return said

    return read


def _url_problem(url: str) -> str | None:
    """Say why `url` cannot be the upstream's; everything that `gaugeway check` finds."""
    return base_url_problem(url) or _written_problem(url) or _found(Answers(upstream=url))


def _judge_url_problem(url: str) -> str | None:
    answers = Answers(upstream="https://api.openai.com/v1", judge="model", judge_url=url)
    return base_url_problem(url) or _written_problem(url) or _found(answers)


def _model_problem(name: str) -> str | None:
    if "://" in name:
        return "expected the name of a model; its address is --judge-url"
    if not name.strip().isprintable():
        return "expected the name of a model, on one line"
    return _written_problem(name)


def _variable_problem(name: str) -> str | None:
    return None if _VARIABLE.fullmatch(name) else "expected the name of an environment variable"


def _written_problem(text: str) -> str | None:
    """Say why a text would not be read from the file as it is."""
    return "must not have '${': the file would read it as a variable" if "${" in text else None


def _found(answers: Answers) -> str | None:
    """Return what `check` finds wrong with the file, without the keys of the addresses."""
    problems = _problems(written(answers))
    return "; ".join(line.partition("base_url: ")[2] or line for line in dict.fromkeys(problems)) or None


def _problems(text: str) -> list[str]:
    """Return what `check` finds wrong with a file, other than variables that are not set here."""
    with tempfile.TemporaryDirectory() as directory:
        trial = Path(directory) / DEFAULT
        trial.write_text(text, "utf-8")
        try:
            _, found = configuration.examine(trial)
        except ConfigError as error:
            return list(error.problems)
    return [line for line in found.lines if "environment variable" not in line]


def _write(answers: Answers, output: Path) -> None:
    """Write the file, unless `check` would find a mistake in it."""
    text = written(answers)
    if mistakes := _problems(text):
        raise click.UsageError("; ".join(mistakes))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, "utf-8")
    except OSError as error:
        raise click.BadParameter(f"{output}: {error.strerror}", param_hint="--output") from error


def written(answers: Answers) -> str:
    """Return the content of the file."""
    environment = Environment(
        loader=PackageLoader("gaugeway.cli", ""),
        autoescape=False,  # noqa: S701 - TOML, in which `toml` quotes
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["toml"] = partial(json.dumps, ensure_ascii=False)
    values = asdict(answers) | {"variable": answers.variable}
    return environment.get_template("gaugeway.toml.j2").render(
        values, default_variable=KEY_VARIABLE, slack_variable=SLACK_VARIABLE
    )


def _has_key(url: str) -> bool:
    """Whether requests to the address carry a key: providers on the Internet want one."""
    return needs_key(url) or url.startswith("https://")


def _next(answers: Answers, output: Path) -> str:
    variables = [answers.variable] if answers.judge and answers.variable else []
    variables += [SLACK_VARIABLE] if answers.slack else []
    config = "" if output == DEFAULT else f" --config {output}"
    lines = [f"  export {name}=..." for name in variables]
    return "\n".join(
        [
            *lines,
            f"  gaugeway serve{config}",
            "  # then base_url=http://127.0.0.1:8080/v1 in your client, and open http://127.0.0.1:9465/",
        ]
    )
