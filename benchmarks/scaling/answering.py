"""A model that answers every request with 300 words, plain or streamed, and the requests that it is asked.

    python benchmarks/scaling/answering.py PORT

Requests carry four passages, 8 KB in all, from a pool of 200 (those of benchmarks/capture/sample_cost.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "capture"))

from sample_cost import completion, recordings, streamed, text

PIECES, PIECE_S = 20, 0.005


def bodies(count: int) -> list[bytes]:
    """Bodies of chat completions, every second one of a stream."""
    return [one.request_body for one in recordings("known", count)]


def request(body: bytes) -> bytes:
    """Return the HTTP request with this body."""
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def model(port: int) -> asyncio.Server:
    """Answer every request with one of 200 texts of 300 words; a stream comes in 20 pieces, one every 5 ms."""
    rng = random.Random(7)
    answers = [text(rng, 300) for _ in range(200)]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n"
    plain = [head % (b"application/json", b"content-length: %d" % len(one)) + one for one in map(completion, answers)]
    events = [streamed(answer) for answer in answers]

    async def stream(writer: asyncio.StreamWriter, said: list[bytes]) -> None:
        writer.write(head % (b"text/event-stream", b"transfer-encoding: chunked"))
        for some in batched(said, len(said) // PIECES):
            piece = b"".join(some)
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(PIECE_S)
        writer.write(b"0\r\n\r\n")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            while True:
                asked = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(asked.partition(b"content-length:")[2].split(b"\r\n")[0]))
                if b'"stream": true' in body:
                    await stream(writer, rng.choice(events))
                else:
                    writer.write(rng.choice(plain))
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", port)


def batched(items: list[bytes], size: int) -> Iterator[list[bytes]]:
    """Cut a list into pieces."""
    return (items[start : start + size] for start in range(0, len(items), size))


async def main() -> None:
    server = await model(int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
