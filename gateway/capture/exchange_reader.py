"""Capture decisions, decoding of recordings, and the samples made of them. Pure; runs off the request path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec

from gateway.capture import Draft
from gateway.capture.auxiliary_calls import auxiliary, only_calls_tools
from gateway.capture.conversation import ConversationReader, EarlierQuestions
from gateway.capture.fingerprints import Resubmissions, cluster_of, digest, prompt_version
from gateway.capture.intermediate_steps import IntermediateSteps
from gateway.capture.output_tools import with_answer_by_tool
from gateway.capture.remembered_answers import RememberedAnswers
from gateway.capture.tool_checks import tool_checks
from gateway.http import encoding, lenient_json, sse
from gateway.http.lenient_json import change_strings
from gateway.http.sessions import SESSION_HEADERS, session_of
from gaugeway.exchange import (
    SPAN_PARAMETERS,
    Ending,
    Exchange,
    ExchangeSummary,
    Explicit,
    Facts,
    Headers,
    Recording,
    Request,
    Response,
)
from gaugeway.prompts import Extraction, Extractor, evidence_of, last_user_text
from gaugeway.prompts import response_text as answers
from gaugeway.prompts.learning.learner import LearnedCapture
from gaugeway.prompts.passage_records import RecordForms
from gaugeway.prompts.prompt_parts import capture_info, locate
from gaugeway.records import Sample, changed
from gaugeway.sampling import keep, keeps
from gaugeway.settings.bounds import bounded_calls, bounded_capture, bounded_history, bounded_name

_SHORT_QUESTION = 300
_CRLF = rb"\r\n"
"""A CRLF as it is written in JSON."""
_PROMPT_KEYS = ("messages", "input", "prompt", "system", "instructions")
_decode = msgspec.json.Decoder().decode
_CUT_SHORT = {
    **dict.fromkeys(
        ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"),
        "truncated_response",
    ),
    "content_filter": "content_filter",
}
"""By `finish_reason` in lower case: OpenAI's, and what servers that speak its API pass on from other providers."""
_INT64 = 2**63
_NOTHING_EXPLICIT = Explicit()
_facts = attrgetter(*Facts.__struct_fields__)
_RECORDED = (
    *("id", "started_at", "duration_s", "first_chunk_s", "ending", "trace", "upstream", "tags", "cached", "key_id"),
    "pressure",
)
_recorded = attrgetter(*_RECORDED)
Decision: TypeAlias = Literal["captured", "opted_out", "back_pressure", "sampled_out"]


@dataclass(eq=False)
class Capture:
    """Decides which exchanges are captured, decodes them and makes their samples.

    `rate` is the capture probability, 0 to 1, decided by a salted hash of the trace id or, without a trace, of the
    exchange id. With `errors`, every failed exchange is captured. `limit` bounds the decompressed size of a body in
    bytes. `protect` redacts each sample before it leaves this object. With `content=False` a sample carries only the
    text that its evaluation needs. `resubmissions` recognises retried requests, whose answers are not judged again.
    `learned` learns prompt templates from the requests.
    """

    extractors: Sequence[Extractor]
    _: KW_ONLY
    rate: float
    salt: str
    limit: int
    nested_with_otel: bool = False
    errors: bool = False
    content: bool = True
    protect: Callable[[Sample], Sample] | None = None
    resubmissions: Resubmissions | None = None
    learned: LearnedCapture | None = None

    def __post_init__(self) -> None:
        self._surer = [
            index for index, one in enumerate(self.extractors) if evidence_of(one) not in ("known prompt", "structure")
        ]
        self.cluster_key = self.salt
        self.conversations = ConversationReader(self.salt, questions=EarlierQuestions(self.extractors))
        self.by_conversation = False
        self._forms = RecordForms()
        self.steps_of_answers = IntermediateSteps(RememberedAnswers())

    def decide(self, recording: Recording) -> Decision:
        """Decide from the recording alone, without decoding a body, whether the exchange becomes a sample."""
        if recording.explicit is not None and not recording.explicit.capture:
            return "opted_out"
        if self._keeps(recording, recording.pressure):
            return "captured"
        return "back_pressure" if recording.pressure < 1.0 and self._keeps(recording, 1.0) else "sampled_out"

    def _keeps(self, recording: Recording, pressure: float) -> bool:
        rate = self._rate_of(recording.ending, recording.status, pressure)
        if self.by_conversation and rate < 1.0 and (session := self._session(recording)) is not None:
            return keep(session, rate, self.salt)
        trace_id = recording.trace.trace_id if recording.trace else None
        return keeps(trace_id, recording.id, rate, salt=self.salt, nested_with_otel=self.nested_with_otel)

    def _session(self, recording: Recording) -> str | None:
        """The session that the explicit channel or a header names; the body is not decoded for this decision."""
        headers = text_headers(recording.request_headers)
        return session_of(headers, {}, recording.explicit, self.conversations.session_headers)

    def _samples_whole(self, exchange: Exchange) -> bool:
        """Whether the session decided that this exchange is captured, as it decides for all others of it."""
        said, names = exchange.request, self.conversations.session_headers
        return (
            self.by_conversation
            and exchange.session is not None
            and session_of(said.headers, {}, said.explicit, names) == exchange.session
        )

    def _rate_of(self, ending: Ending, status: int, pressure: float) -> float:
        """The probability with which an exchange is captured; back-pressure lowers it."""
        return (1.0 if self.errors and is_error(ending, status) else self.rate) * pressure

    def read(self, recording: Recording) -> Exchange:
        """Decode a recording. Raises ValueError when its bodies make no sense."""
        return read(recording, self.limit, self.conversations.session_headers)

    def make(self, exchange: Exchange) -> Sample:
        """Make the sample of a decoded exchange that is captured."""
        draft = Draft(exchange)
        for step in self.steps:
            step(draft)
        assert draft.sample is not None  # noqa: S101 - for the type checker: made by the steps
        return draft.sample

    @property
    def steps(self) -> tuple[Callable[[Draft], None], ...]:
        """The steps in which a sample is made, in order. None depends on what a later one did for another exchange."""
        return (
            *(self._check, self._find, self._locate, self._follow),
            *(self._cluster, self._link, self._build, self._redact),
        )

    def _check(self, draft: Draft) -> None:
        """Find out whether the response can be judged."""
        exchange = draft.exchange
        reason, kind = skip_reason(exchange), None
        if reason is None and (kind := auxiliary(exchange.request, exchange.response)) is not None:
            reason = "auxiliary"
        if reason is None and self._is_repeated(exchange):
            reason = "resubmission"
        draft.reason, draft.kind = reason, kind

    def _find(self, draft: Draft) -> None:
        exchange = draft.exchange
        draft.found = found = self._extract(exchange, learns=draft.reason is None)
        if draft.reason == "auxiliary" and found.contexts:
            # Neither what was retrieved nor what the user asks decides what kind of call it is.
            asked = [found.question] if found.question and len(found.question) <= _SHORT_QUESTION else []
            said = [*(context.text for context in found.contexts), *asked]
            draft.kind = auxiliary(exchange.request, exchange.response, without=said)
            draft.reason = draft.kind and "auxiliary"
            if draft.reason is None and self._is_repeated(exchange):
                draft.reason = "resubmission"

    def _locate(self, draft: Draft) -> None:
        """Tell the instructions from the data in the prompt; a version identifies them."""
        request, found = draft.exchange.request, draft.found
        located = locate(request, found, app=draft.exchange.app, forms=self._forms)
        draft.more["prompt"] = prompt_version(found, located, salt=self.salt)
        draft.more["capture"] = capture_info(request, found, content=self.content, located=located)

    def _follow(self, draft: Draft) -> None:
        """Find out whether the answer is a step on the way to another one, and what became of those before."""
        was = draft.reason
        self.steps_of_answers.read(draft)
        if was is not None and draft.reason is None and self._is_repeated(draft.exchange):
            draft.reason = "resubmission"

    def _cluster(self, draft: Draft) -> None:
        cluster = cluster_of(draft.exchange, draft.found.question, salt=self.cluster_key)
        draft.more["cluster"], draft.more["conversation"] = cluster, _session_name(cluster)

    def _link(self, draft: Draft) -> None:
        """Find out what the exchange has to do with others of its conversation."""
        links = self.conversations.read(draft.exchange, draft.found.question, draft.found)
        draft.more["links"], draft.more["history"], draft.more["calls"] = links

    def _build(self, draft: Draft) -> None:
        exchange, more = draft.exchange, draft.more
        more["sampled_whole"], more["tool_checks"] = self._samples_whole(exchange), tool_checks(exchange)
        rate = self._rate_of(exchange.ending, exchange.response.status, exchange.pressure)
        draft.sample = to_sample(exchange, draft.found, rate, draft.reason, draft.kind, **more)

    def _redact(self, draft: Draft) -> None:
        draft.sample = draft.sample and self._protected(draft.sample)

    def session(self, exchange: Exchange) -> str | None:
        """Return the session's name as a sample would have it, redacted; None for a client that wants no capture."""
        explicit = exchange.request.explicit
        if exchange.session is None or (explicit is not None and not explicit.capture):
            return None
        named = Sample(id=exchange.id, started_at=exchange.started_at, app=exchange.app, session=exchange.session)
        return self.protect(named).session if self.protect is not None else exchange.session

    def _extract(self, exchange: Exchange, *, learns: bool) -> Extraction:
        """Run the extractors; a learned template comes before those that infer."""
        found: dict[int, Extraction | None] = {}

        def ask(index: int) -> Extraction | None:
            if index not in found:
                found[index] = self.extractors[index].extract(exchange.request, exchange.response)
            return found[index]

        def unlearned() -> Extraction:
            return _completed(exchange, _first(map(ask, range(len(self.extractors)))))

        if self.learned is None:
            return unlearned()
        for index in self._surer:
            if ask(index) is not None:
                return unlearned()
        return self.learned.extract(exchange.app, exchange.request, unlearned, learns=learns)

    def _protected(self, sample: Sample) -> Sample:
        """Redact, then truncate: a secret that is cut in half would not be recognised."""
        before = sample.capture
        if self.protect is not None:
            sample = self.protect(sample)
        if (capture := sample.capture) is not None and (capture is not before or capture.shortened):
            capture = bounded_capture(capture)
        return changed(
            sample, capture=capture, history=bounded_history(sample.history), calls=bounded_calls(sample.calls)
        )

    def _is_repeated(self, exchange: Exchange) -> bool:
        seen, known = self.resubmissions, exchange.digest
        return seen is not None and known is not None and seen.seen(known, exchange.started_at) and exchange.resent


def _session_name(cluster: str | None) -> str | None:
    """Return the hash of the session, which is what its conversation is called."""
    kind, _, name = (cluster or "").partition(" ")[0].partition(":")
    return name if kind == "s" else None


def read(recording: Recording, limit: int, session_headers: Sequence[str] = SESSION_HEADERS) -> Exchange:
    """Decode a recording. `limit` bounds the decompressed size of a body in bytes.

    `session_headers`, in lower case, are headers that name the session.

    Raises ValueError when a body that should be JSON is not, or cannot be decompressed.
    """
    headers = text_headers(recording.request_headers)
    sent = _plain(recording.request_body or b"", headers, limit)
    request_body = _json_object(sent, "request")
    if _CRLF in sent:
        _unify_line_breaks(request_body)
    response_headers = text_headers(recording.response_headers)
    request = Request(route=recording.route, headers=headers, body=request_body, explicit=recording.explicit)
    received = b"".join(recording.chunks)
    answer = _plain(received, response_headers, limit)
    response = _read_response(recording, response_headers, answer, recording.chunks if answer is received else ())
    response = with_answer_by_tool(request, response)
    explicit = recording.explicit or _NOTHING_EXPLICIT
    session = session_of(headers, request_body, recording.explicit, session_headers)
    return Exchange(
        **dict(zip(_RECORDED, _recorded(recording), strict=True)),
        stream=_is_stream(response_headers),
        app=explicit.app or "default",
        model=_model(request_body, recording.path, response),
        request=request,
        response=response,
        session=session,
        digest=_digest(recording, explicit.app, session, headers),
        resent=_may_be_the_same(headers, request_body, session),
        size=len(sent) + len(answer),
    )


def to_sample(
    exchange: Exchange, extraction: Extraction, rate: float, reason: str | None, kind: str | None = None, **more: Any
) -> Sample:
    """Return the sample of an exchange that was captured with probability `rate`.

    `reason` is why it is not judged, `kind` the kind of auxiliary call, which becomes the tag `auxiliary`. `more` are
    the sample's other fields: making it once takes half the time of replacing some of its many fields afterwards.
    """
    explicit = exchange.request.explicit or _NOTHING_EXPLICIT
    return Sample(
        id=exchange.id,
        started_at=exchange.started_at,
        app=exchange.app,
        model=exchange.model,
        question=extraction.question,
        contexts=extraction.contexts,
        context_source=extraction.source,
        response=exchange.response.text,
        reference=explicit.reference,
        tags=exchange.tags | explicit.tags | ({"auxiliary": kind} if kind else {}),
        session=exchange.session,
        trace_id=exchange.trace.trace_id if exchange.trace else None,
        span_id=exchange.trace.span_id if exchange.trace else None,
        response_id=exchange.response.id,
        rate=rate,
        usage=exchange.response.usage,
        duration_s=exchange.duration_s,
        skip_reason=reason,
        context_key=explicit.context_key,
        **more,
    )


def extract(exchange: Exchange, extractors: Sequence[Extractor]) -> Extraction:
    """Run the extractors in order and take the first extraction. Explicit fields take precedence."""
    return _completed(
        exchange, _first(extractor.extract(exchange.request, exchange.response) for extractor in extractors)
    )


def _first(found: Iterable[Extraction | None]) -> Extraction | None:
    return next((extraction for extraction in found if extraction is not None), None)


def _completed(exchange: Exchange, found: Extraction | None) -> Extraction:
    """Add the explicit question to an extraction or, if none is known, the last user turn."""
    explicit = exchange.request.explicit or _NOTHING_EXPLICIT
    if found is None:
        question = explicit.question or last_user_text(exchange.request)
        return Extraction(question=question, contexts=(), source="none", confidence=0.0)
    question = explicit.question or found.question
    if question is None and found.source not in ("structure", "none"):
        question = last_user_text(exchange.request)
    return found if question is found.question else msgspec.structs.replace(found, question=question)


def summary_of(exchange: Exchange) -> ExchangeSummary:
    """Return what is counted, priced and traced of a decoded exchange."""
    body, response = exchange.request.body, exchange.response
    fit = {name: _parameter(body[name]) for name in SPAN_PARAMETERS if name in body}
    return ExchangeSummary(
        **dict(zip(Facts.__struct_fields__, _facts(exchange), strict=True)),
        route=exchange.request.route,
        status=response.status,
        usage=response.usage,
        response_id=response.id,
        response_model=response.model,
        finish_reason=response.finish_reason,
        parameters={name: value for name, value in fit.items() if value is not None},
    )


def is_error(ending: Ending, status: int) -> bool:
    """Whether the upstream or the connection to it failed; a client that disconnects is not an error."""
    return ending not in ("complete", "client_cancelled") or status >= 400  # noqa: PLR2004 - HTTP's border


def skip_reason(exchange: Exchange) -> str | None:
    """Return why the response cannot be judged; None when it can."""
    response = exchange.response
    if exchange.ending != "complete" or exchange.cached:
        return exchange.ending if exchange.ending != "complete" else "cache_hit"
    if response.status >= 400 or response.body.get("error"):  # noqa: PLR2004 - HTTP's border
        return "error_response"
    cut_short = _CUT_SHORT.get((response.finish_reason or "").lower())
    if response.refusal or cut_short is not None:
        return "refusal" if response.refusal else cut_short
    if only_calls_tools(response):
        return "tool_call"
    return "empty_response" if not response.text.strip() else None


def _parameter(value: Any) -> bool | int | float | str | None:
    """A generation parameter as it can be encoded; None for other types and for integers beyond 64 bits."""
    if isinstance(value, str):
        return bounded_name(value)
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else None
    return value if isinstance(value, float) else None


def _digest(recording: Recording, app: str | None, session: str | None, headers: dict[str, str]) -> bytes | None:
    if not recording.request_body:
        return None
    sender = recording.key_id or headers.get("authorization") or headers.get("api-key") or headers.get("x-api-key", "")
    who = f"{sender}\n{session or ''}".encode("utf-8", "surrogatepass")
    return digest(app or "default", who, recording.path, recording.request_body)


def _may_be_the_same(headers: dict[str, str], body: dict[str, Any], session: str | None) -> bool:
    """Whether an equal request must be a retry: without a session or user, two users may ask the same."""
    retried = headers.get("x-stainless-retry-count", "0") != "0"
    return retried or bool(session or body.get("user") or body.get("safety_identifier"))


def _read_response(recording: Recording, headers: dict[str, str], raw: bytes, chunks: Sequence[bytes]) -> Response:
    if _is_stream(headers):
        body = sse.fold(recording.route, raw, chunks)
    elif recording.ending == "complete" and "json" in headers.get("content-type", "").lower():
        body = _json_object(raw, "response")
    else:
        body = {}
    return answers.read(recording.route, body, recording.status)


def _model(request_body: dict[str, Any], path: str, response: Response) -> str:
    if isinstance(model := request_body.get("model"), str) and model:
        return bounded_name(model)
    _, deployments, rest = path.partition("/deployments/")
    return bounded_name(rest.split("/", 1)[0]) if deployments else response.model or "unknown"


def _plain(body: bytes, headers: dict[str, str], limit: int) -> bytes:
    coding = headers.get("content-encoding")
    return encoding.decode(body, coding, limit) if coding and body else body


def _unify_line_breaks(request_body: dict[str, Any]) -> None:
    """Make CRLF in the prompt a line feed, as layouts, patterns and templates expect."""
    for key in _PROMPT_KEYS:
        prompt = {key: request_body.get(key)}
        change_strings(prompt, lambda text: text.replace("\r\n", "\n"))
        if prompt[key] is not None:
            request_body[key] = prompt[key]


def _json_object(body: bytes, whose: str) -> dict[str, Any]:
    if not body:
        return {}
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _leniently(body, whose)
    if not isinstance(value, dict):
        raise ValueError(f"the {whose} body is not a JSON object")  # noqa: TRY004 - bad content, not a bad call
    return value


def _leniently(body: bytes, whose: str) -> Any:
    """What an upstream or client reads all the same."""
    try:
        value = lenient_json.read(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the {whose} body is not JSON") from error
    if isinstance(value, dict):
        lenient_json.mend(value)
    return value


def text_headers(headers: Headers) -> dict[str, str]:
    """Return headers as texts, by lower-case names."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


def _is_stream(response_headers: dict[str, str]) -> bool:
    return response_headers.get("content-type", "").lstrip().lower().startswith("text/event-stream")
