"""Bounded reading of the files of other tools; problems name file, line and field."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from monitors.offline.data_errors import DataError, json_problem

MAX_FILE_BYTES = 256 * 1024**2
MAX_YAML_BYTES = 8 * 1024**2
MAX_ROWS = 100_000
MAX_NODES = 1_000_000
MAX_DEPTH = 100
MAX_PROBLEMS = 50

_YAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BOM = b"\xef\xbb\xbf"


class Document(msgspec.Struct, frozen=True):
    """A parsed file. `node` has the lines of a YAML file, `line` is that of a JSONL record."""

    path: Path
    value: Any
    node: Any = None
    line: int | None = None

    def where(self, *keys: str | int) -> str:
        """Return file, line and field of a part of the document, as a problem begins."""
        line = self.line if self.node is None else _line(self.node, keys)
        name = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")
        place = f"{self.path}:{line}" if line is not None else str(self.path)
        return f"{place}: {name}" if name else place

    def problem(self, text: str, *keys: str | int) -> DataError:
        """Return an error about a part of the document."""
        return DataError([f"{self.where(*keys)}: {text}"])

    def objects(self, value: Any, *keys: str | int) -> list[dict[str, Any]]:
        """Return `value` if it is a list of objects. Raises DataError."""
        if not isinstance(value, list):
            raise self.problem(f"expected a list, got {kind(value)}", *keys)
        check_rows(self.path, len(value))
        return [self.object(item, *keys, index) for index, item in enumerate(value)]

    def object(self, value: Any, *keys: str | int) -> dict[str, Any]:
        """Return `value` if it is an object. Raises DataError."""
        if not isinstance(value, dict):
            raise self.problem(f"expected an object, got {kind(value)}", *keys)
        return value


def kind(value: Any) -> str:
    """Name the JSON type of a value."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def documents(path: Path) -> Iterator[Document]:
    """Yield the documents of a file: one per line of JSONL, else the one of JSON or YAML. Raises DataError."""
    readers = {".jsonl": _jsonl, ".ndjson": _jsonl, ".json": _json, ".yaml": _yaml, ".yml": _yaml}
    if (reader := readers.get(path.suffix.lower())) is None:
        raise DataError([f"{path}: expected a file name ending in {', '.join(readers)}"])
    yield from reader(path)


def document(path: Path) -> Document:
    """Return the document of a JSON or YAML file; of JSONL, the list of its lines. Raises DataError."""
    found = list(documents(path))
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return Document(path, [line.value for line in found])
    return found[0]


def rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a CSV file with their line numbers. Raises DataError."""
    reader = csv.DictReader(io.StringIO(text(path), newline=""))
    csv.field_size_limit(MAX_FILE_BYTES)
    found: list[tuple[int, dict[str, str]]] = []
    try:
        for row in reader:
            if None in row or None in row.values():
                raise DataError([f"{path}:{reader.line_num}: has not as many cells as the header"])
            found.append((reader.line_num, row))
            check_rows(path, len(found))
    except csv.Error as error:
        raise DataError([f"{path}:{reader.line_num}: not CSV: {error}"]) from error
    return found


def text(path: Path, limit: int = MAX_FILE_BYTES) -> str:
    """Return the text of a file. Raises DataError if it cannot be read, is too large, or is not UTF-8."""
    content = _bytes(path, limit).removeprefix(_BOM)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError([f"{path}:{line}: not UTF-8: {error.reason}"]) from error


def check_rows(path: Path, count: int) -> None:
    """Raise DataError for more rows than are imported at once."""
    if count > MAX_ROWS:
        raise DataError([f"{path}: more than {MAX_ROWS:,} records; split the file"])


def _jsonl(path: Path) -> Iterator[Document]:
    """Yield the lines, read one after the other. Raises DataError for the lines that cannot be read, at the end."""
    seen = 0
    problems: list[str] = []
    for number, line in enumerate(_lines(path), 1):
        if not (content := line.removeprefix(_BOM).strip()):
            continue
        check_rows(path, seen := seen + 1)
        found = Document(path, None, line=number)
        try:
            found = Document(path, msgspec.json.decode(content), line=number)
            found.object(found.value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problems.append(f"{found.where()}: {json_problem(content, error)[1]}")
        except DataError as error:
            problems += error.problems
        else:
            yield found
        if len(problems) == MAX_PROBLEMS:
            raise DataError([*problems, "... and maybe more"])
    if problems:
        raise DataError(problems)


def _lines(path: Path) -> Iterator[bytes]:
    read = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_FILE_BYTES - read + 1):
                if (read := read + len(line)) > MAX_FILE_BYTES:
                    raise DataError([f"{path}: larger than {MAX_FILE_BYTES // 1024**2} MiB"])
                yield line
    except OSError as error:
        raise DataError([f"{path}: {error.strerror or error}"]) from error


def _json(path: Path) -> Iterator[Document]:
    content = _bytes(path).removeprefix(_BOM)
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        line, why = json_problem(content, error)
        raise DataError([f"{path}:{line}: {why}; one object per line needs the suffix .jsonl"]) from error
    yield Document(path, value)


def _yaml(path: Path) -> Iterator[Document]:
    content = text(path, MAX_YAML_BYTES)
    try:
        _check_depth(path, content)
        loader = _YAML(content)
        try:
            if (node := loader.get_single_node()) is None:
                raise DataError([f"{path}: is empty"])
            _check_size(path, node)
            value = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DataError([f"{path}:{line}: not YAML: {error.problem}"]) from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise DataError([f"{path}: not YAML: {error}"]) from error
    yield Document(path, value, node)


def _check_depth(path: Path, content: str) -> None:
    """Raise DataError for deep nesting: the composer recurses, in C without a limit of its own."""
    depth = 0
    for event in yaml.parse(content, Loader=_YAML):
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                raise DataError([f"{path}:{event.start_mark.line + 1}: nested more than {MAX_DEPTH} deep"])
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1


def _check_size(path: Path, root: Any) -> None:
    """Raise DataError for a document whose aliases expand to too many values, or contain themselves."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()

    def size(node: Any) -> int:
        if id(node) in open_:
            raise DataError([f"{path}:{node.start_mark.line + 1}: an alias contains itself"])
        if id(node) not in sizes:
            open_.add(id(node))
            children = node.value if isinstance(node, (yaml.SequenceNode, yaml.MappingNode)) else ()
            flat = (part for child in children for part in (child if isinstance(child, tuple) else (child,)))
            sizes[id(node)] = 1 + sum(map(size, flat))
            open_.discard(id(node))
        return sizes[id(node)]

    if size(root) > MAX_NODES:
        raise DataError([f"{path}: more than {MAX_NODES:,} values, with aliases expanded"])


def _line(node: Any, keys: tuple[str | int, ...]) -> int:
    """Return the line of the part that `keys` lead to, or of the last that exists."""
    line = int(node.start_mark.line) + 1
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pairs = [(name, value) for name, value in node.value if name.value == key]
            if not pairs:
                break
            line, node = int(pairs[0][0].start_mark.line) + 1, pairs[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = int(node.start_mark.line) + 1
        else:
            break
    return line


def _bytes(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise DataError([f"{path}: {error.strerror or error}"]) from error
    if len(content) > limit:
        raise DataError([f"{path}: larger than {limit // 1024**2} MiB"])
    return content
