"""Samples made in a process of their own: the same ones, whatever happens to that process."""

import asyncio
import gc
import io
import itertools
import json
import os
import signal
import sys
import time
import tracemalloc
from pathlib import Path

import httpx
import msgspec
import pytest

from gateway.capture.factory import capture_of
from gateway.config import Capture
from gateway.handoff.sampler_client import SamplerClient, SamplerClientError
from gateway.handoff.sampler_process import Answer, Setup, main, uncollected
from gaugeway.exchange import Explicit, Recording, Trace
from gaugeway.processes.worker_metrics import framed
from gaugeway.records import Context, Sample
from tests.support.llm_server import LLMServer, Reply
from tests.support.processes import children
from tests.support.product import product

ANSWER = {"id": "c", "choices": [{"message": {"content": "Two, says ada@example.com."}, "finish_reason": "stop"}]}


def recording(index=0, **fields):
    body = {"model": "m", "messages": [{"role": "user", "content": f"How many moons? {index}"}]}
    return Recording(
        id=f"{index:032x}",
        started_at=100.0 + index,
        method="POST",
        path="/v1/chat/completions",
        route="chat_completions",
        request_headers=[(b"content-type", b"application/json"), (b"x", b"\xff")],
        request_body=fields.pop("request_body", json.dumps(body).encode()),
        status=200,
        response_headers=[(b"content-type", b"application/json")],
        chunks=[json.dumps(ANSWER).encode()],
        explicit=Explicit(
            app="shop", contexts=(Context(text="Mars has two moons.", id="1", score=0.5),), tags={"v": "7"}
        ),
        trace=Trace("a" * 32, "b" * 16),
        tags={"upstream": "main"},
        first_chunk_s=0.1,
        **fields,
    )


SETTINGS = Capture(redact=("email",))


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - neither a process nor a log has an event to wait for
            await asyncio.sleep(0.01)


async def started_beside(before):
    """The process that was started since."""
    await until(lambda: set(children(os.getpid())) - before)
    (found,) = set(children(os.getpid())) - before
    return found


async def samples(client, recordings):
    """The sample of each recording, or the name of the exception."""
    return [result.sample or result.error for result in await client.capture(recordings)]


def run(scenario, settings=SETTINGS):
    async def main():
        offload = SamplerClient(settings, "key")
        try:
            return await scenario(offload)
        finally:
            await offload.aclose()

    return asyncio.run(main())


def test_the_other_process_makes_the_same_samples():
    here = capture_of(SETTINGS, "key")
    some = [recording(index) for index in range(20)]
    there = run(lambda offload: samples(offload, some))
    assert there == [here.make(here.read(one)) for one in some]
    assert there[0].question == "How many moons? 0"
    assert "example.com" not in there[0].response


def test_one_that_cannot_be_read_is_named_and_the_others_are_made():
    made = run(lambda offload: samples(offload, [recording(0), recording(1, request_body=b"[1]"), recording(2)]))
    assert [type(one) for one in made] == [Sample, str, Sample]
    assert made[1] == "ValueError"


def test_new_settings_reach_it():
    async def scenario(offload):
        before = await samples(offload, [recording()])
        offload.use(Capture(redact=()))
        return before + await samples(offload, [recording()])

    redacted, plain = run(scenario)
    assert "example.com" not in redacted.response
    assert "ada@example.com" in plain.response


@pytest.mark.full
def test_when_it_dies_the_caller_is_told_at_once_and_it_is_started_again_later():
    async def scenario(offload):
        before = set(children(os.getpid()))
        await samples(offload, [recording()])
        helper = await started_beside(before)
        os.kill(helper, signal.SIGKILL)
        await until(lambda: helper not in children(os.getpid()))
        started = time.monotonic()
        for _ in range(2):  # once because the pipe is broken, once because it is too soon
            with pytest.raises(SamplerClientError):
                await samples(offload, [recording()])
        assert time.monotonic() - started < 1.0
        await asyncio.sleep(1.1)
        return await samples(offload, [recording()])

    assert isinstance(run(scenario)[0], Sample)


def test_it_is_started_before_the_first_batch_which_it_serves():
    async def scenario(offload):
        before = set(children(os.getpid()))
        offload.start()
        early = await started_beside(before)
        return early, await samples(offload, [recording()]), await started_beside(before)

    early, (sample,), late = run(scenario)
    assert early == late
    assert isinstance(sample, Sample)


def test_settings_that_come_between_the_start_and_the_first_batch_are_those_of_the_batch():
    async def scenario(offload):
        before = set(children(os.getpid()))
        offload.start()
        await started_beside(before)
        offload.use(Capture(redact=()))
        return await samples(offload, [recording()])

    assert "ada@example.com" in run(scenario)[0].response


def test_a_batch_that_comes_while_it_starts_does_not_start_another():
    async def scenario(offload):
        offload.start()
        before = set(children(os.getpid()))
        made = await samples(offload, [recording()])
        return made, set(children(os.getpid())) - before

    made, started = run(scenario)
    assert isinstance(made[0], Sample)
    assert len(started) == 1


def test_it_is_not_started_early_when_nothing_is_captured():
    async def scenario(offload):
        before = set(children(os.getpid()))
        offload.start()
        await asyncio.sleep(0.3)
        return set(children(os.getpid())) - before

    assert run(scenario, Capture(rate=0.0)) == set()


def test_it_can_be_closed_at_once():
    async def scenario(offload):
        before = set(children(os.getpid()))
        offload.start()
        await offload.aclose()
        return set(children(os.getpid())) - before

    assert run(scenario) == set()


def test_a_failed_early_start_is_logged_and_the_first_batch_tries_again(monkeypatch, caplog):
    async def scenario(offload):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "/nowhere/python")
            offload.start()
            await until(lambda: "the sampler process could not be started" in caplog.text)
        return await samples(offload, [recording()])

    assert isinstance(run(scenario)[0], Sample)


def test_it_ends_with_its_input_wherever_that_breaks_off():
    whole = framed(Setup(SETTINGS, "key")) + framed([recording()])
    for cut in range(0, len(whole), 7):
        sink = io.BytesIO()
        main(io.BytesIO(whole[:cut]), sink)
        assert sink.getvalue() == b""
    sink = io.BytesIO()
    main(io.BytesIO(whole), sink)
    (result,) = msgspec.msgpack.decode(sink.getvalue()[4:], type=Answer).results
    assert result.sample.app == "shop"


def test_it_gives_way_when_it_has_started_and_before_the_first_sample():
    setup, sink, seen = framed(Setup(SETTINGS, "key")), io.BytesIO(), []
    source = io.BytesIO(setup + framed([recording()]))
    main(source, sink, lambda: seen.append((source.tell(), sink.getvalue())))
    assert seen == [(len(setup), b"")]
    assert sink.getvalue()


@pytest.mark.full
def test_capture_goes_on_when_the_process_is_killed(tmp_path):
    config = '[[upstreams]]\nbase_url = "{url}"\n'
    with LLMServer(Reply(content="Two.")) as upstream, product(tmp_path, config.format(url=upstream.url)) as running:

        def ask(index):
            body = {"model": "m", "messages": [{"role": "user", "content": f"Question {index}?"}]}
            assert httpx.post(f"{running.base_url}/chat/completions", json=body).status_code == 200

        def captured(count):
            return lambda: running.value(running.admin, "gaugeway_exchanges_total", outcome="captured") == count

        for index in range(5):
            ask(index)
        running.until(captured(5), 60, what="the first are captured")
        (helper,) = children(running.pid_of("gateway"))
        os.kill(helper, signal.SIGKILL)
        for index in range(5, 10):
            ask(index)
        running.until(captured(10), 60, what="the others are captured as well")
        gateway = running.pid_of("gateway")
        helpers = children(gateway)
        os.kill(gateway, signal.SIGKILL)
        gone = [Path(f"/proc/{pid}") for pid in (gateway, *helpers)]
        running.until(lambda: not any(one.exists() for one in gone), 60, what="no process is left behind")


def test_the_garbage_collector_rests_within_a_batch_only():
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), uncollected():
        1 / 0  # noqa: B018 - it raises
    assert gc.isenabled()


class _Frames:
    """A source of one frame after the other, each made when it is read."""

    def __init__(self, frames):
        self._frames, self._rest = frames, b""

    def read(self, count):
        self._rest = self._rest or next(self._frames, b"")
        found, self._rest = self._rest[:count], self._rest[count:]
        return found


def test_the_garbage_of_batches_is_collected():
    """A recording that cannot be decoded is held by its exception, which is held by itself."""
    setup = framed(Setup(capture=Capture(), key="k"))
    broken = (framed([recording(index, request_body=b"{" + b"x" * 100_000)]) for index in range(500))
    tracemalloc.start()
    try:
        main(_Frames(itertools.chain([setup], broken)), io.BytesIO())
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert gc.isenabled()
