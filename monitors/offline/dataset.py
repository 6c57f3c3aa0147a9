"""Readers of data sets: JSONL, JSON, CSV and Parquet; errors carry the line number."""

from __future__ import annotations

import ast
import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gaugeway.records import Sample
from monitors.offline.data_errors import DataError, json_problem, utf8_problem
from monitors.offline.dataset_fields import ALIASES, LISTS, REFERENCE, STRUCTURED, TRUTHS, Reader, canonical
from monitors.offline.dataset_values import MEANINGS, is_list_of_texts

MAX_PROBLEMS = 50
_BROKEN_LIST = re.compile(r"\s*[\[{]\s*[\"'\[{\]}]")
_CELL_LIMIT = min(sys.maxsize, 2**31 - 1)
_NUMBERS = MEANINGS | dict.fromkeys(("turn", "hop"), "counted from 1")

Numbered: TypeAlias = Iterator[tuple[int, Any]]


def read(
    path: Path, *, limit: int | None = None, renamed: Mapping[str, str] | None = None
) -> tuple[list[Sample], list[str]]:
    """Read at most `limit` samples of a file; return them with notes on unknown fields.

    `renamed` maps a field to its name in the file.

    Raises DataError with the first 50 problems by line and field, or when there is no sample.
    """
    try:
        source: Callable[..., Numbered] = _FORMATS[path.suffix.lower()]
    except KeyError:
        raise DataError([f"{path}: expected a file name ending in {', '.join(_FORMATS)}"]) from None
    try:
        records = source(path, renamed or {}) if source is _csv else source(path)
        return collect(records, where=f"{path}:", limit=limit, renamed=renamed, option="--map")
    except OSError as error:
        raise DataError([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:  # of a CSV, which is read in pieces
        line, why = utf8_problem(path.read_bytes())
        raise DataError([f"{path}:{line}: {why}"]) from error


def collect(
    records: Iterable[tuple[int, Any]],
    *,
    where: str = "record ",
    limit: int | None = None,
    renamed: Mapping[str, str] | None = None,
    option: str = "fields",
) -> tuple[list[Sample], list[str]]:
    """Convert numbered records to samples. Raises DataError with all problems.

    A name in `renamed`, the value of `option`, that no record has is one, and the only one reported; if `limit` left
    records unread, it is a note.
    """
    reader = Reader(renamed or {}, option)
    samples: list[Sample] = []
    problems: list[str] = []
    more = 0
    complete = True
    for number, record in records:
        if limit is not None and len(samples) >= limit:
            complete = False
            break
        try:
            if isinstance(record, DataError):
                raise record
            samples.append(reader.sample(record))
        except DataError as error:
            found = [f"{where}{number}: {problem}" for problem in error.problems]
            more += max(0, len(problems) + len(found) - MAX_PROBLEMS)
            problems = (problems + found)[:MAX_PROBLEMS]
    if complete and (missing := reader.missing_names()):
        raise DataError(missing)
    if problems:
        raise DataError([*problems, f"... and {more} more"] if more else problems)
    if not samples:
        raise DataError([f"{where.rstrip(' :') or 'the data set'}: contains no record"])
    return samples, reader.notes()


def _jsonl(path: Path) -> Numbered:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if text := line.removeprefix(b"\xef\xbb\xbf").strip():
                try:
                    yield number, msgspec.json.decode(text)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    yield number, DataError([json_problem(text, error)[1]])


def _json(path: Path) -> Numbered:
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        parsed = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        line, why = json_problem(content, error)
        raise DataError([f"{path}:{line}: {why}; for one object per line use the suffix .jsonl"]) from error
    if not isinstance(parsed, list):
        raise DataError([f"{path}: expected a list of objects"])
    yield from enumerate(parsed, 1)


def _csv(path: Path, renamed: Mapping[str, str]) -> Numbered:
    """Yield rows; cells of list fields hold JSON, Python literals (pandas) or one text; an empty cell is no value."""
    csv.field_size_limit(_CELL_LIMIT)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        fields = {name: canonical(name, renamed) for name in rows.fieldnames or ()}
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield rows.line_num, DataError([f"not CSV: {error}"])
                return
            yield rows.line_num, _cells(row, fields)


def _cells(row: Mapping[str | None, Any], fields: Mapping[str, str]) -> Any:
    record: dict[str, Any] = {}
    problems: list[str] = []
    for name, cell in row.items():
        if name is None:
            problems.append(f"more cells than columns: {len(cell)} too many")
        elif cell is None:
            problems.append(f"{name}: this line has too few cells")
        elif cell and fields[name] == REFERENCE:
            record[name] = _reference(name, cell)
        elif cell and fields[name] in STRUCTURED:
            record[name] = _list_of(cell) if fields[name] in LISTS else _structure(cell)
            if record[name] is None:
                problems.append(f"{name}: expected a JSON list, got a text")
        elif cell and fields[name] in _NUMBERS:
            try:
                record[name] = float(cell)
            except ValueError:
                problems.append(f"{name}: expected a number ({_NUMBERS[fields[name]]}), got a text")
        elif cell or fields[name] in ALIASES:
            record[name] = cell or None
    return DataError(problems) if problems else record


def _reference(name: str, cell: str) -> Any:
    """Return the list of texts that a cell holds, else its text."""
    value = _structure(cell)
    return value if is_list_of_texts(value) or (value is not None and name == TRUTHS) else cell


def _list_of(cell: str) -> Any:
    """Return the list that a cell holds; a list of its text where that is no list, None where it only begins as one."""
    value = _structure(cell)
    return [cell] if value is None and _BROKEN_LIST.match(cell) is None else value


def _structure(cell: str) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, (list, dict)):
            return value
    return None


def _parquet(path: Path) -> Numbered:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")  # an optional extra, without types
    except ImportError:
        raise DataError([f"{path}: Parquet needs an extra: pip install 'gaugeway[datasets]'"]) from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except arrow.ArrowException as error:
        raise DataError([f"{path}: not Parquet: {error}"]) from error


_FORMATS: dict[str, Callable[..., Numbered]] = dict.fromkeys((".jsonl", ".ndjson"), _jsonl)
_FORMATS |= {".json": _json, ".csv": _csv, ".parquet": _parquet}
