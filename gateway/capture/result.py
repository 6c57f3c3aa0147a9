"""What decoding a recording gives: the facts that are counted, and the sample or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gateway.capture.exchange_reader import summary_of
from gateway.exchange import Exchange, ExchangeSummary, Recording
from gateway.http.encoding import EncodingError
from monitors.records import Sample


class Decoder(Protocol):
    """Decodes recordings, and makes samples of decoded exchanges."""

    def read(self, recording: Recording) -> Exchange:
        """Decode a recording. Raises ValueError when its bodies make no sense."""

    def make(self, exchange: Exchange) -> Sample:
        """Make the sample of a decoded exchange that is captured."""

    def session(self, exchange: Exchange) -> str | None:
        """Return the redacted name of the exchange's session."""


class CaptureResult(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one exchange, and its sample or the name of the exception that prevented one.

    `summary` is None when a body could not be read; `unreadable` is then the reason that is counted. `read_s` is the
    time that decoding the bodies took, in seconds.
    """

    summary: ExchangeSummary | None = None
    sample: Sample | None = None
    error: str | None = None
    unreadable: str | None = None
    read_s: float = 0.0


def summarise(decoder: Decoder, recording: Recording) -> CaptureResult:
    """Decode a recording that does not become a sample. Never raises."""
    return _result(decoder, recording, lambda _: None)


def capture(decoder: Decoder, recording: Recording) -> CaptureResult:
    """Decode a recording and make its sample. Never raises."""
    return _result(decoder, recording, decoder.make)


def _result(decoder: Decoder, recording: Recording, make: Callable[[Exchange], Sample | None]) -> CaptureResult:
    started, summary, read_s = perf_counter(), None, None
    try:
        exchange = decoder.read(recording)
        read_s = perf_counter() - started
        summary = summary_of(exchange)
        sample = make(exchange)
        named = sample.session if sample is not None else decoder.session(exchange)
        summary = replace(summary, conversation=named, prompt=sample and sample.prompt)
        return CaptureResult(summary=summary, sample=sample, read_s=read_s)
    except Exception as error:  # noqa: BLE001 - one odd exchange must not stop the capture of others; it is counted
        return CaptureResult(
            summary=summary,
            error=type(error).__name__,
            unreadable=_reason(error) if summary is None else None,
            read_s=perf_counter() - started if read_s is None else read_s,
        )


def _reason(error: Exception) -> str:
    if isinstance(error, EncodingError):
        return error.reason
    return "invalid_json" if isinstance(error, ValueError) else "internal"
