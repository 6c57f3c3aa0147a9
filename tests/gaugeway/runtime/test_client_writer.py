"""Pieces of a response are written as they arrive, and a fast response's in fewer writes."""

import asyncio

import pytest

from gaugeway.runtime import client_writer
from gaugeway.runtime.client_writer import HOLD_AFTER, HOLD_BYTES, HOLD_S, ClientWriter


class Transport:
    def __init__(self):
        self.writes = []
        self.written = asyncio.Event()

    def write(self, data):
        self.writes.append(data)
        self.written.set()


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(client_writer, "perf_counter", lambda: now[0])
    return now


def send(writer, clock, pieces, gap_s):
    for piece in pieces:
        clock[0] += gap_s
        writer.add(piece)
        writer.write_soon()


def pieces(count):
    return [b"%d," % number for number in range(count)]


def test_a_stream_of_a_model_is_written_piece_by_piece(clock):
    async def main():
        transport = Transport()
        writer = ClientWriter(transport, asyncio.get_running_loop())
        send(writer, clock, pieces(50), gap_s=2 * HOLD_S)
        assert transport.writes == pieces(50)

    asyncio.run(main())


def test_a_few_pieces_that_come_at_once_are_written_at_once(clock):
    async def main():
        transport = Transport()
        writer = ClientWriter(transport, asyncio.get_running_loop())
        send(writer, clock, pieces(HOLD_AFTER + 1), gap_s=0.0)
        assert transport.writes == pieces(HOLD_AFTER + 1)
        send(writer, clock, pieces(1), gap_s=2 * HOLD_S)
        send(writer, clock, pieces(HOLD_AFTER), gap_s=0.0)  # counted from the pause
        assert transport.writes == pieces(HOLD_AFTER + 1) + pieces(1) + pieces(HOLD_AFTER)

    asyncio.run(main())


def test_a_fast_stream_is_written_in_few_pieces_and_whole(clock):
    async def main():
        transport = Transport()
        writer = ClientWriter(transport, asyncio.get_running_loop())
        send(writer, clock, pieces(50), gap_s=HOLD_S / 10)
        assert b"".join(transport.writes) == b"".join(pieces(HOLD_AFTER + 1))
        transport.written.clear()
        async with asyncio.timeout(10):
            await transport.written.wait()
        assert b"".join(transport.writes) == b"".join(pieces(50))
        assert len(transport.writes) == HOLD_AFTER + 2

    asyncio.run(main())


def test_the_end_of_a_fast_stream_does_not_wait(clock):
    async def main():
        transport = Transport()
        writer = ClientWriter(transport, asyncio.get_running_loop())
        send(writer, clock, pieces(50), gap_s=0.0)
        writer.write()
        assert b"".join(transport.writes) == b"".join(pieces(50))

    asyncio.run(main())


def test_no_more_than_the_limit_is_held(clock):
    async def main():
        transport = Transport()
        writer = ClientWriter(transport, asyncio.get_running_loop())
        send(writer, clock, [b"x" * 1000] * 100, gap_s=0.0)
        held = 100_000 - sum(map(len, transport.writes))
        assert 0 <= held < HOLD_BYTES
        assert len(transport.writes) < 20

    asyncio.run(main())


def test_what_is_dropped_is_not_written_later(clock):
    async def main():
        transport = Transport()
        writer = ClientWriter(transport, asyncio.get_running_loop())
        send(writer, clock, pieces(50), gap_s=0.0)
        writer.drop()
        await asyncio.sleep(3 * HOLD_S)
        assert transport.writes == pieces(HOLD_AFTER + 1)

    asyncio.run(main())
