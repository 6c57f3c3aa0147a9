"""The page is told when something changed."""

from __future__ import annotations

import asyncio
import time

from dashboards.web import events
from monitors.analysis.quality import Quality
from tests.support.pages import world


async def names(response, wanted, within_s=60.0):
    """Read events until all `wanted` came."""
    found = set()
    async with asyncio.timeout(within_s):
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                found.add(line.removeprefix("event: "))
            if found >= wanted:
                break
    return found


async def test_a_drop_is_told_to_a_page_that_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LOOK_S", 0.05)

    async with world(tmp_path) as w, w.client.stream("GET", "/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] != "public"
        first = asyncio.create_task(names(response, {"overview", "alerts", "queue"}))  # noqa: TID251 - a test
        await asyncio.sleep(0.2)
        await w.drop()
        w.instruments.queue_depth.set(5)
        assert (await first) == {"overview", "alerts", "queue"}


async def test_means_that_change_at_every_look_are_told_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LOOK_S", 0.02)
    monkeypatch.setattr(events, "OVERVIEW_EVERY_S", 1.0)

    async with world(tmp_path) as w:
        told, begin = [], time.monotonic()
        async with w.client.stream("GET", "/events") as response, asyncio.timeout(60):
            async for line in response.aiter_lines():
                changed = [Quality(app="a", metric="m", n=len(told), n_eff=time.monotonic(), coverage_ratio=1.0)]
                w.plane._quality = changed  # noqa: SLF001 - as it changes with traffic
                w.instruments.queue_depth.set(time.monotonic())
                if line.startswith("event: "):
                    told.append((line, time.monotonic() - begin))
                if sum(line == "event: overview" for line, _ in told) == 3:
                    break
    overview = [at for line, at in told if line == "event: overview"]
    assert overview[2] - overview[1] >= 0.95
    assert overview[1] - overview[0] >= 0.95
    assert sum(line == "event: queue" for line, _ in told) > 6  # the others are told at once


async def test_without_news_there_is_a_sign_of_life_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LOOK_S", 0.01)

    async with world(tmp_path) as w:
        text = ""
        async with w.client.stream("GET", "/events") as response, asyncio.timeout(60):
            async for chunk in response.aiter_text():
                text += chunk
                if "still here" in text:
                    break
    assert "event:" not in text


async def test_a_stream_ends_when_the_process_stops(tmp_path):
    async with world(tmp_path) as w, w.client.stream("GET", "/events") as response, asyncio.timeout(60):
        asyncio.get_running_loop().call_later(0.2, w.site.stop)
        assert b"open" in b"".join([chunk async for chunk in response.aiter_bytes()])


async def test_a_stream_ends_with_its_session(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LOOK_S", 0.05)
    times = [1_800_000_000.0]

    async with world(tmp_path, token="t", clock=lambda: times[0]) as w:
        form = (await w.page("/login")).form("/login")
        await w.post("/login", form | {"token": "t"})
        async with w.client.stream("GET", "/events") as response, asyncio.timeout(60):
            times[0] += 13 * 3600.0
            assert b"open" in b"".join([chunk async for chunk in response.aiter_bytes()])


async def test_pages_that_are_left_make_room_for_others(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LOOK_S", 0.05)
    monkeypatch.setattr(events, "MAX_STREAMS", 2)

    async with world(tmp_path) as w:
        async with w.client.stream("GET", "/events") as one, w.client.stream("GET", "/events") as two:
            reading = one.aiter_lines(), two.aiter_lines()  # a generator that nobody holds would close its stream
            for lines in reading:
                await anext(lines)
            async with w.client.stream("GET", "/events") as three:
                full = three.status_code
        async with asyncio.timeout(60):
            while True:
                async with w.client.stream("GET", "/events") as again:
                    if again.status_code == 200:
                        break
                await asyncio.sleep(0.05)
    assert full == 503


async def test_pages_that_come_at_the_same_moment_are_not_more_than_there_is_room_for(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LOOK_S", 0.05)
    monkeypatch.setattr(events, "MAX_STREAMS", 3)

    async with world(tmp_path) as w:
        # All handlers run before the first stream begins, as they may under load.
        open_streams = set()
        streams = [events._news(w.site, None, open_streams) for _ in range(10)]  # noqa: SLF001 - before any is read
        begun = [await anext(one, None) for one in streams]
        for one in streams:
            await one.aclose()
    assert [one is not None for one in begun] == [True] * 3 + [False] * 7
