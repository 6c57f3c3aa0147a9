"""Two rows of the fault matrix with small numbers: what must be zero is zero. The whole matrix is a benchmark."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

from benchmarks.faults.matrix import FAULTS, Fault, kill_gateways, kill_monitors
from benchmarks.faults.paths import PROXIED
from benchmarks.faults.play import Times, play
from benchmarks.faults.stand import Wanted
from gateway.upstreams.connection import GONE_AFTER_S, Connection
from tests.support.postgres import postgres
from tests.support.running import tcp_server

TIMES = Times(before=2.0, after=0.5)


def kill_both(stand, times):
    kill_gateways(stand, times)
    kill_monitors(stand, times)


def played(fault, engine):
    row = play(fault, engine, seed=1, amount=fault.quick, times=TIMES)
    assert row.answered > 20
    assert row.fine, row
    assert row.stored == row.answered - row.lost
    assert not row.counted
    assert not row.unscored
    return row


def test_killed_processes_cost_what_they_had_under_way_and_in_memory_and_nothing_is_done_twice():
    fault = Fault(name="kill9-both", do=kill_both, amount=1, quick=1, loses=True, wanted=Wanted(monitors=1))
    row = played(fault, "sqlite")
    assert row.lost == row.lost_at_once


def test_monitors_cut_off_from_the_engine_go_on_where_they_were():
    postgres()  # skips without the engine
    cut = next(one for one in FAULTS if one.name == "cut-monitors-engine")
    wanted = Wanted(kind=PROXIED, gateways=1, monitors=1)
    row = played(replace(cut, quick=3, wanted=wanted), "postgres")
    assert row.lost == row.cut == row.passed_by == 0


def test_a_connection_to_an_upstream_gives_up_on_a_machine_that_vanished():
    async def scenario():
        left = asyncio.Event()

        async def serve(reader, writer):
            await reader.read()
            writer.close()
            await writer.wait_closed()
            left.set()

        async with tcp_server(serve) as port:
            loop = asyncio.get_running_loop()
            nobody = lambda _: None  # noqa: E731 - an argument with a name
            transport, _ = await loop.create_connection(lambda: Connection(nobody, nobody), "127.0.0.1", port)
            raw = transport.get_extra_info("socket")
            assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == GONE_AFTER_S * 1000
            transport.close()
            await left.wait()

    asyncio.run(scenario())
