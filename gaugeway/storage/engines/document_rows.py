"""Statements for collections of documents whose table has the columns of the collection, and their revision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from gaugeway.storage.documents import Collection


def select(collection: Collection, columns: Iterable[str]) -> str:
    """Read columns of all rows."""
    return f"SELECT {', '.join(columns)} FROM {collection.name}"  # noqa: S608 - our own words


def sizes(collection: Collection) -> str:
    """Read what `revision_of` takes: the heads, and how long each body is."""
    length = [] if collection.body is None else [f"length({collection.body})"]
    return select(collection, [*collection.head, *length])


def put(collection: Collection, mark: str) -> str:
    """Add a row, or replace the one of the same key; `mark` begins the placeholders, which are numbered from 1."""
    columns = collection.columns
    values = ", ".join(f"{mark}{number}" for number in range(1, len(columns) + 1))
    new = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in collection.key)
    return (
        f"INSERT INTO {collection.name} ({', '.join(columns)}) VALUES ({values}) "  # noqa: S608 - our own words
        f"ON CONFLICT ({', '.join(collection.key)}) DO UPDATE SET {new}"
    )


def revise(collection: Collection, mark: str) -> str:
    """Replace the head of the row of the same key."""
    new = _equal(collection.others, mark, len(collection.key) + 1, ", ")
    return f"UPDATE {collection.name} SET {new} WHERE {_equal(collection.key, mark, 1, ' AND ')}"  # noqa: S608 - our own words


def delete(collection: Collection, mark: str) -> str:
    """Delete the row of a key."""
    return f"DELETE FROM {collection.name} WHERE {_equal(collection.key, mark, 1, ' AND ')}"  # noqa: S608 - our own words


def revision_of(rows: Iterable[Sequence[object]]) -> bytes:
    """Return the revision of rows, which differs when one of them does."""
    return blake2b(
        repr(sorted(repr(tuple(row)) for row in rows)).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


def _equal(columns: Sequence[str], mark: str, first: int, between: str) -> str:
    return between.join(f"{name} = {mark}{number}" for number, name in enumerate(columns, first))
