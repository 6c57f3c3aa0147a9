"""Coverage-guided fuzzing of the response path: bytes into a Connection with a transport of its own, no sockets.

    pip install atheris httptools          (in an environment of its own: atheris needs no part of ours)
    python benchmarks/robustness/fuzz_response.py --minutes 10 [--corpus DIR]

An input is one byte of choices (method, framing of the request, a reader that dawdles, a cancellation), then what the
upstream sends, cut into reads at every 0xFF; an empty read stands for its end, a reset or a pause, as chosen. Up to two
exchanges are run on it, one after the other, as the pool would. A finding is any exception other than UpstreamError and
StaleError, a callback that fails, an exchange that hangs although the connection is gone, a connection that is neither
offered for reuse nor closed, a write to a closed one, a header that could split a response, ambiguous framing, or a
body of another length than announced. The limits on headers and buffers are lowered, so that short inputs reach them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["gateway.upstreams"]) if atheris else contextlib.nullcontext():
    from gateway.upstreams import UpstreamError, UpstreamRequest
    from gateway.upstreams import connection as under_test
    from gateway.upstreams.connection import Connection, StaleError

KEYWORDS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"X-A: 1\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"\x00",
    b"hello",
    b"5\r\nhello\r\n",
    b"5;x=y\r\nhello\r\n",
    b"0\r\n\r\n",
    b"0\r\nX-T: 1\r\n\r\n",
    b"fffffffffffffffff\r\n",
    b"\xff",
]
SEEDS = [
    b"\x00HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\xffHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"\x00HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n\xff\xffHTTP/1.1 204 No\r\n\r\n",
    b"\x01HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n\xffHTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"\x02HTTP/1.1 100 C\r\n\r\n\xffHTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno",
    b"\x04HTTP/1.1 103 E\r\nX: 1\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a\r\nx\r\n0\r\nT: 1",
    b"\x08HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n",
]
TURNS = 12
under_test.MAX_HEAD_BYTES = 300
under_test.HIGH_WATER_BYTES = 40


class Finding(Exception):
    """The response path did something it must never do."""


class Loop:
    """Just enough of an event loop: ready callbacks in order, a clock that only moves when told."""

    def __init__(self) -> None:
        self.ready: deque = deque()
        self.now = 0.0
        self.timers: list = []
        self.complaints: list = []

    def time(self) -> float:
        return self.now

    def create_task(self, coroutine, *, name=None, context=None) -> asyncio.Task:
        return asyncio.Task(coroutine, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future:
        return asyncio.Future(loop=self)

    def call_soon(self, callback, *args, context=None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_later(self, delay, callback, *args, context=None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.now + delay, callback, args, self, context)
        self.timers.append(handle)
        return handle

    def _timer_handle_cancelled(self, handle) -> None:
        with contextlib.suppress(ValueError):
            self.timers.remove(handle)

    def call_exception_handler(self, context) -> None:
        self.complaints.append(context)

    def turn(self) -> None:
        for _ in range(TURNS):
            if not self.ready:
                return
            for _ in range(len(self.ready)):
                handle = self.ready.popleft()
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 - what a loop does

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for handle in [timer for timer in self.timers if timer.when() <= self.now]:
            self.timers.remove(handle)
            self.ready.append(handle)
        self.turn()


class Transport:
    """What a socket transport promises: no callback after the loss, none while paused, loss told in a later turn."""

    def __init__(self, loop: Loop, connection: Connection) -> None:
        self._loop = loop
        self._connection = connection
        self.closing = False
        self.paused = False
        self.sent = bytearray()

    def get_extra_info(self, _name):
        return None

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        if self.closing:
            raise Finding("wrote to a connection that is closing")
        self.sent += data

    def pause_reading(self) -> None:
        if self.closing or self.paused:
            raise Finding("paused twice, or after the close")
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def lose(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            self._loop.call_soon(self._connection.connection_lost, error)

    def abort(self) -> None:
        self.lose(None)

    close = abort


async def body_of(chunks: int):
    for _ in range(chunks):
        yield b"x"
        await asyncio.sleep(0)


class Run:
    """One input."""

    def __init__(self, data: bytes) -> None:
        self.choices = data[0] if data else 0
        self.reads = deque(data[1:].split(b"\xff"))
        self.loop = Loop()
        self.released = 0
        self.lost = 0
        self.fed = 0
        asyncio._set_running_loop(self.loop)  # noqa: SLF001 - the loop is ours
        self.connection = Connection(self._release, self._lose)
        self.transport = Transport(self.loop, self.connection)
        self.connection.connection_made(self.transport)

    def _release(self, connection: Connection) -> None:
        self.released += 1
        if not connection.usable or self.transport.paused:
            raise Finding("released while it is not usable")

    def _lose(self, _connection: Connection) -> None:
        self.lost += 1
        if self.lost > 1:
            raise Finding("lost twice")

    def request(self) -> UpstreamRequest:
        method = "HEAD" if self.choices & 1 else "POST"
        origin = ("http", "u", 80)
        if self.choices & 2:
            headers = [(b"host", b"u"), (b"transfer-encoding", b"chunked")]
            return UpstreamRequest(method, origin, b"/", headers, body_of(3))
        return UpstreamRequest(method, origin, b"/", [(b"host", b"u"), (b"content-length", b"1")], b"x")

    def feed(self) -> None:
        """One read of the socket."""
        if self.transport.closing or self.transport.paused:
            return
        data = self.reads.popleft()
        if data:
            self.fed += len(data)
            self.connection.data_received(data)
        elif self.choices & 8:
            self.connection.eof_received()
            self.transport.lose(None)
        elif self.choices & 16:
            self.transport.lose(ConnectionResetError())
        elif self.choices & 32:
            self.loop.advance(7)

    async def exchange(self, outcome: list) -> None:
        try:
            response = await self.connection.exchange(self.request(), 5, 5)
            outcome.append((response.status, response.headers))
            try:
                outcome.append(await self.read(response))
            finally:
                await response.aclose()
        except UpstreamError as error:
            outcome.append(error.kind)
        except StaleError:
            outcome.append("stale")

    async def read(self, response) -> bytes:
        more, body = True, b""
        while more:
            for _ in range(self.choices & 4):
                await asyncio.sleep(0)
            chunk, more = await response.read()
            body += chunk
        if await response.read() != (b"", False):
            raise Finding("something after the end")
        return body

    def one(self) -> bool:
        """Run one exchange; whether the connection may carry another."""
        outcome: list = []
        before, self.fed = self.released, 0
        task = asyncio.Task(self.exchange(outcome), loop=self.loop)
        self.loop.turn()
        while not task.done() and self.reads and not self.transport.closing:
            self.feed()
            self.loop.turn()
            if self.transport.paused and not task.done() and self.choices & 64:
                break
        if not task.done():
            self.end(task, outcome)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        for context in self.loop.complaints:
            raise Finding(context.get("message")) from context.get("exception")
        self.check(outcome)
        if self.released > before and self.connection.usable:
            return True
        self.loop.turn()
        if not self.transport.closing:
            raise Finding("neither released nor closed")
        return False

    def end(self, task: asyncio.Task, outcome: list) -> None:
        """The input is over: the caller loses patience, or the other side closes and time passes."""
        if self.choices & 128:
            task.cancel()
        elif not self.transport.closing:
            self.connection.eof_received()
            self.transport.lose(None)
        self.loop.turn()
        self.loop.advance(20)
        if not task.done():
            raise Finding(f"hangs: {outcome}")

    def check(self, outcome: list) -> None:
        if outcome and isinstance(outcome[0], tuple):
            status, headers = outcome[0]
            if not 200 <= status <= 599:
                raise Finding(f"status {status}")
            for name, value in headers:
                if not name or any(byte in b"\r\n\0: " for byte in name) or any(byte in b"\r\n\0" for byte in value):
                    raise Finding(f"header {name!r}: {value!r}")
            lengths = [value for name, value in headers if name.lower() == b"content-length"]
            codings = [value for name, value in headers if name.lower() == b"transfer-encoding"]
            if len(lengths) + len(codings) > 1 or any(coding.strip().lower() != b"chunked" for coding in codings):
                raise Finding("ambiguous framing")
            whole = outcome[1:] and isinstance(outcome[1], bytes)
            bodiless = self.choices & 1 or status in (204, 304)
            if whole and bodiless and outcome[1]:
                raise Finding("a body where there is none")
            if whole and lengths and not bodiless and len(outcome[1]) != int(lengths[0]):
                raise Finding("a body of another length than announced")
        elif outcome[:1] == ["stale"] and self.fed:
            raise Finding("stale, though something came")

    def close(self) -> None:
        self.connection.abort()
        self.loop.turn()
        self.loop.advance(100)
        if not self.lost:
            raise Finding("the loss was never told")
        asyncio._set_running_loop(None)  # noqa: SLF001 - same


def test_one_input(data: bytes) -> None:
    """What the fuzzer calls."""
    run = Run(data)
    try:
        if run.one() and run.one() and run.reads:
            run.feed()  # nobody asked: whatever comes now must end the connection
            run.loop.turn()
        run.close()
    finally:
        asyncio._set_running_loop(None)  # noqa: SLF001 - same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--max-len", type=int, default=2048)
    options = parser.parse_args()
    if atheris is None:
        sys.exit("atheris is not installed: pip install atheris httptools (in an environment of its own)")
    for seed in SEEDS:
        test_one_input(seed)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = options.corpus or Path(scratch) / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(SEEDS):
            (corpus / f"seed-{number}").write_bytes(seed)
        dictionary = Path(scratch) / "http.dict"
        entries = ["".join(rf"\x{byte:02x}" for byte in word) for word in KEYWORDS]
        dictionary.write_text("".join(f'"{entry}"\n' for entry in entries))
        arguments = [
            sys.argv[0],
            str(corpus),
            f"-max_total_time={round(options.minutes * 60)}",
            f"-max_len={options.max_len}",
            f"-dict={dictionary}",
            f"-artifact_prefix={scratch}/",
            "-timeout=10",
            "-rss_limit_mb=1500",
            "-print_final_stats=1",
        ]
        atheris.Setup(arguments, test_one_input)
        print(f"fuzzing for {options.minutes} min", time.strftime("%H:%M:%S"), flush=True)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
