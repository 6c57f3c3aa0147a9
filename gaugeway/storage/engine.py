"""Engines of storage: each is an entry point `gaugeway.engines` by the scheme of its URLs, and says what it offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from gaugeway.extensions import load, registered

Port: TypeAlias = Literal["store", "queue", "keys", "limits", "templates", "datasets", "trials"]
"""The last five are documents: an engine may offer some of them only."""


class Engine(Struct, frozen=True, kw_only=True):
    """What an engine offers: import strings `package.module:Name` of classes with `from_url`, imported when needed.

    `documents` keep what `keeps` names. `leader` is a function like `engines.postgres.leader.stand`. An `embedded`
    engine is used by the processes of one machine, of which a single one monitors: it needs no election.
    """

    store: str | None = None
    queue: str | None = None
    documents: str | None = None
    keeps: frozenset[str] = frozenset()
    leader: str | None = None
    embedded: bool = False

    def offers(self, port: Port) -> str | None:
        """Return the import string for a port, or None."""
        return self.documents if port in self.keeps else {"store": self.store, "queue": self.queue}.get(port)


def engine_of(url: str) -> Engine | None:
    """Return the engine for the scheme of `url`, if there is one."""
    scheme = url.partition("://")[0]
    known = registered("engines")
    return _load(scheme, known) if scheme in known else None


def adapter(url: str, port: Port) -> Any:
    """Import and return the class for a port of the engine that `url` names.

    Raises ValueError, which quotes only the scheme, where there is none.
    """
    scheme, separator, _ = url.partition("://")
    engine = engine_of(url) if separator else None
    if engine is None or (target := engine.offers(port)) is None:
        known = registered("engines")
        names = ", ".join(f"{name}://" for name in sorted(known) if _load(name, known).offers(port))
        problem = f"unsupported URL scheme {scheme!r}" if separator else "the URL has no scheme"
        raise ValueError(f"{problem}; use {names}")
    return load(scheme, {scheme: target})


def _load(scheme: str, known: Mapping[str, str]) -> Engine:
    if not isinstance(engine := load(scheme, known, "engine"), Engine):
        raise ValueError(f"{known[scheme]!r} is not a gaugeway.storage.engine.Engine")  # noqa: TRY004 - as other errors of settings
    return engine
