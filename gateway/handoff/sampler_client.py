"""The client of the sampler process."""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import Process
from collections.abc import Sequence

import msgspec

from gateway.capture.result import CaptureResult
from gateway.config import Capture as Settings
from gateway.handoff import sampler_process
from gateway.handoff.sampler_process import Answer, Load, Setup
from gateway.handoff.template_sync import TemplateSync
from gaugeway.exchange import Recording
from gaugeway.processes import child_process
from gaugeway.processes.child_process import ForkedChild, fork
from gaugeway.processes.worker_metrics import LENGTH_BYTES, framed
from gaugeway.runtime.retry import Backoff
from gaugeway.runtime.tasks import spawn

_log = logging.getLogger("gaugeway.handoff")
BATCH_S = 60.0
_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0  # internal bound: time between our own attempts


class SamplerClientError(Exception):
    """The sampler process did not answer; no recording of the batch was processed."""


class SamplerProcesses:
    """Starts sampler processes; the first may be a fork of this process, which shares its loaded code."""

    def __init__(self) -> None:
        self._forked: ForkedChild | None = None

    def fork(self, settings: Settings) -> None:
        """Fork the first one now, if it will be needed. Call it before this process has another thread or a loop."""
        if settings.rate > 0:
            self._forked = fork(sampler_process.run, output=True)

    async def start(self) -> Process | ForkedChild:
        """Start one. Raises OSError."""
        forked, self._forked = self._forked, None
        return await child_process.start(forked, "gateway.handoff.sampler_process", output=True)

    def close(self) -> None:
        """End the forked one if it was not started."""
        if self._forked is not None:
            self._forked.close()
            self._forked = None


class SamplerClient:
    """Decodes recordings and makes samples in a separate process, which `start` or the first batch starts.

    The process gets its settings with its first batch; before that it only loads its code. After a failure it is
    restarted with a back-off of 1 s that doubles up to a minute; until then every call raises SamplerClientError at
    once, and the capture buffer makes the samples in this process. With `templates` the process gets the templates that
    all gateways have learned, and reports those it learns itself.
    """

    def __init__(
        self,
        settings: Settings,
        key: str,
        templates: TemplateSync | None = None,
        processes: SamplerProcesses | None = None,
    ) -> None:
        self._processes = processes or SamplerProcesses()
        self._setup = Setup(settings, key)
        self._templates = templates
        self._revision = 0
        """Of the templates that the process has."""
        self._process: Process | ForkedChild | None = None
        self._stopped: list[Process | ForkedChild] = []
        self._is_set_up = False
        self._abandoned = False
        self._starting = asyncio.Lock()
        self._early: asyncio.Task[None] | None = None
        self._backoff, self._not_before = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S), 0.0
        self._decoder = msgspec.msgpack.Decoder(Answer)

    def start(self) -> None:
        """Start the process before it is needed, in the background; not when no traffic is captured.

        Loading its code takes a second of processor time, which would delay the requests of that second.
        """
        if self._setup.capture.rate > 0:
            self._early = spawn(self._start_early(), name="starting the sampler process")

    def use(self, settings: Settings) -> None:
        """Use new settings; the process is restarted with them."""
        self._setup = msgspec.structs.replace(self._setup, capture=settings)
        self._stop()

    async def capture(self, recordings: Sequence[Recording]) -> Sequence[CaptureResult]:
        """Return the result of each recording. Raises SamplerClientError."""
        loop = asyncio.get_running_loop()
        if self._abandoned or (self._process is None and loop.time() < self._not_before):
            raise SamplerClientError("it failed a moment ago")
        try:
            async with asyncio.timeout(BATCH_S):
                answer = await self._exchange(framed(recordings))
            decoded = self._decoder.decode(answer)
        except (OSError, EOFError, RuntimeError, TimeoutError, msgspec.DecodeError) as error:
            # uvloop raises RuntimeError for a pipe that was closed.
            self._stop()
            self._not_before = loop.time() + self._backoff.failed()
            raise SamplerClientError(type(error).__name__) from error
        self._backoff.reset()
        if self._templates is not None:
            self._templates.heard(decoded.events)
        return decoded.results

    def abandon(self) -> None:
        """End the process for good, also in the middle of a batch: from now on every call raises."""
        self._abandoned = True
        self._stop()

    async def aclose(self) -> None:
        """End the process."""
        if self._early is not None:
            await self._early
        self._stop()
        self._processes.close()
        for process in self._stopped:
            await process.wait()

    async def _exchange(self, batch: bytes) -> bytes:
        process = await self._started()
        assert process.stdin is not None  # noqa: S101 - for the type checker: both are pipes
        assert process.stdout is not None  # noqa: S101
        if self._is_set_up:
            self._load(process.stdin)
        else:
            self._is_set_up = True
            process.stdin.write(framed(self._with_templates()))
        process.stdin.write(batch)
        await process.stdin.drain()
        head = await process.stdout.readexactly(LENGTH_BYTES)
        return await process.stdout.readexactly(int.from_bytes(head, "big"))

    async def _started(self) -> Process | ForkedChild:
        async with self._starting:
            if self._process is None:
                self._is_set_up = False
                self._process = await self._processes.start()
            return self._process

    async def _start_early(self) -> None:
        try:
            await self._started()
        except OSError as error:  # the first batch will try again
            _log.warning("the sampler process could not be started: %s", error)

    def _with_templates(self) -> Setup:
        if self._templates is None:
            return self._setup
        self._revision = self._templates.revision
        return msgspec.structs.replace(self._setup, templates=self._templates.known())

    def _load(self, pipe: asyncio.StreamWriter) -> None:
        """Send the templates if other gateways have changed them."""
        if (templates := self._templates) is not None and self._revision != templates.revision:
            self._revision = templates.revision
            pipe.write(framed(Load(templates.known())))

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._stopped = [stopped for stopped in self._stopped if stopped.returncode is None] + [process]
            if process.returncode is None:
                process.kill()
