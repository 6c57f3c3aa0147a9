"""What the store has of two versions: their scores, and what was asked of both."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from monitors.comparing import Sides, sides
from monitors.slicing import value_of
from monitors.stores import Point, Query, Store

Pairing = Literal["auto", "question", "off"]
AUTO_PAIRED_UP_TO = 20_000
"""Samples whose questions are read without being asked for."""
_FIRST_S, _STEP_S, _QUICK_S = 3600.0, 86_400.0, 0.03
_LATEST = 2000
_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which versions: `by` is "model", "prompt" or "tag:NAME", `a` the champion's value of it, `b` the challenger's.

    `metrics` empty stands for all; `most` scores of a version (and of each metric that is named) are read, the oldest
    first, and no more are begun to be read after `within_s` seconds.
    """

    by: str
    a: str
    b: str
    since: float
    until: float
    metrics: Sequence[str] = ()
    app: str | None = None
    most: int | None = None
    within_s: float | None = None


class UnknownVersionError(ValueError):
    """There is no score of a version."""


async def read(store: Store, wanted: Wanted) -> list[Sides]:
    """Read the scores of both versions. Raises UnknownVersionError, and ValueError for a `by` that is none."""
    if wanted.a == wanted.b:
        raise ValueError(f"a version is compared with another one, not with itself ({wanted.a!r})")
    found = []
    for value in (wanted.a, wanted.b):
        begin = time.monotonic()
        found.append(await _scores(store, wanted, value))
        if not found[-1]:
            cut_off = wanted.within_s is not None and time.monotonic() - begin >= wanted.within_s
            raise UnknownVersionError(await _missing(store, wanted, value, cut_off=cut_off))
    return sides(*found)


async def keys_of(
    store: Store, everything: Iterable[Sides], pairing: str, *, most: int = AUTO_PAIRED_UP_TO
) -> dict[str, str]:
    """What was asked, by sample id: the value of a tag ("tag:NAME"), or the question's text.

    "auto" reads the questions of up to `most` samples, of more it reads none.
    """
    points = {point.sample_id: point for one in everything for point in (*one.champion, *one.challenger)}
    if pairing.startswith("tag:"):
        tagged = ((name, value_of(point, pairing)) for name, point in points.items())
        return {name: value for name, value in tagged if value is not None}
    if pairing == "off" or (pairing == "auto" and len(points) > most):
        return {}
    found: dict[str, str] = {}
    names = list(points)
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        asked = await store.questions(some)
        found |= {name: asked[name].strip() for name in some if name in asked}
    return found


def narrowed(query: Query, by: str, value: str) -> Query:
    """The query for one version only. Raises ValueError for a `by` that is none."""
    kind, _, name = by.partition(":")
    if kind == "tag" and name:
        return replace(query, tag=(name, value))
    if by == "model":
        return replace(query, model=value)
    if by == "prompt":
        return replace(query, prompt=value)
    raise ValueError(f"versions are told apart by model, prompt or tag:NAME, not by {by!r}")


async def _scores(store: Store, wanted: Wanted, value: str) -> list[Point]:
    """Some hours at a time, so that a long span does not hold the store: as many as it answers quickly."""
    found: list[Point] = []
    deadline = math.inf if wanted.within_s is None else time.monotonic() + wanted.within_s
    for metric in wanted.metrics or (None,):
        count, at, step = 0, wanted.since, _FIRST_S
        while at < wanted.until and (wanted.most is None or count < wanted.most):
            until = min(at + step, wanted.until)
            query = Query(since=at, until=until, metric=metric, app=wanted.app, outcome="score")
            query = replace(query, limit=None if wanted.most is None else wanted.most - count)
            begin = time.monotonic()
            page = await store.series(narrowed(query, wanted.by, value))
            took = time.monotonic() - begin
            found += page
            count, at = count + len(page), until
            step = min(_STEP_S, 2.0 * step) if took < _QUICK_S else max(_FIRST_S / 4.0, step / 2.0)
            if begin + took > deadline:
                break
    return found


async def _missing(store: Store, wanted: Wanted, value: str, *, cut_off: bool) -> str:
    """What to say of a version without scores; the latest traffic shows which there are."""
    query = Query(since=wanted.since, until=wanted.until, app=wanted.app, outcome="score", order="newest")
    latest = await store.series(replace(query, limit=_LATEST))
    known = sorted({name for one in latest if (name := value_of(one, wanted.by))})
    there = f"; there are: {', '.join(known[:20])}" if known else ""
    where = "in this time" + (f", as far as could be looked within {wanted.within_s:g} s" if cut_off else "")
    return f"{wanted.by} {value!r} has no score of these metrics {where}{there}"
