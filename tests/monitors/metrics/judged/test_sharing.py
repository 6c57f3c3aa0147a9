"""One computation for all who ask at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gaugeway.records import Context, Sample
from monitors.judges import JudgeError
from monitors.metrics.judged.claims import _key
from monitors.metrics.judged.single_flight import DEFAULT_SIZE, SingleFlight


def counting(value="v", *, gate=None, error=None):
    calls = []

    async def compute():
        calls.append(value)
        if gate is not None:
            await gate.wait()
        if error is not None:
            raise error
        return value

    return compute, calls


async def test_those_who_ask_at_once_share_one_computation():
    shared, (compute, calls) = SingleFlight(), counting()
    assert await asyncio.gather(*(shared.get("k", compute) for _ in range(5))) == ["v"] * 5
    assert await shared.get("k", compute) == "v"
    assert calls == ["v"]


async def test_only_the_last_used_are_remembered():
    shared, (compute, calls) = SingleFlight(size=2), counting()
    for key in ("a", "b", "a", "c", "a", "b"):
        await shared.get(key, compute)
    assert len(calls) == 4


def test_what_is_remembered_holds_no_sample():
    big = Sample(id="s", started_at=0.0, question="q" * 1000, response="r" * 1000, contexts=(Context(text="c" * 1000),))
    key = _key(big)
    assert len(repr(key)) < 100
    assert key == _key(replace(big, app="other"))
    for change in ({"id": "t"}, {"question": None}, {"response": "s"}, {"contexts": ()}):
        assert _key(replace(big, **change)) != key
    assert DEFAULT_SIZE < 50


async def test_a_judges_failure_reaches_everybody_and_is_forgotten():
    shared, (compute, calls) = SingleFlight(), counting(error=JudgeError("timeout", "slow"))
    results = await asyncio.gather(*(shared.get("k", compute) for _ in range(3)), return_exceptions=True)
    assert [(one.kind, one.detail) for one in results] == [("timeout", "slow")] * 3
    assert len({id(one) for one in results}) == 3
    fine, _ = counting("fine")
    assert await shared.get("k", fine) == "fine"
    assert len(calls) == 1


async def test_one_who_gives_up_leaves_the_computation_to_the_others():
    gate = asyncio.Event()
    shared, (compute, calls) = SingleFlight(), counting(gate=gate)
    impatient = asyncio.ensure_future(shared.get("k", compute))
    patient = asyncio.ensure_future(shared.get("k", compute))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await patient == "v"
    assert impatient.cancelled()
    assert len(calls) == 1


async def test_the_last_one_to_give_up_ends_the_computation_and_the_next_starts_afresh():
    gate = asyncio.Event()
    shared, (compute, calls) = SingleFlight(), counting(gate=gate)
    only = asyncio.ensure_future(shared.get("k", compute))
    await asyncio.sleep(0.01)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    again = asyncio.ensure_future(shared.get("k", compute))
    await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == 3, "this one, the new waiter and its computation"
    gate.set()
    assert await again == "v"
    assert len(calls) == 2
