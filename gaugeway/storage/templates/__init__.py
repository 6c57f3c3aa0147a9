"""Port to the stores of prompt templates learned from traffic, which all gateways share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from gaugeway.extensions import adapter
from gaugeway.storage.engines.failures import RefusedError, encoded
from gaugeway.storage.erase import Subject

State: TypeAlias = Literal["learned", "confirmed", "rejected", "asked", "marked"]
"""The last two are requests that the judge is to mark, or has marked: no templates yet."""
ASKED: tuple[State, ...] = ("asked", "marked")

BUILT_IN = {
    "sqlite": "gaugeway.storage.engines.sqlite.documents:SQLiteTemplates",
    "postgresql": "gaugeway.storage.engines.postgres.documents:PostgresTemplates",
    "postgres": "gaugeway.storage.engines.postgres.documents:PostgresTemplates",
    "clickhouse": "gaugeway.storage.engines.clickhouse.documents:ClickHouseTemplates",
    "clickhouses": "gaugeway.storage.engines.clickhouse.documents:ClickHouseTemplates",
}
"""Scheme of the store's URL -> adapter."""
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


class Templates(Protocol):
    """Where learned templates are kept. Operations raise `engines.failures.FAILURES`.

    A template that cannot be read, because something else wrote it, is left out.
    """

    async def templates(self, app: str | None = None) -> Sequence[StoredTemplate]:
        """Return all templates, or those of one app: by app, the oldest first."""

    async def changed(self, revision: bytes | None) -> tuple[bytes, Sequence[StoredTemplate] | None]:
        """Return the revision and, if it is not the one given, all templates. Cheap when nothing has changed."""

    async def put_template(self, template: StoredTemplate) -> None:
        """Keep a template. Of one that is there only `stale` and `seen` change: its state is what people made it.

        Raises RefusedError for one of more than MAX_TEMPLATE_BYTES.
        """

    async def set_template_state(self, app: str, version: str, state: State) -> bool:
        """Confirm or reject a template; False when there is none of this app and version (a marked request is none)."""

    async def drop_templates(self, names: Iterable[tuple[str, str]], *, learned_only: bool = True) -> int:
        """Delete templates by app and version; return how many that were.

        With `learned_only` one that a person confirmed or rejected stays.
        """

    async def aclose(self) -> None:
        """Let go of file or connections; the next operation opens them again."""


def body_of(template: StoredTemplate) -> str:
    """Encode it. Raises RefusedError for one that is too large."""
    body = encoded(template)
    if len(body) > MAX_TEMPLATE_BYTES:
        raise RefusedError(f"a template of {len(body)} bytes is too large to be kept")
    return body.decode()


def read(body: str, state: str) -> StoredTemplate | None:
    """Decode one; None for what is none."""
    try:
        template = msgspec.json.decode(body, type=StoredTemplate)
        return msgspec.structs.replace(template, state=msgspec.convert(state, State))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def revision_of(rows: Iterable[Sequence[object]]) -> bytes:
    """Return the revision of templates from their names, states and sizes."""
    return blake2b(repr(sorted(map(tuple, rows))).encode("utf-8", "surrogatepass"), digest_size=16).digest()


async def all_of(rows: Iterable[Sequence[str]]) -> list[StoredTemplate]:
    """Decode rows (payload, state), in a thread: hundreds must not hold up the requests."""
    return await asyncio.to_thread(lambda: ordered(read(body, state) for body, state in rows))


def ordered(templates: Iterable[StoredTemplate | None]) -> list[StoredTemplate]:
    """Return those that could be read, by app, the oldest first."""
    found = [template for template in templates if template is not None]
    return sorted(found, key=lambda template: (template.app, template.learned_at, template.version))


def only_templates(kept: Iterable[StoredTemplate]) -> list[StoredTemplate]:
    """Leave out the requests for the judge."""
    return [template for template in kept if template.state not in ASKED]


def beyond_bounds(kept: Iterable[tuple[str, str, str, float]]) -> list[tuple[str, str]]:
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
    templates: Templates = adapter(url, BUILT_IN).from_url(url)
    return templates
