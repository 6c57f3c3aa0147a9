"""Writes `gaugeway/api_types.pyi`: the types of the monitors' API and of its clients, from the OpenAPI document.

With `--openapi` it prints the document, from which `clients/typescript` is made.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from prometheus_client import CollectorRegistry

from gaugeway.client import AsyncClient, Client, Operations
from gaugeway.settings.shared import Config
from monitors.analysis.series import SeriesReader
from monitors.api.app import _exchange_handlers, _overview_handlers
from monitors.api.documents import dataset_handlers, template_handlers
from monitors.api.openapi import document
from monitors.api.trials import trial_handlers
from monitors.app import _handlers, assemble

STUB = Path(__file__).parents[1] / "gaugeway" / "api_types.pyi"
_HEAD = """# The types of the monitors' API and of its clients; made from the OpenAPI document by tools/client_types.py.
# Import them below `if TYPE_CHECKING`: this is a stub, and answers are dicts and lists at run time.

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal, NotRequired, Self, TypedDict

from gaugeway.client import Rows
"""
_ERROR = "#/components/schemas/Error"
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_LEFT_OUT = ("/v1/", "/metrics", "/llms.txt", "/healthz", "/api/openapi.json", "/api/dead-letters", "/api/rules")


def openapi() -> dict[str, Any]:
    """Return the document of all routes under `/api/`."""
    with tempfile.TemporaryDirectory() as directory:
        parts = assemble(Config(), Path(directory))
        series: Any = SeriesReader(parts.store)
        nothing: Any = SimpleNamespace(store=parts.store)
        handlers = [
            *_overview_handlers(parts.scheduler, CollectorRegistry()),
            *_exchange_handlers(nothing),
            *_handlers(Config(), parts, series, None),
            *template_handlers(nothing),
            *dataset_handlers(nothing, parts.store, list),
            *trial_handlers(nothing),
        ]
        described = document(handlers)
    kept = {path: item for path, item in described["paths"].items() if not path.startswith(_LEFT_OUT)}
    return {**described, "paths": dict(sorted(kept.items()))}


class Types:
    """Python types of JSON schemas; objects become classes."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.described = described
        self.classes: dict[str, str] = {}

    def all(self) -> None:
        """Write a class for each named schema."""
        for name, schema in sorted(self.described["components"]["schemas"].items()):
            if schema.get("type") == "object" and schema.get("properties"):
                self._class(name, "TypedDict", schema)

    def of(self, schema: dict[str, Any], name: str) -> str:
        """Return the type of a schema; `name` is for a class, if it needs one."""
        if "$ref" in schema:
            return str(schema["$ref"].rsplit("/", 1)[1])
        if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
            return f"Literal[{', '.join(map(repr, values))}]"
        if parts := schema.get("anyOf", schema.get("oneOf")):
            return _union(self.of(part, f"{name}{index}") for index, part in enumerate(parts))
        if "allOf" in schema:
            base, *more = schema["allOf"]
            return self._class(name, self.of(base, name), {"properties": {}, **(more[0] if more else {})})
        if isinstance(kinds := schema.get("type"), list):
            return _union(self.of({**schema, "type": kind}, name) for kind in kinds)
        return self._plain(schema, name)

    def _plain(self, schema: dict[str, Any], name: str) -> str:
        if schema.get("type") == "array":
            return f"list[{self.of(schema.get('items') or {}, name)}]"
        if schema.get("properties"):
            return self._class(name, "TypedDict", schema)
        if schema.get("type") == "object":
            more = schema.get("additionalProperties")
            return f"dict[str, {self.of(more, name) if isinstance(more, dict) else 'Any'}]"
        return _PLAIN.get(str(schema.get("type")), "Any")

    def _class(self, name: str, base: str, schema: dict[str, Any]) -> str:
        needed = set(schema.get("required", ()))
        lines = []
        for field, described in schema["properties"].items():
            kind = self.of(described, f"{name}{field.title().replace('_', '')}")
            lines.append(f"    {field}: {kind if field in needed else f'NotRequired[{kind}]'}")
        self.classes[name] = f"class {name}({base}):\n" + ("\n".join(lines) or "    pass") + "\n"
        return name


def _union(kinds: Any) -> str:
    return " | ".join(dict.fromkeys(kinds))


def methods(types: Types, client: type[Operations]) -> list[str]:
    """Return the methods of a client with the types of the document."""
    awaited = client is AsyncClient
    lines = []
    for name, function in inspect.getmembers(Operations, lambda member: hasattr(member, "operation")):
        method, _, path = function.operation.partition(" ")
        operation = types.described["paths"][path][method]
        known = {said["name"]: said for said in operation.get("parameters", ())}
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        sent = types.described["components"]["schemas"].get(body.get("$ref", "").rsplit("/", 1)[-1], {})
        given = [_parameter(types, each, known, sent) for each in inspect.signature(function).parameters.values()]
        answer = _answer_type(types, operation, name.title().replace("_", ""))
        keyword = next((place for place, text in enumerate(given) if text.startswith("\0")), None)
        if keyword is not None:
            given.insert(keyword, "*")
        arguments = ", ".join(text.removeprefix("\0") for text in given)
        lines.append(f"    {'async ' if awaited else ''}def {name}({arguments}) -> {answer}: ...")
    return lines


def _parameter(types: Types, parameter: inspect.Parameter, known: dict[str, Any], sent: dict[str, Any]) -> str:
    if parameter.name == "self":
        return "self"
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"**{parameter.name}: Any"
    described = known[parameter.name]["schema"] if parameter.name in known else sent["properties"][parameter.name]
    kind = types.of(described, parameter.name.title()).replace("list[", "Sequence[")
    needed = known.get(parameter.name, {}).get("required") or parameter.name in sent.get("required", ())
    mark = "\0" if parameter.kind is parameter.KEYWORD_ONLY else ""
    if needed:
        return f"{mark}{parameter.name}: {kind}"
    return f"{mark}{parameter.name}: {kind} = ..." if "None" in kind else f"{mark}{parameter.name}: {kind} | None = ..."


def _answer_type(types: Types, operation: dict[str, Any], name: str) -> str:
    status, answer = next((status, said) for status, said in operation["responses"].items() if status.startswith("2"))
    if status == "204":
        return "None"
    schema = answer["content"]["application/json"]["schema"]
    if schema.get("type") == "array":
        return f"Rows[{types.of(schema['items'], f'{name}Row')}]"
    return types.of(schema, f"{name}Answer")


def stub() -> str:
    """Return the text of the stub."""
    types = Types(openapi())
    types.all()
    clients = []
    for client in (Client, AsyncClient):
        new = "def __init__(self, url: str = ..., *, token: str | None = None, timeout_s: float = 30.0) -> None"
        awaited = client is AsyncClient
        lines = [f"class {client.__name__}:", "    url: str", f"    {new}: ..."]
        lines += methods(types, client)
        each = types.described["paths"]["/api/exchanges"]["get"]["responses"]["200"]["content"]["application/json"]
        point = types.of(each["schema"]["items"], "ExchangesRow")
        iterator, plain = ("AsyncIterator", "aclose") if awaited else ("Iterator", "close")
        lines += [
            f"    {'async ' if awaited else ''}def request(self, method: str, path: str, **given: Any) -> Any: ...",
            "    def each_exchange(self, *, since_s: float = ..., limit: int | None = None, app: str | None = None,",
            f"        metric: str | None = None, model: str | None = None) -> {iterator}[{point}]: ...",
            f"    {'async ' if awaited else ''}def {plain}(self) -> None: ...",
            f"    {'async def __aenter__' if awaited else 'def __enter__'}(self) -> Self: ...",
            f"    {'async def __aexit__' if awaited else 'def __exit__'}(self, *_: object) -> None: ...",
        ]
        clients.append("\n".join(lines) + "\n")
    text = "\n".join([_HEAD, *types.classes.values(), *clients])
    for step in (("check", "--fix", "--quiet", "--exit-zero"), ("format",)):
        command = [sys.executable, "-m", "ruff", *step, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603 - ours
    return text


def brief(described: dict[str, Any]) -> dict[str, Any]:
    """Return the document with one shape for all errors: a client's types get shorter, and say the same."""
    error = {"description": "The error.", "content": {"application/json": {"schema": {"$ref": _ERROR}}}}
    for item in described["paths"].values():
        for operation in item.values():
            good = {status: said for status, said in operation["responses"].items() if status.startswith("2")}
            operation["responses"] = {**good, "default": error}
    return described


def main() -> None:
    """Write the stub, or print the document."""
    if "--openapi" in sys.argv:
        sys.stdout.write(json.dumps(brief(openapi())) + "\n")
    else:
        STUB.write_text(stub(), "utf-8")


if __name__ == "__main__":
    main()
