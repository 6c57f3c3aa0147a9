"""Exports of Langfuse, LangSmith and Helicone: items of data sets, traces, runs, and requests with their responses.

Formats: Langfuse's `fern/apis/server/definition/commons.yml` and its batch exports; `langsmith.schemas` and
`langsmith-cli`; Helicone's `HeliconeRequest`, which `@helicone/export` writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gaugeway.data_files import table
from gaugeway.exchange import Request, Response, route_of
from gaugeway.extensions import load as loaded
from gaugeway.extensions import registered
from gaugeway.prompts import Extractor, default_order, dicts, last_user_text, response_text, text_of, trace
from monitors.offline.data_errors import DataError
from monitors.offline.imports.fields import KNOWN, Fields, asked, passages
from monitors.offline.imports.result import Imported, as_text
from monitors.offline.imports.sources import check_rows, documents, kind, rows

_TABLE = table("monitors.offline", "exports.toml")
_FIXED: Mapping[str, Mapping[str, str]] = _TABLE["fields"]
"""Columns of each tool that are fields of a record, whatever their value."""
_KEPT_AS_TAGS: Mapping[str, Sequence[str]] = _TABLE["tags"]
_IGNORED: Mapping[str, Sequence[str]] = _TABLE["ignored"]
_ROLES: Mapping[str, str] = _TABLE["roles"]
_ANSWERS: Sequence[str] = _TABLE["answers"]
_LISTS: Sequence[str] = _TABLE["lists"]
_PATH = re.compile(r"^\w+://[^/]*|[?#].*$")
"""What a URL has before and after its path."""
_MILLISECONDS = ("delay_ms", "duration_ms", "latencyMs")
_OK = 200


class _Rows(Struct):
    """What the files hold: variables with the fields that the format fixes, and passages by the trace they are of.

    `mapped` are the variables of fields that --map names, `columns` those of the CSV being read; `place` is that
    of the row being read. `pages` are the pages of an API that were read, by data set and number of pages.
    """

    out: Imported
    mapped: Mapping[str, str] = {}
    columns: frozenset[str] = frozenset()
    items: list[tuple[dict[str, Any], dict[str, Any], str]] = []
    passages: dict[str, list[Any]] = {}
    pages: dict[tuple[str, int], set[int]] = {}
    place: str = ""

    def add(self, item: dict[str, Any], given: dict[str, Any]) -> None:
        """Add the variables and the fixed fields of the row being read."""
        self.items.append((item, given, self.place))

    def say_missing_pages(self) -> None:
        """Count the pages that no file has of what others have pages of."""
        for (name, last), pages in self.pages.items():
            what = f" of {name}" if name else ""
            for before, after in pairwise([0, *sorted(page for page in pages if 0 < page <= last), last + 1]):
                first, end = before + 1, after - 1
                if first <= end:
                    some = f"page {first}" if first == end else f"pages {first} to {end}"
                    self.out.miss(f"{some} of {last}{what}", "is in none of these files")


def load(tool: str, paths: Sequence[Path], mapped: Mapping[str, str]) -> Imported:
    """Import the files of one export. Raises DataError."""
    found = _Rows(Imported(), mapped)
    for path in paths:
        for place, row in _rows(path, found):
            found.place = place
            _TOOLS[tool](row, found)
        check_rows(path, len(found.items))
    found.say_missing_pages()
    fields = Fields(mapped)
    if mapped and found.items and not any(item for item, _, _ in found.items):
        why = "no record has variables: questions are found in the messages"
        raise DataError([f"--map {ours}={theirs}: {why}" for ours, theirs in mapped.items()])
    asks = any("user_input" in given for _, given, _ in found.items)
    fields.assign([item for item, _, _ in found.items], found.out, guess=not asks)
    for trace_id in found.passages.keys() - {given.get("trace") for _, given, _ in found.items}:
        found.out.miss(
            "passages of a retriever", "their trace is not in these files", max(1, len(found.passages[trace_id]))
        )
    for item, given, place in found.items:
        record = {"retrieved_contexts": found.passages.get(given.pop("trace", ""))} | fields.record(item, found.out)
        tags = record.pop("tags") | given.pop("tags", {})
        whole = {name: value for name, value in record.items() if value}
        found.out.record(given | whole | {"tags": tags, "id": given.get("id", whole.get("id"))}, place=place)
    return found.out


def _rows(path: Path, found: _Rows) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place and object: of lines, a list, a page of an API, or rows of CSV whose cells may be JSON."""
    found.columns = frozenset()
    if path.suffix.lower() == ".csv":
        for line, cells in rows(path):
            found.columns = frozenset(cells)
            yield f"{path}:{line}", {name: _decoded(cell) for name, cell in cells.items() if cell}
        return
    for document in documents(path):
        if isinstance(value := document.value, dict) and isinstance(value.get("data"), list):
            pages = value["meta"] if isinstance(value.get("meta"), dict) else {}
            page, last = pages.get("page"), pages.get("totalPages")
            inside = document.objects(value["data"], "data")
            if isinstance(page, int) and isinstance(last, int):
                name = str(inside[0].get("datasetName") or "") if inside else ""
                found.pages.setdefault((name, last), set()).add(page)
            yield from ((document.where("data", index), row) for index, row in enumerate(inside))
        elif isinstance(value, list):
            yield from ((document.where(index), row) for index, row in enumerate(document.objects(value)))
        elif isinstance(value, dict):
            yield document.where(), value
        else:
            raise document.problem(f"expected an object or a list of objects, got {kind(value)}")


def _langfuse(row: dict[str, Any], found: _Rows) -> None:
    """Read an item of a data set, a trace with or without its observations, or an observation."""
    given = _fixed("langfuse", row, found.out)
    value, output = _decoded(row.get("input")), _decoded(row.get("output"))
    kind_of_row = row.get("type")
    if "expectedOutput" in row or "datasetId" in row:
        if row.get("status") == "ARCHIVED":
            found.out.miss("an item of a data set", "is archived")
            return
        expected = _decoded(row.get("expectedOutput"))
        found.add(_variables(value) | _named("reference", found.out, expected), given | _question(value))
    elif kind_of_row == "RETRIEVER":
        found.passages.setdefault(str(row.get("traceId")), []).extend(_passages(output))
    elif kind_of_row in (None, "GENERATION"):
        for observation in dicts(row.get("observations")):
            if observation.get("type") == "RETRIEVER":
                found.passages.setdefault(str(row.get("id")), []).extend(_passages(_decoded(observation.get("output"))))
        given["trace"] = str(row.get("traceId") if kind_of_row else row.get("id"))
        found.add(_variables(value) | _named("response", found.out, output), given | _question(value))
    else:
        found.out.miss(f"an observation of type {kind_of_row}", "is a step of a trace: import traces or generations")


def _langsmith(row: dict[str, Any], found: _Rows) -> None:
    """Read an example of a data set, one in OpenAI's format for fine-tuning, or a run."""
    if "messages" in row and "inputs" not in row:
        if len(messages := _messages(row["messages"])) > 1:
            found.add(_named("reference", found.out, text_of(messages[-1].get("content"))), _question(messages[:-1]))
        else:
            found.out.miss("a row with messages", "has no question and answer in them")
        return
    if "inputs" not in row:
        row = _from_columns(row, found)
    if not isinstance(row.get("inputs"), dict):
        found.out.miss("a row", "has no inputs: export runs with --include-io")
        return
    given = _fixed("langsmith", row, found.out)
    inputs, outputs = row["inputs"], row.get("outputs")
    about = str(row.get("trace_id") or row.get("id") or row.get("run_id"))
    if "run_type" not in row:
        item = _variables(inputs) | _named("reference", found.out, outputs)
    elif row["run_type"] == "retriever":
        found.passages.setdefault(about, []).extend(_passages(outputs))
        return
    elif row.get("parent_run_id"):
        found.out.miss(f"a run of type {row['run_type']}", "is a step of a trace: its root is imported")
        return
    elif row.get("error") or row.get("status") == "error":
        found.out.miss("a run", "ended with an error")
        return
    else:
        item, given["trace"] = _variables(inputs) | _named("response", found.out, outputs), about
    found.add(item, given | _question(inputs))


def _from_columns(row: dict[str, Any], found: _Rows) -> dict[str, Any]:
    """Return a row with the inputs and outputs that columns hold: `inputs.NAME`, `outputs.NAME`, and usual names.

    The answer of an example without another reference is its reference, as its outputs are.
    """
    mapped = found.mapped.values()
    sides: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}}
    rest: dict[str, Any] = {}
    for name, value in row.items():
        side, _, key = name.partition(".")
        if key and side in sides:
            sides[side][key] = value
        elif name in mapped or (KNOWN.get(name.lower(), "id") != "id" and name not in _FIXED["langsmith"]):
            sides["inputs"][name] = value
        else:
            rest[name] = value
    inputs, outputs = sides.values()
    fields = {name: KNOWN.get(name.lower()) for name in inputs if name not in mapped}
    references = {*found.mapped, *(KNOWN.get(name.lower()) for name in {*found.columns, *inputs})}
    if not outputs and "run_type" not in row and "reference" not in references:
        outputs |= {name: inputs.pop(name) for name, ours in fields.items() if ours == "response"}
    return rest | ({"inputs": inputs, "outputs": outputs} if inputs else {})


def _helicone(row: dict[str, Any], found: _Rows) -> None:
    """Read a request with its response; its question and passages are found as the gateway finds them."""
    request, response = _decoded(row.get("request_body")), _decoded(row.get("response_body"))
    status = row.get("response_status", _OK)
    if not isinstance(request, dict) or not isinstance(response, dict):
        found.out.miss("a request", "has no request_body and response_body: export JSONL with --include-body")
    elif _number(status) != _OK:
        found.out.miss("a request", f"was answered with status {status}")
    else:
        given = _fixed("helicone", row, found.out)
        properties = row.get("request_properties")
        names = dict(properties) if isinstance(properties, dict) else {}
        if session := names.pop("Helicone-Session-Id", None):
            given["session"] = str(session)
        given["tags"] |= {name: str(value) for name, value in names.items()}
        route = route_of("POST", _PATH.sub("", str(row.get("request_path") or "/v1/chat/completions")))
        found.add({}, given | _called(route, request, response))


_TOOLS: Mapping[str, Callable[[dict[str, Any], _Rows], None]] = {
    "langfuse": _langfuse,
    "langsmith": _langsmith,
    "helicone": _helicone,
}
TOOLS = tuple(_TOOLS)


def _fixed(tool: str, row: Mapping[str, Any], out: Imported) -> dict[str, Any]:
    """Return the fields that the format fixes, with tags; count columns that are not known."""
    given: dict[str, Any] = {"tags": {}}
    for name, value in row.items():
        if value is None or value == "" or name in _IGNORED[tool]:
            continue
        if (ours := _FIXED[tool].get(name)) is not None:
            given[ours] = _seconds(name, value) if ours == "duration_s" else value
        elif name in _KEPT_AS_TAGS[tool]:
            given["tags"] |= _tags(name, _decoded(value), out)
        else:
            out.miss(f"column {name!r}", "is no field of this export that is known")
    return {name: str(value) if name in ("id", "session", "model") else value for name, value in given.items()}


def _seconds(name: str, value: Any) -> float | None:
    """Return a duration in seconds; None for what is no number."""
    number = _number(value)
    return number if number is None else number / (1000 if name in _MILLISECONDS else 1)


def _number(value: Any) -> float | None:
    """Return a number, also of a text; None for what is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _tags(name: str, value: Any, out: Imported) -> dict[str, str]:
    """Return short values as tags: a text, a list of texts, the members of an object."""
    inside = value.items() if isinstance(value, dict) else [(name, value)]
    tags: dict[str, str] = {}
    for key, member in inside:
        text = ",".join(map(str, member)) if isinstance(member, list) else as_text(member)
        if isinstance(member, dict) or len(text) > _TABLE["longest_tag"]:
            out.miss(f"{name} {key!r}", "is too long or nested for a tag")
        else:
            tags[key] = text
    return tags


def _called(route: str, request: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """Return question, passages, history, answer and model of a call of a model."""
    read = response_text.read(route, response, _OK)
    record = _question_of(Request(route=route, headers={}, body=request), read)
    model = read.model or request.get("model")
    return record | {"response": read.text} | ({"model": model} if isinstance(model, str) else {})


def _question_of(request: Request, response: Response) -> dict[str, Any]:
    """Return question, passages and history of a request, found by the readers that the gateway uses by default."""
    tried = trace(request, response, _readers())
    extraction = tried[-1][1] if tried else None
    question = (extraction.question if extraction else None) or last_user_text(request)
    contexts = extraction.contexts if extraction else ()
    found = [{key: value for key, value in msgspec.to_builtins(context).items() if value} for context in contexts]
    messages = request.body.get("messages")
    return {"user_input": question, "retrieved_contexts": found, "history": asked(messages).get("history", [])}


@cache
def _readers() -> tuple[Extractor, ...]:
    return tuple(loaded(name, registered("readers"), "extractor")() for name in default_order())


def _question(value: Any) -> dict[str, Any]:
    """Return question and passages of an input that is a conversation, {} of any other."""
    if not (messages := _messages(value)):
        return {}
    return _question_of(Request(route="chat_completions", headers={}, body={"messages": messages}), _NO_RESPONSE)


_NO_RESPONSE = Response(status=_OK, body={})


def _messages(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a conversation in the notations of OpenAI and LangChain; [] if it is none."""
    while isinstance(value, (dict, list)) and len(value) > 0:
        inner = value.get("messages") if isinstance(value, dict) else value[0] if isinstance(value[0], list) else None
        if inner is None:
            break
        value = inner
    messages = [_message(item) for item in value] if isinstance(value, list) else []
    return [message for message in messages if message] if all(messages) else []


def _message(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        return {}
    inside = next((item[name] for name in ("kwargs", "data") if isinstance(item.get(name), dict)), item)
    role = _ROLES.get(str(inside.get("role") or inside.get("type") or item.get("type")))
    if role is None or not {"content", "tool_calls"} & inside.keys():
        return {}
    return {**{key: inside[key] for key in ("content", "tool_calls", "tool_call_id") if key in inside}, "role": role}


def _variables(value: Any) -> dict[str, Any]:
    """Return the variables of an input: the members of an object, {} of a conversation; else it is the question."""
    if value is None or _messages(value):
        return {}
    return dict(value) if isinstance(value, dict) else {"user_input": value}


def _named(field: str, out: Imported, value: Any) -> dict[str, Any]:
    """Return an output as a field: its text, or that of a member named as answers are; others keep their names."""
    others: dict[str, Any] = {}
    while isinstance(value, (dict, list)) and (text := _answer(value)) is None:
        if isinstance(value, list):
            if len(value) != 1:
                break
            value = value[0]
            continue
        name = next((name for name in _ANSWERS if name in value), next(iter(value)) if len(value) == 1 else None)
        members = {key if field == "response" else f"outputs.{key}": item for key, item in value.items() if key != name}
        others = members | others
        if name is None:
            if members:
                out.note(f"outputs have {', '.join(members)}: --map {field}=NAME says which is the {field}")
            return others
        value = value[name]
    return others | {field: text if isinstance(value, (dict, list)) and text is not None else value}


def _answer(value: Any) -> str | None:
    """Return the text of a conversation's last message, of a completion, or of a message; None of anything else."""
    if messages := _messages(value):
        return text_of(messages[-1].get("content"))
    if isinstance(value, dict) and isinstance(value.get("choices"), list):
        return response_text.read("chat_completions", value, _OK).text
    return text_of(_message(value).get("content")) or None


def _passages(value: Any) -> list[str | dict[str, str]]:
    """Return the passages that a retriever returned."""
    if isinstance(value, dict):
        value = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), [value])
    given = passages(value or [])
    return [passage for passage in given if (passage if isinstance(passage, str) else passage["text"]).strip()]


def _decoded(value: Any) -> Any:
    """Return the object or list that a text holds as JSON, any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[", '"')):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value
