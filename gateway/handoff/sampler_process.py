"""The sampler process: reads recordings from standard input and writes capture results to standard output.

Extracting contexts and redacting cost ten times as much as the rest of capture. In a thread they would compete with the
traffic for the interpreter's lock; in this process they do not, and they yield to the traffic on a busy processor.
"""

from __future__ import annotations

import contextlib
import gc
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO

import msgspec
from setproctitle import setproctitle

from gateway.capture import result
from gateway.capture.exchange_reader import Capture
from gateway.capture.factory import capture_of
from gateway.capture.result import CaptureResult
from gateway.capture.stored_templates import learned_of, marked_of
from gateway.config import Capture as Settings
from gaugeway.exchange import Recording
from gaugeway.processes.worker_metrics import framed, next_frame
from gaugeway.prompts.learning.learner import TemplateEvent
from gaugeway.runtime.system import lower_priority
from gaugeway.storage.templates import StoredTemplate

NICENESS = 19
"""With less, a gateway on a single saturated core serves a fraction of the requests (docs/explanation/faults.md)."""


class Setup(msgspec.Struct, frozen=True):
    """The first frame: the settings; `templates` is a first `Load`."""

    capture: Settings
    key: str
    templates: list[StoredTemplate] = []


class Load(msgspec.Struct, frozen=True):
    """A frame between batches: all learned templates, replacing those loaded before. It has no answer."""

    templates: list[StoredTemplate]


class Answer(msgspec.Struct, frozen=True):
    """The answer to a batch: the result of each recording, and the template events since the last answer."""

    results: list[CaptureResult]
    events: list[TemplateEvent]


def main(source: BinaryIO, sink: BinaryIO, ready: Callable[[], None] = lambda: None) -> None:
    """Serve until the gateway closes the pipe; `ready` is called before the first batch is read."""
    if (first := next_frame(source.read)) is None:
        return
    setup = msgspec.msgpack.decode(first, type=Setup)
    events: list[TemplateEvent] = []
    capture = capture_of(setup.capture, setup.key, events.append)
    _load(capture, setup.templates)
    decoder = msgspec.msgpack.Decoder(list[Recording] | Load)
    gc.collect()
    gc.freeze()
    ready()
    while (received := next_frame(source.read)) is not None:
        with uncollected():
            answer = _answered(capture, decoder.decode(received), events)
        if answer is not None:
            sink.write(answer)
            sink.flush()


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from running while a batch is in memory: it would visit all of it, and free nothing.

    What it may find garbage in is the batch, and it runs before the next one is read.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _answered(capture: Capture, batch: list[Recording] | Load, events: list[TemplateEvent]) -> bytes | None:
    """Return the answer to a batch; None for templates, which are loaded."""
    if isinstance(batch, Load):
        _load(capture, batch.templates)
        return None
    answer = framed(Answer(result.capture_all(capture, batch), events))
    events.clear()
    return answer


def _load(capture: Capture, templates: Sequence[StoredTemplate]) -> None:
    if capture.learned is not None:
        capture.learned.learner.load(
            [template for each in templates if (template := learned_of(each)) is not None],
            [asked for each in templates if (asked := marked_of(each)) is not None],
        )


def run() -> None:
    """Serve on standard input and output."""
    setproctitle("gaugeway: sampler")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends when its gateway closes the pipe, and not before
    with (
        contextlib.suppress(BrokenPipeError),
        open(0, "rb", closefd=False) as source,  # by number: in a fork, sys.stdin is the parent's object
        open(1, "wb", closefd=False) as sink,
    ):
        main(source, sink, partial(lower_priority, NICENESS))


if __name__ == "__main__":
    run()
