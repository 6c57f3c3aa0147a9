"""Data sets of captured exchanges, in versions: what alerts, reviewers and filters single out for evaluations."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as Container
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from statistics import fmean
from typing import Any, TypeAlias

import msgspec

from gaugeway.data_files import table
from gaugeway.records import Alert, grouped
from gaugeway.storage.documents import Changes, Collection, Documents, Row
from gaugeway.storage.engine import adapter
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.erase import Subject
from gaugeway.storage.stores import Query, Store
from gaugeway.text.topics import most_alike
from monitors.analysis import captured
from monitors.analysis.human_labels import LABEL_PASSES
from monitors.analysis.incident.reading import incident_query, incident_span
from monitors.analysis.prompt_text import HASHED
from monitors.analysis.retrieval.coverage_gaps import is_declined

MAX_ROWS = 1_000
MAX_DATASETS = 50
MAX_STORED_CHARACTERS = 64_000_000
"""Of all data sets with their earlier versions."""
MAX_ADDED = 500
"""Exchanges that one addition looks at."""
_READ = 5
"""Times as many exchanges are looked at as are wanted."""
WORST = 20
"""Rows of an addition that does not say how many."""
_FORMATS: Mapping[str, Mapping[str, str]] = table("monitors.analysis", "datasets.toml")
FORMATS = ("jsonl", *_FORMATS)
_NEAR = 0.9
"""Questions with this cosine, or a higher one, are near-equal."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
Record: TypeAlias = dict[str, Any]
"""A row in the format of `gaugeway evaluate`, with `expected_verdicts`, `labels` and `provenance`."""
Records: TypeAlias = Sequence[Record]
DATASETS = Collection(name="datasets", key=("dataset", "part"), others=("changed_at",), body="payload")
"""The parts of a data set are its rows, named by the hash of their content, and its versions, "@1" and so on.

A version has the names of its rows, in the order in which they were added.
"""


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """One version of a data set. `hash` changes with its rows; `changed_at` is when the data set did, Unix time."""

    name: str
    version: int
    hash: str
    rows: int
    apps: tuple[str, ...]
    changed_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What an addition did. `replaced` rows got a label or a reference, or a changed one.

    Not added are exchanges with a question that the data set has (`known`), without an answer or no longer stored
    (`left_out`), and those beyond the bound of a data set (`too_many`).
    """

    dataset: DatasetVersion
    added: int = 0
    replaced: int = 0
    known: int = 0
    too_many: int = 0
    left_out: int = 0


class UnknownDatasetError(ValueError):
    """There is no data set of this name, or not this version of it."""


class Datasets:
    """Keeps data sets in documents. Operations raise `engines.failures.FAILURES`."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def versions(self, app: str | None = None) -> list[DatasetVersion]:
        """Return the newest version of each data set, by name; with `app`, of those with rows of that app."""
        newest = [_version(name, parts)[0] for name, parts in sorted((await self._stored()).items())]
        return [dataset for dataset in newest if app is None or app in dataset.apps]

    async def read(self, named: str) -> tuple[DatasetVersion, Records]:
        """Return a data set and its rows, in the order they were added: of `NAME` the newest version, or `NAME@3`.

        Raises UnknownDatasetError.
        """
        name, at, number = named.partition("@")
        parts = (await self._stored()).get(name, {})
        if f"@{number or _newest(parts)}" not in parts or (at and not number):
            raise UnknownDatasetError(f"there is no data set {named}; see 'gaugeway dataset list'")
        return _version(name, parts, number)

    async def add(self, store: Store, name: str, wanted: Mapping[str, Any], now: float) -> Added:
        """Add stored exchanges that are wanted (`chosen`) as one version; `by` names who wants them.

        Raises ValueError where there is nothing to add, the store has no texts, or there is no room.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a data set: a-z, 0-9, '.', '_', '-', at most 64 characters")
        limit = max(wanted.get("limit", WORST), len(wanted.get("exchanges") or ()))
        ids = await chosen(store, now, **{**wanted, "limit": limit})
        alert: Alert | None = wanted.get("alert")
        about = {"alert": alert and alert.fingerprint, "by": wanted.get("by") or None, "added_at": now}
        records = [record for sample_id in ids if (record := await _record(store, sample_id, about)) is not None]
        if not records:
            raise ValueError("no stored exchange with an answer matches")
        counts: Counter[str] = Counter()
        dataset = await self._change(name, partial(_merged, records, limit, counts), now)
        return Added(dataset=dataset, left_out=len(ids) - len(records), **counts)

    async def remove(self, name: str, ids: Container[str], now: float) -> bool:
        """Remove rows, which makes a version without them; without `ids` the data set with all its versions.

        Return whether there were any.
        """
        parts = (await self._stored()).get(name)
        if parts and ids:
            after = await self._change(name, lambda rows: [row for row in rows if row["id"] not in ids], now)
            return after.version > _newest(parts)
        await self._documents.update(DATASETS, lambda _: Changes(delete=[(name, part) for part in parts or ()]))
        return bool(parts)

    async def forget(self, subject: Subject, *, dry_run: bool = False) -> int:
        """Delete the rows about a person from all versions, whose hashes change; return how many."""
        rows = [(name, *row) for name, parts in (await self._stored()).items() for row in parts.items()]
        meant = [(name, part) for name, part, body in rows if part[0] != "@" and subject.meets_sample(body)]
        if meant and not dry_run:
            await self._documents.update(DATASETS, lambda _: Changes(delete=meant))
        return len(meant)

    async def aclose(self) -> None:
        """Let go of file or connections; the next operation opens them again."""
        await self._documents.aclose()

    async def _stored(self) -> dict[str, dict[str, str]]:
        """Return the parts of each data set."""
        stored: dict[str, dict[str, str]] = {}
        for name, part, _, body in (await self._documents.changed(DATASETS, None))[1] or ():
            stored.setdefault(name, {})[part] = body
        return stored

    async def _change(self, name: str, edit: Callable[[Records], Records], now: float) -> DatasetVersion:
        """Make a version of the rows that `edit` returns; again, with those of another process that was faster."""
        while True:
            stored = await self._stored()
            parts = stored.get(name, {})
            last, before = _newest(parts), _version(name, parts)[1] if parts else ()
            after = await asyncio.to_thread(edit, before)
            if after == before:
                return _version(name, parts)[0]
            rows = {_digest(record): encoded(record).decode() for record in after}
            stored[name] = {**rows, **parts, f"@{last + 1}": encoded([now, *rows]).decode()}
            size = sum(len(body) for some in stored.values() for body in some.values())
            if len(stored) > MAX_DATASETS or size > MAX_STORED_CHARACTERS:
                raise ValueError(f"no room: at most {MAX_DATASETS} data sets, {MAX_STORED_CHARACTERS:,} characters")
            new = [(name, part, now, body) for part, body in stored[name].items() if part not in parts]
            done: list[bool] = []

            def change(heads: Sequence[Row], last: int = last, new: Sequence[Row] = new) -> Changes:
                done.append(_newest(part for dataset, part, _ in heads if dataset == name) == last)  # noqa: B023 - used in this turn only
                return Changes(put=new if done[-1] else ())  # noqa: B023 - same

            await self._documents.update(DATASETS, change)
            if done[-1]:
                return _version(name, stored[name])[0]


def open_datasets(url: str) -> Datasets:
    """Return the data sets beside the store that `url` names. Nothing is opened yet. Raises ValueError."""
    return Datasets(adapter(url, "datasets").from_url(url))


async def chosen(store: Store, now: float, *, limit: int = WORST, **wanted: Any) -> list[str]:
    """Return ids of stored exchanges, each once: `exchanges`, the worst answers of an `alert`, and a filter's scores.

    The filter is `since` (Unix seconds), `app`, `metric`, `below` or `above` a bound; with `labelled`, scores that
    people labelled. The worst come first, more than `limit`, as near-equal questions are left out later. Raises
    ValueError where nothing is wanted.
    """
    read = min(_READ * limit, MAX_ADDED)
    metric, below, above = (wanted.get(name) for name in ("metric", "below", "above"))
    ids, alert, labelled = list(wanted.get("exchanges") or ()), wanted.get("alert"), wanted.get("labelled")
    if (filters := labelled or wanted.get("app") or metric) or below is not None or above is not None:
        if not filters or (metric is None and (below, above) != (None, None)):
            raise ValueError("below and above need a metric")
        query = Query(since=wanted["since"], until=now + 1.0, app=wanted.get("app"), metric=metric)
        least = None if above is None else math.nextafter(above, math.inf)
        most = None if below is None else math.nextafter(below, -math.inf)
        order = "newest" if metric is None else "highest" if captured.lowest_is_best(metric) else "lowest"
        query = replace(query, least=least, most=most, order=order)  # type: ignore[arg-type]  # one of them
        points = store.ratings(query) if labelled else store.series(replace(query, limit=read))
        ids += [point.sample_id for point in await points]
    elif alert is None and not ids:
        raise ValueError("give exchanges, an alert, labelled, an app or a metric")
    if alert is not None:
        ids += [point.sample_id for point in await store.series(replace(_worst(alert, now), limit=read))]
    return list(dict.fromkeys(ids))[:read]


def _worst(alert: Alert, now: float) -> Query:
    """Return the query for the answers since an alert's onset that are no better than its baseline, the worst first."""
    _, onset, until = incident_span(alert, now)
    query, baseline = incident_query(alert, onset, until), alert.on_own_scale().finding.baseline
    rises = alert.direction == "rise"
    return replace(query, order="highest", least=baseline) if rises else replace(query, order="lowest", most=baseline)


def written(records: Iterable[Record], form: str) -> str:
    """Return the text of a file in one of FORMATS; `jsonl` is what `gaugeway evaluate` reads."""
    names = _FORMATS.get(form, {})
    rows = [{theirs: _texts(record.get(ours)) for theirs, ours in names.items()} or record for record in records]
    if form == "openai-evals":
        rows = [{"item": row, "sample": {"output_text": row["answer"]}} for row in rows]
    lines = [msgspec.json.encode(row).decode() for row in rows]
    return "[" + ",\n".join(lines) + "]\n" if form == "deepeval" else "".join(f"{line}\n" for line in lines)


def _texts(value: Any) -> Any:
    """Return a list of passages as texts, anything else as it is."""
    return [item["text"] if isinstance(item, dict) else item for item in value] if isinstance(value, list) else value


async def _record(store: Store, sample_id: str, origin: Mapping[str, Any]) -> Record | None:
    """Return a stored exchange as a row; None without an answer. Raises ValueError where only hashes are stored."""
    sample, evaluations = await store.sample(sample_id) or (None, ())
    if sample is None or sample.transcript or not sample.question:
        return None
    if sample.question.startswith(HASHED) or sample.response.startswith(HASHED):
        raise ValueError("capture.content is false: the store has only hashes of the texts, and a data set needs them")
    if sample.skip_reason is not None and not is_declined(sample, evaluations):
        return None
    said = await store.supplements_of(sample)
    then = Query(since=sample.started_at, until=math.nextafter(sample.started_at, math.inf), app=sample.app)
    rated = [label for label in await store.ratings(then) if (label.sample_id, label.source) == (sample.id, "rating")]
    ratings = grouped((label.metric, label.rating) for label in rated)
    more = {
        "reference": next((heard.reference for heard in reversed(said) if heard.reference), sample.reference),
        "expected_verdicts": {
            name: "pass" if fmean(some) >= LABEL_PASSES else "fail" for name, some in ratings.items()
        },
        "labels": list(dict.fromkeys(heard.label for heard in said if heard.label)),
        "provenance": {"exchange": sample.id, "prompt": sample.prompt, "at": sample.started_at, **origin},
    }
    record = captured.as_record(sample, {evaluation.metric: evaluation for evaluation in evaluations})
    return record | {name: value for name, value in more.items() if value}


def _merged(new: Records, most: int, counts: Counter[str], old: Records) -> Records:
    """Return the old records with at most `most` new ones; of near-equal questions of an app the best documented."""
    counts.clear()
    rows = {record["id"]: record for record in old}
    for record in new:
        if counts["added"] + counts["replaced"] >= most:
            break
        others = {key: row["user_input"] for key, row in rows.items() if row["app"] == record["app"]}
        near = most_alike(record["user_input"], others, most=1, least=_NEAR)
        before = rows.get(record["id"]) or (rows[near[0][0]] if near else None)
        if before is None and len(rows) >= MAX_ROWS:
            counts["too_many"] += 1
        elif before is None or _supersedes(record, before):
            rows.pop("" if before is None else before["id"], None)
            rows[record["id"]] = record
            counts["added" if before is None else "replaced"] += 1
        else:
            counts["known"] += 1
    return list(rows.values())


def _supersedes(record: Record, other: Record) -> bool:
    """Whether more is said of a record than of one with a near-equal question, or something else of the same one."""
    said, before = ("reference" in row or "expected_verdicts" in row for row in (record, other))
    return said > before or (said == before and record["id"] == other["id"] and _digest(record) != _digest(other))


def _newest(parts: Iterable[str]) -> int:
    return max((int(part[1:]) for part in parts if part.startswith("@")), default=0)


def _version(name: str, parts: Mapping[str, str], number: str = "") -> tuple[DatasetVersion, Records]:
    """Return a version, the newest one without a number; rows that are deleted are missing in it."""
    version = int(number or _newest(parts))
    changed_at, *names = msgspec.json.decode(parts[f"@{version}"])
    kept = [part for part in names if part in parts]
    records = [msgspec.json.decode(parts[part]) for part in kept]
    hashed, apps = _digest(sorted(kept)), tuple(sorted({record["app"] for record in records}))
    return DatasetVersion(name, version, hashed, len(kept), apps, changed_at), records


def _digest(value: Any) -> str:
    """Return a hash; of a record without scores and origin, which do not change what is evaluated."""
    left_out = ("scores", "provenance") if isinstance(value, dict) else ()
    content = {name: field for name, field in value.items() if name not in left_out} if left_out else value
    return sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]
