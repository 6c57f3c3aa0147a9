"""The process in which samples are made: recordings come on standard input, samples go out on standard output.

Finding contexts and redacting cost ten times what the rest of capture costs. In a thread they would share the
interpreter's lock with the traffic; here they do not, and they give way to it on a busy processor.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO, TypeAlias

import msgspec

from gateway.capture.exchange_reader import Capture
from gateway.capture.factory import capture_of
from gateway.capture.stored_templates import learned_of, marked_of
from gateway.config import Capture as Settings
from gateway.contexts.learning import TemplateEvent
from gateway.exchange import Recording
from monitors.records import Sample
from monitors.storage.templates import StoredTemplate

LENGTH_BYTES = 4
NICENESS = 19
"""With less, a gateway whose only core is full lets through a fraction of the requests (docs/explanation/faults.md)."""
Made: TypeAlias = Sample | str
"""A sample, or the name of the exception that came in its place."""


class Setup(msgspec.Struct, frozen=True):
    """The first frame: how to make samples.

    `templates` is a first `Load`. `reports`: the gateway takes answers that report. One of an earlier release, replaced
    on disk while it runs, does not.
    """

    capture: Settings
    key: str
    templates: list[StoredTemplate] = []
    reports: bool = False


class Load(msgspec.Struct, frozen=True):
    """A frame between batches: all learned templates there are, in place of those known so far. It has no answer."""

    templates: list[StoredTemplate]


class Answer(msgspec.Struct, frozen=True):
    """The answer to a batch: what was made of each recording, and which templates came or went meanwhile."""

    made: list[Made]
    events: list[TemplateEvent] = []


def frame(value: object) -> bytes:
    """Encode with the length in front."""
    body = msgspec.msgpack.encode(value)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def main(source: BinaryIO, sink: BinaryIO, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until the other side closes; `ready` is called when only the samples are yet to be made."""
    setup = _next(source)
    if setup is None:
        return
    how = msgspec.msgpack.decode(setup, type=Setup)
    events: list[TemplateEvent] = []
    capture = capture_of(how.capture, how.key, events.append)
    _load(capture, how.templates)
    decoder = msgspec.msgpack.Decoder(list[Recording] | Load)
    gc.collect()
    gc.freeze()
    ready()
    while (said := _next(source)) is not None:
        batch = decoder.decode(said)
        if isinstance(batch, Load):
            _load(capture, batch.templates)
            continue
        made = [_make(capture, recording) for recording in batch]
        sink.write(frame(Answer(made, events) if how.reports else made))
        sink.flush()
        events.clear()


def _load(capture: Capture, templates: Sequence[StoredTemplate]) -> None:
    if capture.learned is not None:
        capture.learned.learner.load(
            [one for each in templates if (one := learned_of(each)) is not None],
            [asked for each in templates if (asked := marked_of(each)) is not None],
        )


def _make(capture: Capture, recording: Recording) -> Made:
    try:
        return capture.make(capture.read(recording))
    except Exception as error:  # noqa: BLE001 - one odd exchange must not end the process
        return type(error).__name__


def _next(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    body = source.read(length)
    return body if len(body) == length else None


def _give_way() -> None:
    """Only now: one that gives way while it starts may not get to its first sample on a busy processor."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends when its gateway closes the pipe, and not before
    with contextlib.suppress(BrokenPipeError):
        main(sys.stdin.buffer, sys.stdout.buffer, _give_way)
