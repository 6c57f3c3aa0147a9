"""Files of 512 MB up and down through a gateway: bytes intact, memory flat.

python benchmarks/robustness/large_files.py [--megabytes 512]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

ROOT = Path(__file__).parents[2]
MEGABYTE = 1024 * 1024
PIECE = random.Random(7).randbytes(MEGABYTE)


class Upstream:
    """Takes an upload of any size, and gives a download of as many megabytes as the path says."""

    def __init__(self) -> None:
        self.received = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if head.startswith(b"post"):
                    await self._take(reader, int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                else:
                    await self._give(writer, int(head.split(b"/v1/files/")[1].split(b"/")[0]))
        writer.close()

    async def _take(self, reader: asyncio.StreamReader, length: int) -> None:
        digest = hashlib.sha256()
        while length:
            piece = await reader.read(min(length, MEGABYTE))
            digest.update(piece)
            length -= len(piece)
        self.received = digest.hexdigest()

    async def _give(self, writer: asyncio.StreamWriter, megabytes: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (megabytes * MEGABYTE))
        for _ in range(megabytes):
            writer.write(PIECE)
            await writer.drain()


async def upload(port: int, megabytes: int) -> str:
    """Send a file; its digest."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    size = megabytes * MEGABYTE
    writer.write(b"POST /v1/files HTTP/1.1\r\nhost: g\r\ncontent-type: multipart/form-data; boundary=b\r\n")
    writer.write(b"content-length: %d\r\n\r\n" % size)
    digest = hashlib.sha256()
    for _ in range(megabytes):
        writer.write(PIECE)
        digest.update(PIECE)
        await writer.drain()
    await reader.readuntil(b"{}")
    writer.close()
    return digest.hexdigest()


async def download(port: int, megabytes: int) -> str:
    """Fetch a file; its digest."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MEGABYTE)
    writer.write(b"GET /v1/files/%d/content HTTP/1.1\r\nhost: g\r\n\r\n" % megabytes)
    await reader.readuntil(b"\r\n\r\n")
    digest = hashlib.sha256()
    left = megabytes * MEGABYTE
    while left:
        piece = await reader.read(MEGABYTE)
        digest.update(piece)
        left -= len(piece)
    writer.close()
    return digest.hexdigest()


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


async def main() -> int:
    """Move the files, watch the memory; exit 1 when a byte changed."""
    options = argparse.ArgumentParser()
    options.add_argument("--megabytes", type=int, default=512)
    megabytes = options.parse_args().megabytes
    upstream = Upstream()
    server = await asyncio.start_server(upstream, "127.0.0.1", 0, limit=MEGABYTE)
    port = random.randrange(21_000, 31_000)
    target = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gateway", "--upstream", target, "--port", str(port), "--data-dir", folder]
        process = subprocess.Popen(  # noqa: ASYNC220 - starts in no time
            [*command, "--admin-port", str(port + 1)], cwd=ROOT, stderr=subprocess.DEVNULL
        )
        try:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                await asyncio.sleep(0.1)
            await upload(port, 1)
            before = rss_mib(process.pid)
            peak = before
            for name, moving in (("up", upload(port, megabytes)), ("down", download(port, megabytes))):
                begin = time.perf_counter()
                task = asyncio.ensure_future(moving)
                while not task.done():
                    await asyncio.wait({task}, timeout=0.02)
                    peak = max(peak, rss_mib(process.pid))
                same = await task == (upstream.received if name == "up" else _digest(megabytes))
                seconds = time.perf_counter() - begin
                print(f"{name}: {megabytes} MB in {seconds:.1f} s, {'same bytes' if same else 'BYTES DIFFER'}")
                if not same:
                    return 1
            print(f"gateway's memory: {before:.0f} MiB before, {peak:.0f} MiB at most")
        finally:
            process.terminate()
            process.wait()
    server.close()
    return 0


def _digest(megabytes: int) -> str:
    digest = hashlib.sha256()
    for _ in range(megabytes):
        digest.update(PIECE)
    return digest.hexdigest()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
