"""While an engine is unreachable, one call at a time tries it, after waits that grow."""

import asyncio

import pytest

from gaugeway.storage.engines.failures import Circuit, EngineError


async def test_waits_grow_from_a_tenth_of_a_second_to_five_and_begin_anew_after_a_success():
    now, tries = [100.0], []

    async def ask(circuit):
        async def attempt():
            tries.append(now[0])
            circuit.failed()
            raise EngineError("refused")

        with pytest.raises(EngineError):
            await circuit.run(attempt)

    circuit = Circuit("db", draw=lambda: 1.0, clock=lambda: now[0])
    await ask(circuit)
    for wait in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
        known = len(tries)
        now[0] += wait - 0.01
        await ask(circuit)
        assert len(tries) == known, "too early"
        now[0] += 0.011
        await ask(circuit)
        assert len(tries) == known + 1, wait
    circuit.succeeded()
    await ask(circuit)
    assert tries[-1] == now[0], "a connection that broke is tried at once"
    now[0] += 0.101
    await ask(circuit)
    assert tries[-1] == now[0]


async def test_one_call_at_a_time_tries_and_the_others_learn_from_it():
    circuit = Circuit("db", clock=lambda: 100.0)
    tries = []

    async def attempt():
        tries.append(1)
        await asyncio.sleep(0.01)
        circuit.failed()
        raise EngineError("refused")

    outcomes = await asyncio.gather(*(circuit.run(attempt) for _ in range(20)), return_exceptions=True)
    assert len(tries) == 1
    assert sorted(str(one).partition(";")[0] for one in outcomes) == ["db: unreachable"] * 19 + ["refused"]
