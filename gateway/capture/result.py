"""What decoding a recording gives: the facts that are counted, and the sample or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Protocol

import msgspec
from msgspec.structs import replace

from gateway.capture import Draft
from gateway.capture.exchange_reader import summary_of
from gateway.http.encoding import EncodingError
from gaugeway.exchange import Exchange, ExchangeSummary, Recording
from gaugeway.records import Sample

MAX_GROUP, MAX_GROUP_BYTES = 32, 1024 * 1024
"""Exchanges, and bytes of their bodies, that samples are made of at once. The last one may exceed the bytes."""


class Decoder(Protocol):
    """Decodes recordings, and makes samples of decoded exchanges."""

    def read(self, recording: Recording) -> Exchange:
        """Decode a recording. Raises ValueError when its bodies make no sense."""

    def make(self, exchange: Exchange) -> Sample:
        """Make the sample of a decoded exchange that is captured."""

    def session(self, exchange: Exchange) -> str | None:
        """Return the redacted name of the exchange's session."""


class StepwiseDecoder(Decoder, Protocol):
    """Makes samples in steps, each of which may be taken for several exchanges before the next one."""

    @property
    def steps(self) -> Sequence[Callable[[Draft], None]]:
        """The steps in order; what they do for an exchange does not depend on later steps for another."""


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
    one = _read(decoder, recording)
    _take(lambda draft: draft.more.update(conversation=decoder.session(draft.exchange)), [one])
    return _completed(one)


def capture(decoder: Decoder, recording: Recording) -> CaptureResult:
    """Decode a recording and make its sample. Never raises."""
    one = _read(decoder, recording)

    def make(draft: Draft) -> None:
        draft.sample = decoder.make(draft.exchange)

    _take(make, [one])
    return _completed(one)


def capture_all(decoder: StepwiseDecoder, recordings: Iterable[Recording]) -> list[CaptureResult]:
    """Decode recordings and make their samples. Never raises.

    Each step is taken for a group of exchanges before the next one. Code that runs again and again stays in the
    processor's caches: that takes three quarters of the time of taking all steps for each exchange.
    """
    results: list[CaptureResult] = []
    group: list[_Progress] = []
    size = 0
    for recording in recordings:
        group.append(one := _read(decoder, recording))
        size += one.draft.exchange.size if one.draft is not None else 0
        if len(group) >= MAX_GROUP or size >= MAX_GROUP_BYTES:
            results += _finished(decoder, group)
            group, size = [], 0
    return results + _finished(decoder, group)


class _Progress:
    """A recording on its way to a result. Without a `draft` it could not be read; with an `error` no step follows."""

    __slots__ = ("draft", "error", "read_s", "summary")

    def __init__(self) -> None:
        self.draft: Draft | None = None
        self.error: Exception | None = None
        self.read_s = 0.0
        self.summary: ExchangeSummary | None = None


def _read(decoder: Decoder, recording: Recording) -> _Progress:
    one, started = _Progress(), perf_counter()
    try:
        exchange = decoder.read(recording)
        one.read_s = perf_counter() - started
        one.draft = Draft(exchange)
        one.summary = summary_of(exchange)
    except Exception as error:  # noqa: BLE001 - one odd exchange must not stop the capture of others; it is counted
        one.error, one.read_s = error, one.read_s or perf_counter() - started
    return one


def _finished(decoder: StepwiseDecoder, group: Sequence[_Progress]) -> list[CaptureResult]:
    for step in decoder.steps:
        _take(step, group)
    return [_completed(sample) for sample in group]


def _take(step: Callable[[Draft], None], group: Iterable[_Progress]) -> None:
    """Take a step for each exchange of which no earlier one failed."""
    for one in group:
        if one.error is None and one.draft is not None:
            try:
                step(one.draft)
            except Exception as error:  # noqa: BLE001 - as in `_read`
                one.error = error


def _completed(one: _Progress) -> CaptureResult:
    if one.error is not None or one.draft is None or one.summary is None:
        return CaptureResult(
            summary=one.summary,
            error=type(one.error).__name__,
            unreadable=_reason(one.error) if one.summary is None else None,
            read_s=one.read_s,
        )
    if (sample := one.draft.sample) is None:
        summary = replace(one.summary, conversation=one.draft.more["conversation"])
    else:
        summary = replace(one.summary, conversation=sample.session, prompt=sample.prompt)
    return CaptureResult(summary=summary, sample=sample, read_s=one.read_s)


def _reason(error: Exception | None) -> str:
    if isinstance(error, EncodingError):
        return error.reason
    return "invalid_json" if isinstance(error, ValueError) else "internal"
