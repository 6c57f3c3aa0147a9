"""`gaugeway templates`: list, show, export, confirm and reject the prompt templates learned from traffic."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from gateway.capture.stored_templates import learned_of
from gaugeway.cli.shared import ask_kept, fail, print_json, print_table, record, stored_options, utc
from gaugeway.prompts.user_patterns import Piece, describe, messages, toml
from gaugeway.storage.templates import State, StoredTemplate, Templates, only_templates, open_templates

_NOT_ALL = 1
_SLOT = "[[{}]]"
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def templates() -> None:
    """List, show, export, confirm and reject the prompt templates learned from traffic."""


@templates.command("list")
@click.option("--app", help="Only of this app. [all]")
@_json
@stored_options
def list_templates(config: Path | None, data_dir: Path, app: str | None, as_json: bool) -> None:  # noqa: FBT001 - a click flag
    """List templates, with the separator of their passages and the number of requests they were learned from."""
    found = ask_kept(open_templates, config, data_dir, lambda kept: _templates(kept, app))
    if as_json:
        print_json([_plain(template) for template in found])
        return
    rows = [("APP", "VERSION", "STATE", "REQUESTS", "LEARNED", "STILL FITS", "PASSAGES")]
    for template in found:
        about = (template.app, template.version, template.state, f"{template.seen}", utc(template.learned_at))
        rows.append((*about, "no" if template.stale else "yes", split_words(template)))
    print_table(rows, "no templates")


@templates.command()
@click.argument("app")
@click.argument("version")
@_json
@stored_options
def show(config: Path | None, data_dir: Path, app: str, version: str, as_json: bool) -> None:  # noqa: FBT001 - a click flag
    """Show the constant text of a template and its slots."""
    template = _one(ask_kept(open_templates, config, data_dir, lambda kept: _templates(kept, app)), app, version)
    if (learned := learned_of(template)) is None:
        fail(f"template {version} of app {app} was written by another release and cannot be read")
    whose = messages(learned)
    if as_json:
        texts = [{"role": role, "text": _marked(pieces)} for role, pieces in whose]
        print_json(_plain(template) | {"messages": texts})
        return
    stale = ", no longer fits" if template.stale else ""
    click.echo(
        f"{template.app} {template.version}: {template.state}{stale}, "
        f"learned {utc(template.learned_at)} from {template.seen} requests"
    )
    click.echo(f"passages: {split_words(template)}")
    for role, pieces in whose:
        click.echo(f"--- {role}")
        click.echo(_marked(pieces))


@templates.command()
@click.argument("app", required=False)
@click.argument("version", required=False)
@stored_options
def export(config: Path | None, data_dir: Path, app: str | None, version: str | None) -> None:
    """Print templates as [[capture.templates]] for gaugeway.toml: the given one, or all that are not rejected.

    Exit codes: 0 all exported, 1 a template cannot be written as a pattern, 2 bad input.
    """
    found = ask_kept(open_templates, config, data_dir, lambda kept: _templates(kept, app))
    kept = [template for template in found if template.state != "rejected"]
    chosen = [_one(found, app, version)] if app and version else kept
    if not chosen:
        fail("no template to export; see 'gaugeway templates list'")
    left_out = 0
    for template in chosen:
        try:
            learned = learned_of(template)
            said = toml(describe(learned)) if learned is not None else None
            problem = "it was written by another release"
        except ValueError as error:
            said, problem = None, str(error)
        if said is not None:
            click.echo(said)
        else:
            left_out += 1
            click.echo(
                f"gaugeway: template {template.version} of app {template.app} is not exported: {problem}", err=True
            )
    sys.exit(_NOT_ALL if left_out else 0)


@templates.command()
@click.argument("app")
@click.argument("version")
@stored_options
def confirm(config: Path | None, data_dir: Path, app: str, version: str) -> None:
    """Confirm a template: when it no longer fits it is marked stale instead of dropped."""
    _decide(config, data_dir, app, version, "confirmed")


@templates.command()
@click.argument("app")
@click.argument("version")
@stored_options
def reject(config: Path | None, data_dir: Path, app: str, version: str) -> None:
    """Reject a template: it is neither used nor learned again. Running gateways apply this within a few seconds."""
    _decide(config, data_dir, app, version, "rejected")


def split_words(template: StoredTemplate) -> str:
    """Describe how a template separates passages."""
    words = template.split.get("words") or ""
    kind = str(template.split.get("kind"))
    said = words.replace("\x05", "N") if isinstance(words, str) else ""
    return f"{kind} {said!r}" if kind == "marker" else f"{kind} {said}".strip()


def _decide(config: Path | None, data_dir: Path, app: str, version: str, state: State) -> None:
    known = ask_kept(open_templates, config, data_dir, lambda kept: kept.set_template_state(app, version, state))
    if not known:
        fail(f"app {app!r} has no template {version!r}; see 'gaugeway templates list'")
    record(data_dir, f"template_{state}", app=app, version=version)
    click.echo(f"{version} of {app} is {state}")


async def _templates(kept: Templates, app: str | None) -> list[StoredTemplate]:
    return only_templates(await kept.templates(app))


def _one(found: Sequence[StoredTemplate], app: str | None, version: str | None) -> StoredTemplate:
    template = next((stored for stored in found if stored.version == version), None)
    if template is None:
        fail(f"app {app!r} has no template {version!r}; see 'gaugeway templates list'")
    return template


def _plain(template: StoredTemplate) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(template)
    return found | {"learned_at": utc(template.learned_at), "passages": split_words(template)}


def _marked(pieces: list[Piece]) -> str:
    return "".join(piece.text if piece.slot is None else _SLOT.format(piece.slot) for piece in pieces)
