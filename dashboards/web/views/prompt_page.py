"""What `/prompts` shows: the learned templates, and a form that tries a prompt's description on an exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec
from litestar.exceptions import HTTPException
from litestar.response import Template

from dashboards.web.prompt_diff import changed_lines, newest_prompt
from dashboards.web.site import Page, Site
from dashboards.web.views.overview import low_captures
from gateway.capture.stored_templates import learned_of
from gaugeway.exchange import Request, Response
from gaugeway.prompts import Extraction, UserTemplate
from gaugeway.prompts.user_patterns import Described, PatternExtractor, Piece, describe, guess, messages, toml
from gaugeway.records import Sample, same_scheme
from gaugeway.storage.stores import Query
from gaugeway.storage.templates import StoredTemplate
from monitors.alerting.changes import Version
from monitors.analysis.prompt_text import HASHED, pieces
from monitors.api.documents import stored

MAX_ENTRY = 20_000
"""Characters of a field."""
BETWEEN = ("separator", "separator_pattern", "read_as")
_COMPARED = 4


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """Result of applying an entry to an exchange: a configuration error (`problem`), or what it found."""

    problem: str = ""
    found: Extraction | None = None


def entry_of(given: Mapping[str, str]) -> UserTemplate:
    """Parse the form. Browsers send line breaks as CR LF."""
    fields = {name: value.replace("\r\n", "\n")[:MAX_ENTRY] for name, value in given.items()}
    between = fields.get("kind", "")
    said = fields.get("between", "")
    if between == "separator":
        said = said.replace("\\n", "\n").replace("\\t", "\t")
    entry = UserTemplate(fields.get("name", "").strip(), fields.get("pattern", ""), clean=bool(fields.get("clean")))
    return msgspec.structs.replace(entry, **{between: said}) if between in BETWEEN and said else entry


def prefilled(app: str, learned: Sequence[StoredTemplate], latest: Sequence[Sample]) -> Described:
    """Form defaults: the latest learned template, or else the common text of recent prompts without passages."""
    for known in reversed(learned):
        if (template := learned_of(known)) is None:
            continue
        try:
            return describe(template)
        except ValueError:
            continue
    texts = [text for sample in latest if sample.context_source == "none" and (text := _user_text(sample))][:_COMPARED]
    return Described(guess(app, texts) if texts else UserTemplate(app, ""))


def applied(entry: UserTemplate, sample: Sample | None) -> Applied:
    """Apply an entry to an exchange with the gateway's own extractor."""
    try:
        extractor = PatternExtractor([entry])
    except ValueError as error:
        return Applied(problem=str(error))
    if sample is None:
        return Applied()
    messages = [{"role": role, "content": text} for role, text in prompt_texts(sample)]
    request = Request(route="chat_completions", headers={}, body={"messages": messages})
    return Applied(found=extractor.extract(request, Response(status=200, body={})))


def prompt_texts(sample: Sample) -> list[tuple[str, str]]:
    """(role, text) of a stored prompt's messages, assembled from its parts; gaps become line breaks."""
    capture = sample.capture
    if capture is None:
        return [("user", sample.question)] if sample.question and not sample.question.startswith(HASHED) else []
    words = pieces(capture, sample.question, sample.contexts, sample.context_source)
    shown = list(zip(capture.parts, words, strict=True))
    found = []
    for _, some in groupby(shown, key=lambda pair: pair[0].message):
        text, end, role = "", 0, "user"
        for part, piece in some:
            text += "\n" * (part.start - end) + (piece.text or "")
            end, role = part.end, part.role
        found.append((role, text))
    return found


def _user_text(sample: Sample) -> str:
    return next((text for role, text in reversed(prompt_texts(sample)) if role == "user" and text.strip()), "")


MAX_VERSIONS = 50
"""Versions of prompts in the list, the newest ones."""
MAX_TEXT = 20_000
"""Characters of a prompt that are shown."""
_MONTH_S = 30 * 86_400.0


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A version of an app's prompt, and the one before it that was named in the same way ("" for none)."""

    version: Version
    before: str = ""


class PromptText(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a version in its newest exchange, and the lines that changed since the version before.

    The texts are None where no exchange stores them; with `more` characters that are not shown.
    """

    row: VersionRow
    exchange: str | None = None
    messages: list[tuple[str, list[Piece]]] = []
    more: int = 0
    changes: Sequence[str] | None = None


def version_rows(versions: Sequence[Version], app: str) -> list[VersionRow]:
    """The versions of prompts, of all apps without `app`, the newest first."""
    latest: dict[str, list[str]] = {}
    rows = []
    for version in versions:
        if version.kind != "prompt" or app not in ("", version.app):
            continue
        earlier = latest.setdefault(version.app, [])
        before = next((name for name in reversed(earlier) if same_scheme((name, version.value))), "")
        rows.append(VersionRow(version=version, before=before))
        earlier.append(version.value)
    return rows[::-1]


async def text_of(site: Site, row: VersionRow) -> PromptText:
    """Read the text of a version, and compare its instructions with those of the version before."""
    now = site.clock()
    query = Query(since=max(0.0, now - _MONTH_S), until=now + _DAY_S, app=row.version.app)
    sample = await newest_prompt(site.insight.store, query, row.version.value)
    if sample is None:
        return PromptText(row=row)
    old = await newest_prompt(site.insight.store, query, row.before) if row.before else None
    shown, more = marked(sample)
    return PromptText(row=row, exchange=sample.id, messages=shown, more=more, changes=changed_lines(old, sample))


def marked(sample: Sample) -> tuple[list[tuple[str, list[Piece]]], int]:
    """The messages of a prompt with its instructions, and slots for question and passages; characters left out."""
    if sample.capture is None:
        return [], 0
    words = pieces(sample.capture, sample.question, sample.contexts, sample.context_source)
    left, more = MAX_TEXT, 0
    found: list[tuple[str, list[Piece]]] = []
    for _, some in groupby(words, key=lambda piece: piece.message):
        texts: list[Piece] = []
        role = ""
        for piece in some:
            role = piece.role
            slot = {"instructions": None, "question": "question"}.get(piece.kind, "passages")
            text = (piece.text or "") if slot is None else ""
            more += max(0, len(text) - left)
            text, left = text[:left], max(0, left - len(text))
            if slot != "passages" or not texts or texts[-1].slot != "passages":
                texts.append(Piece(text, slot))
        found.append((role, texts))
    return found, more


MAX_LOOKED_AT = 20
"""Latest exchanges of an app that are searched for examples."""
_POINTS, _DAY_S, _WEEK_S = 200, 86_400.0, 7 * 86_400.0


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A learned template for display; `messages` is None if another release wrote it."""

    template: StoredTemplate
    passages: str
    messages: list[tuple[str, list[Piece]]] | None


async def render(site: Site, request: Page, app: str, given: UserTemplate | None = None) -> Template:
    """Return the page, for `app` if one is chosen, with the result of the entry `given`."""
    kept, trouble = await _stored(site)
    versions = version_rows(site.engine.versions.all(), app)
    wanted = request.query_params.get("version", "")
    chosen = next((row for row in versions if wanted in ("", row.version.value)), None)
    latest = await _latest(site, app) if app else []
    own = [template for template in kept if template.app == app]
    result: Applied | None = None
    sample = next((recent for recent in latest if recent.context_source == "none"), next(iter(latest), None))
    described = None
    if given is not None:
        described, result = Described(given), applied(given, sample)
    elif app:
        described = prefilled(app, [template for template in own if template.state != "rejected"], latest)
    return site.render(
        request,
        "prompts.html",
        title="Prompts",
        versions=versions[:MAX_VERSIONS],
        more_versions=max(0, len(versions) - MAX_VERSIONS),
        text=await text_of(site, chosen) if chosen is not None else None,
        rows=[_shown(template) for template in kept],
        trouble=trouble,
        low=[capture for capture in low_captures(site.insight.captured()) if capture.without_passages],
        app=app,
        own=[_shown(template) for template in own],
        example=next((recent for recent in latest if recent.context_source == "learned"), None),
        content=site.config.capture.content,
        entry=described.entry if described is not None else None,
        most=MAX_ENTRY,
        sample=sample,
        result=result,
        toml=toml(described) if described is not None else None,
    )


async def _stored(site: Site) -> tuple[list[StoredTemplate], str]:
    """The learned templates, or the reason they cannot be read; the form works in either case."""
    try:
        return await stored(site.templates), ""
    except HTTPException as error:
        return [], str(error.detail)


async def _latest(site: Site, app: str) -> list[Sample]:
    """Latest exchanges of an app that have an answer, newest first."""
    now = site.clock()
    query = Query(since=now - _WEEK_S, until=now + _DAY_S, app=app, order="newest", limit=_POINTS)
    ids = dict.fromkeys(point.sample_id for point in await site.insight.store.series(query))
    found = [await site.insight.store.sample(sample_id) for sample_id in list(ids)[:MAX_LOOKED_AT]]
    return [exchange[0] for exchange in found if exchange is not None and exchange[0].skip_reason is None]


def _shown(template: StoredTemplate) -> Shown:
    learned = learned_of(template)
    words = str(template.split.get("words") or "").replace("\x05", "N")
    kind = str(template.split.get("kind"))
    return Shown(
        template=template,
        passages=f"{kind} {msgspec.json.encode(words).decode()}" if words else kind,
        messages=messages(learned) if learned is not None else None,
    )
