"""`gaugeway inspect`: what the extractors find in a request and why, or what is stored of an exchange."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gateway import config as configuration
from gateway.capture.auxiliary_calls import auxiliary
from gateway.capture.factory import extractors_of
from gateway.capture.output_tools import with_answer_by_tool
from gaugeway.cli.shared import fail, print_json, stored_options, with_store
from gaugeway.exchange import GENERATION_ROUTES, Explicit, Request, Response, route_of
from gaugeway.prompts import Extraction, Extractor, last_user_text, trace
from gaugeway.prompts import response_text as answers
from gaugeway.prompts.explicit import ExplicitError, from_body_key, from_headers, merge
from gaugeway.prompts.prompt_parts import capture_info
from gaugeway.records import CaptureInfo, Context, Evaluation, Failed, PromptPart, Sample, Score
from gaugeway.settings import ConfigError
from gaugeway.settings.bounds import bounded_capture
from monitors.analysis.prompt_text import Piece, pieces, unplaced

_NOT_ASKED_FOR = "http://localhost"  # the configuration requires an upstream, but nothing is sent
_decode = msgspec.json.Decoder().decode
_ROUTES = GENERATION_ROUTES | {"embeddings"}
_LONG_QUESTION, _SHOWN, _SHOWN_PASSAGES, _SHOWN_OF_PASSAGE = 2000, 600, 20, 200
_STYLES = {"instructions": "dim", "question": "bold green", "passage": "cyan", "record": "dim cyan"}


@click.command()
@click.argument("what", metavar="REQUEST.json|EXCHANGE_ID")
@stored_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(what: str, config: Path | None, data_dir: Path, as_json: bool) -> None:  # noqa: FBT001 - a click flag
    """Show what the extractors find in a request: question, contexts, the extractor used, and why.

    REQUEST.json (- for standard input) is a request body; an object with `request` and optionally `response` and
    `route`; or an object with `path`, `headers` and `body`. Any other argument is the ID of a stored exchange.
    """
    try:
        is_file = what == "-" or Path(what).is_file()
        inspection = _of_file(what, config) if is_file else _of_exchange(what, config, data_dir)
    except ConfigError as error:
        fail(error)
    except LookupError as error:
        fail(f"{what}: {error.args[0]}")
    except (OSError, ValueError) as error:  # EngineError, RefusedError and InspectionError among them
        fail(f"{what}: {error}")
    if as_json:
        print_json(inspection)
    else:
        Console().print(render(inspection))


def _of_file(what: str, config: Path | None) -> Inspection:
    raw = sys.stdin.buffer.read() if what == "-" else Path(what).read_bytes()
    return inspect_request(raw, extractors_of(configuration.load(config, upstream=_NOT_ASKED_FOR).capture))


def _of_exchange(exchange_id: str, config: Path | None, data_dir: Path) -> Inspection:
    """Read a stored exchange. Raises LookupError when the exchange or the store does not exist."""
    if exchange_id.endswith(".json") or "/" in exchange_id:
        raise LookupError("no such file")
    loaded = configuration.load(config, upstream=_NOT_ASKED_FOR)
    if loaded.store.url is None and not (data_dir / "store.db").is_file():
        raise LookupError(f"neither a file nor a stored exchange: no store in {data_dir}")
    if (stored := with_store(loaded, data_dir, lambda store: store.sample(exchange_id))) is None:
        raise LookupError("neither a file nor the ID of a stored exchange")
    return inspect_sample(*stored)


class InspectionError(ValueError):
    """The input is not a request."""


class Tried(msgspec.Struct, frozen=True):
    """An extractor that was run. `passages` is None when it did not recognise the request."""

    extractor: str
    passages: int | None


class Judged(msgspec.Struct, frozen=True):
    """One metric's outcome: `value` for scores only, `reason` for all."""

    metric: str
    outcome: str
    value: float | None
    reason: str


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `source` "none": no extractor recognised the request. `guessed`: the route was not given.

    `found_by`, `confidence`, `reason` and `parts` are the extractors' findings. In a stored exchange `source` differs
    from `found_by` when contexts were sent separately; `found_by` is None if an older release stored it.
    """

    route: str | None
    guessed: bool = False
    app: str = "default"
    question: str | None
    contexts: tuple[Context, ...]
    source: str
    marker: str | None = None
    found_by: str | None = None
    confidence: float | None = None
    reason: str | None = None
    parts: tuple[PromptPart, ...] = ()
    cut: bool = False
    tried: tuple[Tried, ...] = ()
    auxiliary: str | None = None
    response: str = ""
    judged: tuple[Judged, ...] = ()
    warnings: tuple[str, ...] = ()


class _Input(msgspec.Struct):
    """The parsed input."""

    body: dict[str, Any]
    headers: dict[str, str] = {}
    route: str | None = None
    response: Any = None
    warnings: list[str] = []


def inspect_request(raw: bytes, extractors: Sequence[Extractor]) -> Inspection:
    """Inspect a request's JSON body, bare or as `{"request", "response", "route"}` or `{"path", "headers", "body"}`.

    Raises InspectionError when `raw` is none of these.
    """
    given = _taken_apart(_object(raw, "the input"))
    explicit = _explicit(given)
    route = given.route or guess_route(given.body)
    request = Request(route=route, headers=given.headers, body=given.body, explicit=explicit)
    response = with_answer_by_tool(request, _response(given.response, route))
    said = trace(request, response, extractors)
    found = said[-1][1] if said else None
    question = (explicit.question if explicit else None) or (found.question if found else None)
    question = question or last_user_text(request)
    kind = auxiliary(request, response)
    seen = found or Extraction(question=None, contexts=(), source="none")
    info = bounded_capture(capture_info(request, msgspec.structs.replace(seen, question=question)))
    return Inspection(
        route=route,
        guessed=given.route is None,
        app=(explicit.app if explicit else None) or "default",
        question=question,
        contexts=seen.contexts,
        source=seen.source,
        **_provenance(info),
        tried=tuple(Tried(name, None if extraction is None else len(extraction.contexts)) for name, extraction in said),
        auxiliary=kind,
        response=response.text,
        warnings=(*given.warnings, *_warnings(route, explicit, found, question, kind)),
    )


def inspect_sample(sample: Sample, evaluations: Sequence[Evaluation]) -> Inspection:
    """Inspect a stored sample; its original request is not stored."""
    reason = sample.skip_reason
    return Inspection(
        route=None,
        app=sample.app,
        question=sample.question,
        contexts=sample.contexts,
        source=sample.context_source,
        **_provenance(sample.capture),
        auxiliary=sample.tags.get("auxiliary"),
        response=sample.response,
        judged=tuple(_judged(evaluation) for evaluation in evaluations),
        warnings=(f"not judged: {reason}",) if reason else (),
    )


def _provenance(info: CaptureInfo | None) -> dict[str, Any]:
    if info is None:
        return {}
    names = ("marker", "confidence", "reason", "parts", "cut")
    return {name: getattr(info, name) for name in names} | {"found_by": info.source}


def guess_route(body: dict[str, Any]) -> str:
    """Return the route a body is made for; OpenAI's where it fits Anthropic's API as well.

    >>> guess_route({"messages": [], "system": "Be brief."}), guess_route({"input": "Hi", "instructions": "Be brief."})
    ('messages', 'responses')
    """
    given = body.get("input")
    if "questions" in body:
        return "decisions" if "input" in body else "systemone"
    if isinstance(body.get("messages"), list):
        return "messages" if "system" in body or "anthropic_version" in body or _blocks(body) else "chat_completions"
    if "input" in body:
        texts = isinstance(given, list) and all(isinstance(item, str | int) for item in given)
        embeds = {"encoding_format", "dimensions"} & body.keys() or "embed" in str(body.get("model", ""))
        return "embeddings" if texts or embeds else "responses"
    return "completions" if "prompt" in body else "responses" if "instructions" in body else "chat_completions"


def _blocks(body: dict[str, Any]) -> bool:
    """Whether messages or tools have a form that only Anthropic's API has."""
    contents = [message.get("content") for message in body["messages"] if isinstance(message, dict)]
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    tools = body.get("tools")
    named = isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools)
    return named or any(part.get("type") in ("tool_use", "tool_result", "document") for part in parts)


def _taken_apart(value: dict[str, Any]) -> _Input:
    if isinstance(value.get("request"), dict):
        given = _taken_apart(value["request"])
        given.response = value.get("response")
        given.headers = _headers(value.get("headers")) or given.headers
        if (route := value.get("route")) is not None:
            if route not in _ROUTES:
                raise InspectionError(f"no route {route!r}; known: {', '.join(sorted(_ROUTES))}")
            given.route = route
        return given
    if "body" in value and ("path" in value or "headers" in value):
        if isinstance(body := value["body"], str):
            body = _object(body.encode("utf-8", "surrogatepass"), "the body")
        if not isinstance(body, dict):
            raise InspectionError("the body is not a JSON object")
        route = route_of("POST", str(value["path"]).partition("?")[0]) if "path" in value else None
        return _Input(body=body, headers=_headers(value.get("headers")), route=route, response=value.get("response"))
    if not {"messages", "input", "prompt", "instructions", "questions"} & value.keys():
        raise InspectionError(
            "not a request: expected an API's body (messages, input, prompt or questions), or an object with request, "
            "or with path, headers and body"
        )
    return _Input(body=value)


def _object(raw: bytes, what: str) -> dict[str, Any]:
    try:
        value = _decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InspectionError(f"{what} is not one JSON object: {error}") from error
    if not isinstance(value, dict):
        raise InspectionError(f"{what} is not a JSON object")
    return value


def _headers(value: Any) -> dict[str, str]:
    """Read headers given as an object or as pairs; names become lower case."""
    pairs = value.items() if isinstance(value, dict) else value if isinstance(value, list) else []
    return {str(pair[0]).lower(): str(pair[1]) for pair in pairs if isinstance(pair, tuple | list) and len(pair) == 2}  # noqa: PLR2004 - a name and a value


def _explicit(given: _Input) -> Explicit | None:
    """Read and remove the `gaugeway` body key and read our headers, as the proxy does."""
    in_body = in_headers = None
    try:
        if "gaugeway" in given.body:
            in_body = from_body_key(msgspec.json.encode(given.body.pop("gaugeway")))
        ours = [(name.encode("latin-1", "replace"), text.encode()) for name, text in given.headers.items()]
        in_headers = from_headers([header for header in ours if header[0].startswith(b"x-gaugeway-")])
    except ExplicitError as error:
        given.warnings.append(f"the gateway would answer 400: {error.field}: {error}")
    return merge(in_body, in_headers)


def _response(value: Any, route: str) -> Response:
    if isinstance(value, str):
        return Response(status=200, body={}, text=value)
    if isinstance(value, dict) and isinstance(value.get("body"), dict):
        status = value.get("status")
        return answers.read(route, value["body"], status if isinstance(status, int) else 200)
    return answers.read(route, value if isinstance(value, dict) else {}, 200)


def _warnings(
    route: str, explicit: Explicit | None, found: Extraction | None, question: str | None, kind: str | None
) -> Iterator[str]:
    """Yield hints about why contexts, a question or scores are missing."""
    if route not in GENERATION_ROUTES:
        yield f"requests of route {route} are passed through and counted, but not captured"
    if explicit is not None and not explicit.capture:
        yield "the client turned capture off: this exchange would not be stored"
    if kind is not None:
        yield f"an auxiliary call ({kind}): captured, but not judged"
    if question is None:
        yield "no question found: the request has no user text"
    if found is None:
        yield "no extractor recognised passages: metrics that need contexts skip this exchange"
        if question is not None and len(question) > _LONG_QUESTION:
            yield (
                f"the question has {len(question)} characters: it may contain passages in a form that no extractor "
                "recognises; describe it in [[capture.templates]], or send the contexts explicitly"
            )
    elif not found.contexts:
        yield "recognised, but without passages: retrieval returned nothing"
    else:
        texts = [context.text for context in found.contexts]
        if twice := len(texts) - len(set(texts)):
            yield f"duplicate passages: {twice}"
        if found.cut:
            yield "too many or too long passages: some were dropped or shortened"


def _judged(evaluation: Evaluation) -> Judged:
    if isinstance(outcome := evaluation.outcome, Score):
        return Judged(evaluation.metric, "score", outcome.value, outcome.reason)
    if isinstance(outcome, Failed):
        return Judged(evaluation.metric, "failed", None, f"{outcome.error}: {outcome.detail}".rstrip(": "))
    return Judged(evaluation.metric, "skipped", None, outcome.reason)


def render(inspection: Inspection) -> RenderableType:
    """Render an inspection for a terminal. Captured text is never interpreted as markup or control characters."""
    parts: list[RenderableType] = [_facts(inspection)]
    for number, context in enumerate(inspection.contexts[:_SHOWN_PASSAGES], start=1):
        about = [f"passage {number}", *(part for part in (context.id, context.source) if part)]
        if context.score is not None:
            about.append(f"score {context.score:g}")
        title = _safe(" · ".join(about))
        parts.append(Panel(_safe(context.text), title=title, title_align="left"))
    if (more := len(inspection.contexts) - _SHOWN_PASSAGES) > 0:
        parts.append(Text(f"... and {more} more"))
    if inspection.parts:
        parts.append(_prompt(inspection))
    if inspection.judged:
        parts.append(_outcomes(inspection.judged))
    parts += [Text.assemble(("! ", "bold yellow"), _safe(warning)) for warning in inspection.warnings]
    return Group(*parts)


def _facts(inspection: Inspection) -> Table:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    if inspection.route is not None:
        facts.add_row("route", inspection.route + (" (guessed)" if inspection.guessed else ""))
    facts.add_row("app", _safe(inspection.app))
    facts.add_row("question", _safe(inspection.question or "not found"))
    marker = f" ({inspection.marker})" if inspection.marker else ""
    found = "sent with the request" if inspection.source == "explicit" else f"found by {inspection.source}{marker}"
    facts.add_row("contexts", _safe(f"{len(inspection.contexts)}, {found}"))
    if inspection.confidence is not None:
        facts.add_row("confidence", f"{inspection.confidence:.2f}")
    if inspection.reason:
        facts.add_row("reason", _safe(inspection.reason))
    if inspection.tried:
        facts.add_row("tried", _safe(", ".join(_said(tried) for tried in inspection.tried)))
    facts.add_row("auxiliary", inspection.auxiliary or "no")
    if inspection.response:
        facts.add_row("response", _safe(inspection.response))
    return facts


def _prompt(inspection: Inspection) -> Panel:
    """Render the prompt with each part in its own style, preceded by its name for terminals without colours."""
    info = CaptureInfo(source=inspection.found_by or "none", parts=inspection.parts)
    lines: list[Text] = []
    before = -1
    for piece in pieces(info, inspection.question, inspection.contexts, inspection.source):
        if piece.message != before:
            lines.append(Text(f"{piece.role} message {piece.message}", style="bold underline"))
            before = piece.message
        lines.append(_piece(piece))
    if inspection.source == info.source and (others := unplaced(info.parts, len(inspection.contexts))):
        numbers = ", ".join(map(str, others[:_SHOWN_PASSAGES])) + (" ..." if len(others) > _SHOWN_PASSAGES else "")
        some = "passage" if len(others) == 1 else "passages"
        lines.append(Text(f"not verbatim in the prompt: {some} {numbers}", style="italic"))
    legend = Text.assemble("prompt: ", *(piece for kind in _STYLES for piece in ((kind, _STYLES[kind]), " ")))
    return Panel(Group(*lines), title=legend, title_align="left")


def _piece(piece: Piece) -> Text:
    most = _SHOWN_OF_PASSAGE if piece.kind == "passage" else _SHOWN
    words = f"{piece.size} characters, not kept" if piece.text is None else piece.text.strip("\r\n")
    return Text.assemble((f"[{piece.label.lower()}] ", "bold"), _safe(words, most), style=_STYLES[piece.kind])


def _outcomes(judged: Sequence[Judged]) -> Table:
    table = Table("metric", "outcome", "value", "reason")
    for outcome in judged:
        value = "" if outcome.value is None else f"{outcome.value:.3f}"
        table.add_row(_safe(outcome.metric), outcome.outcome, value, _safe(outcome.reason))
    return table


def _said(tried: Tried) -> str:
    return f"{tried.extractor}: {'no' if tried.passages is None else f'yes, {tried.passages} passages'}"


def _safe(text: str, most: int = _SHOWN) -> Text:
    """Shorten a text and replace its control characters, so that it cannot control the terminal."""
    shown = text
    if len(text) > most:
        words = text[:most].rsplit(maxsplit=1) if not text[most].isspace() else []
        begin = words[0] if len(words) > 1 and len(words[0]) > most // 2 else text[:most].rstrip()
        shown = f"{begin} ... ({len(text)} characters)"
    return Text(
        "".join(character if character in "\n\t" or character.isprintable() else "\ufffd" for character in shown)
    )
