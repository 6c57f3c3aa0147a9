"""The gateway's end of the process that makes samples."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

import msgspec

from gateway.config import Capture as Settings
from gateway.exchange import Recording
from gateway.handoff.sampler_process import LENGTH_BYTES, Answer, Load, Made, Setup, frame
from gateway.handoff.template_sync import TemplateSync
from monitors.runtime.settings import child_environment
from monitors.runtime.tasks import spawn

_log = logging.getLogger("gaugeway.handoff")
BATCH_S = 60.0
_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0


class SamplerClientError(Exception):
    """The process did not answer; nothing of the batch was made."""


class SamplerClient:
    """Makes samples in a separate process, which `start` or the first batch starts, and restarts it after its end.

    The process gets its settings with its first batch; before that it only loads its code. After a failure it restarts
    with a backoff of 1 s that doubles up to a minute; until then every call raises SamplerClientError at once, and the
    capture buffer makes the samples in this process. With `templates` the process gets the templates that all gateways
    have learned, and reports those it learns itself.
    """

    def __init__(self, settings: Settings, key: str, templates: TemplateSync | None = None) -> None:
        self._setup = Setup(settings, key, reports=templates is not None)
        self._templates = templates
        self._revision = 0
        """Of the templates that the process has."""
        self._takes_loads = False
        """Whether the process is known to be of a release that does."""
        self._process: Process | None = None
        self._stopped: list[Process] = []
        self._is_set_up = False
        self._starting = asyncio.Lock()
        self._early: asyncio.Task[None] | None = None
        self._pause_s, self._not_before = 0.0, 0.0
        self._decoder = msgspec.msgpack.Decoder(list[Made] | Answer)

    def start(self) -> None:
        """Start the process before it is needed, in the background; not when no traffic is captured.

        It takes a second of a processor to load its code, and the requests of that second would be answered late.
        """
        if self._setup.capture.rate > 0:
            self._early = spawn(self._start_early(), name="starting the sampler process")

    def use(self, settings: Settings) -> None:
        """Take over new settings; the process is started anew with them."""
        self._setup = msgspec.structs.replace(self._setup, capture=settings)
        self._stop()

    async def samples(self, recordings: Sequence[Recording]) -> Sequence[Made]:
        """Make a sample of each recording, or return the name of the exception. Raises SamplerClientError."""
        loop = asyncio.get_running_loop()
        if self._process is None and loop.time() < self._not_before:
            raise SamplerClientError("it ended a moment ago")
        try:
            async with asyncio.timeout(BATCH_S):
                answer = await self._ask(frame(recordings))
            made = self._decoder.decode(answer)
        except (OSError, EOFError, RuntimeError, TimeoutError, msgspec.DecodeError) as error:
            # uvloop raises RuntimeError for a pipe that was closed.
            self._stop()
            self._pause_s = min(max(_FIRST_PAUSE_S, self._pause_s * 2), _MAX_PAUSE_S)
            self._not_before = loop.time() + self._pause_s
            raise SamplerClientError(type(error).__name__) from error
        self._pause_s = 0.0
        if isinstance(made, list):  # the process is of an earlier release
            return made
        self._takes_loads = True
        if self._templates is not None:
            self._templates.heard(made.events)
        samples: Sequence[Made] = made.made
        return samples

    async def aclose(self) -> None:
        """End the process."""
        if self._early is not None:
            await self._early
        self._stop()
        for process in self._stopped:
            await process.wait()

    async def _ask(self, question: bytes) -> bytes:
        process = await self._started()
        assert process.stdin is not None  # noqa: S101 - for the type checker: both are pipes
        assert process.stdout is not None  # noqa: S101
        if self._is_set_up:
            self._load(process.stdin)
        else:
            self._is_set_up = True
            process.stdin.write(frame(self._with_templates()))
        process.stdin.write(question)
        await process.stdin.drain()
        head = await process.stdout.readexactly(LENGTH_BYTES)
        return await process.stdout.readexactly(int.from_bytes(head, "big"))

    async def _started(self) -> Process:
        async with self._starting:
            if self._process is None:
                self._is_set_up = False
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "gateway.handoff.sampler_process"),
                    stdin=PIPE,
                    stdout=PIPE,
                    env=child_environment({}),
                )
            return self._process

    async def _start_early(self) -> None:
        try:
            await self._started()
        except OSError as error:  # the first batch will try again
            _log.warning("the sampler process could not be started: %s", error)

    def _with_templates(self) -> Setup:
        if self._templates is None:
            return self._setup
        self._revision, self._takes_loads = self._templates.revision, False
        return msgspec.structs.replace(self._setup, templates=self._templates.known())

    def _load(self, pipe: asyncio.StreamWriter) -> None:
        """Send the templates if they have changed by what others did."""
        templates = self._templates
        if templates is not None and self._takes_loads and self._revision != templates.revision:
            self._revision = templates.revision
            pipe.write(frame(Load(templates.known())))

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._stopped = [one for one in self._stopped if one.returncode is None] + [process]
            if process.returncode is None:
                process.kill()
