"""Prompt templates learned from traffic, which all gateways share: what the documents of an engine keep of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from gaugeway.storage.documents import Changes, Collection, Documents, Row
from gaugeway.storage.engine import adapter
from gaugeway.storage.engines.failures import RefusedError, encoded
from gaugeway.storage.erase import Subject

State: TypeAlias = Literal["learned", "confirmed", "rejected", "asked", "marked"]
"""The last two are requests that the judge is to mark, or has marked: no templates yet."""
ASKED: tuple[State, ...] = ("asked", "marked")

TEMPLATES = Collection(name="templates", key=("app", "version"), others=("state", "learned_at"), body="payload")
MAX_TEMPLATES_OF_APP = 25
MAX_TEMPLATES = 1_000
"""Of all apps together. Beyond a bound the oldest unconfirmed one is dropped, rejected ones last."""
MAX_TEMPLATE_BYTES = 512 * 1024

_LEAVES_FIRST = ("marked", "asked", "learned", "rejected", "confirmed")


class StoredTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A learned template as it is kept: `gaugeway.prompts.learning` says what its fields mean, the state is a person's.

    `split` is that package's own; whoever keeps a template passes it on as it is. One in a state of `ASKED` is a
    request instead: `literals` has its text, redacted, `slots` is empty, and `split` has what the judge marked.
    """

    app: str
    version: str
    kind: str
    literals: tuple[str, ...]
    slots: tuple[str, ...]
    split: dict[str, Any]
    seen: int
    learned_at: float
    state: State = "learned"
    stale: bool = False


class Templates:
    """Keeps learned templates in documents. Operations raise `engines.failures.FAILURES`.

    A template that cannot be read, because something else wrote it, is left out.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents, self.aclose = documents, documents.aclose

    async def templates(self, app: str | None = None) -> Sequence[StoredTemplate]:
        """Return all templates, or those of one app: by app, the oldest first."""
        _, found = await self.changed(None)
        return [template for template in found or () if app in (None, template.app)]

    async def changed(self, revision: bytes | None) -> tuple[bytes, Sequence[StoredTemplate] | None]:
        """Return the revision and, if it is not the one given, all templates. Cheap when nothing has changed."""
        current, rows = await self._documents.changed(TEMPLATES, revision)
        # In a thread: hundreds must not hold up the requests.
        return current, None if rows is None else await asyncio.to_thread(_read_all, rows)

    async def put_template(self, template: StoredTemplate) -> None:
        """Keep a template. Of one that is there only `stale` and `seen` change: its state is what people made it.

        Raises RefusedError for one of more than MAX_TEMPLATE_BYTES.
        """
        body, key = body_of(template), _key(template.app, template.version)

        def change(rows: Sequence[Row]) -> Changes:
            heads = {row[:2]: row for row in rows}
            heads.setdefault(key, (*key, template.state, template.learned_at))
            gone = beyond_bounds(heads.values())
            return Changes(put=[] if key in gone else [(*heads[key], body)], delete=gone)

        await self._documents.update(TEMPLATES, change)

    async def set_template_state(self, app: str, version: str, state: State) -> bool:
        """Confirm or reject a template; False when there is none of this app and version (a marked request is none)."""
        found: list[Row] = []

        def change(rows: Sequence[Row]) -> Changes:
            found[:] = [row for row in rows if row[:2] == _key(app, version) and row[2] not in ASKED]
            return Changes(revise=[(*row[:2], state, row[3]) for row in found])

        await self._documents.update(TEMPLATES, change)
        return bool(found)

    async def drop_templates(self, names: Iterable[tuple[str, str]], *, learned_only: bool = True) -> int:
        """Delete templates by app and version; return how many that were.

        With `learned_only` one that a person confirmed or rejected stays.
        """
        wanted = {_key(*name) for name in names}
        gone: list[Row] = []

        def change(rows: Sequence[Row]) -> Changes:
            gone[:] = [row[:2] for row in rows if row[:2] in wanted and (row[2] == "learned" or not learned_only)]
            return Changes(delete=gone)

        if wanted:
            await self._documents.update(TEMPLATES, change)
        return len(gone)


def body_of(template: StoredTemplate) -> str:
    """Encode it. Raises RefusedError for one that is too large."""
    if len(body := encoded(template)) > MAX_TEMPLATE_BYTES:
        raise RefusedError(f"a template of {len(body)} bytes is too large to be kept")
    return body.decode()


def read(body: str, state: str) -> StoredTemplate | None:
    """Decode one; None for what is none."""
    try:
        template = msgspec.json.decode(body, type=StoredTemplate)
        return msgspec.structs.replace(template, state=msgspec.convert(state, State))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def only_templates(kept: Iterable[StoredTemplate]) -> list[StoredTemplate]:
    """Leave out the requests for the judge."""
    return [template for template in kept if template.state not in ASKED]


def beyond_bounds(kept: Iterable[Row]) -> list[tuple[str, str]]:
    """Return which of the templates (app, version, state, learned at) are too many, as (app, version)."""
    stays_first = sorted(kept, key=lambda row: (-_LEAVES_FIRST.index(row[2]), -row[3], row[1]))
    of_app: dict[str, int] = {}
    total = 0
    gone = []
    for app, version, _, _ in stays_first:
        of_app[app] = of_app.get(app, 0) + 1
        if of_app[app] > MAX_TEMPLATES_OF_APP or total >= MAX_TEMPLATES:
            gone.append((app, version))
        else:
            total += 1
    return gone


def meant(templates: Iterable[StoredTemplate], subject: Subject) -> list[StoredTemplate]:
    """Return the templates that are about a person: those with the text, or all of an app.

    No template has a session. A request that the judge marked may be of any, so it counts.
    """
    if subject.session is not None:
        return [template for template in templates if template.state in ASKED]
    return [
        template
        for template in templates
        if (subject.app is None or template.app == subject.app)
        and subject.meets_texts([*template.literals, *map(str, template.split.values())])
    ]


def open_templates(url: str) -> Templates:
    """Return the templates beside the store that `url` names: a table of its database, or a file of its directory.

    Nothing is opened yet. Raises ValueError for a URL of another kind.
    """
    return Templates(adapter(url, "templates").from_url(url))


def _key(app: str, version: str) -> tuple[str, str]:
    """The key as every engine can hold it: PostgreSQL knows no NUL."""
    return app.replace("\0", "\N{REPLACEMENT CHARACTER}"), version.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _read_all(rows: Iterable[Row]) -> list[StoredTemplate]:
    """Return those that can be read, by app, the oldest first."""
    templates = [template for row in rows if (template := read(row[4], row[2])) is not None]
    return sorted(templates, key=lambda template: (template.app, template.learned_at, template.version))
