"""Signals become evaluations of every sample, and what they learned survives a restart."""

import asyncio

from gaugeway.records import Sample, Score
from gaugeway.sampling import MetricSampler
from gaugeway.signals import SIGNALS, VERSION
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.signals import PREFIX, Signals
from monitors.signals.references import SIZE


class States:
    """A state store in memory."""

    def __init__(self):
        self.states = {}

    async def load(self):
        return dict(self.states)

    async def save(self, states):
        self.states |= states


def sample(number=0, **changes):
    facts = {"id": f"{number}", "started_at": float(number), "app": "shop", "response": "Yes.", "duration_s": 1.0}
    return Sample(**(facts | changes))


def evaluated(one, **settings):
    evaluator = Evaluator([], MetricSampler("salt"), signals=Signals(SIGNALS), **settings)
    return {found.metric: found for found in asyncio.run(evaluator.evaluate(one))}


def test_every_sample_gets_its_signals_also_one_that_is_not_judged():
    found = evaluated(sample(skip_reason="truncated_response", rate=0.25))
    assert found["truncated"].outcome == Score(1.0)
    assert found["abstained"].outcome == Score(0.0)
    assert (found["truncated"].version, found["truncated"].rate, found["truncated"].weight) == (VERSION, 0.25, 1.0)


def test_without_signals_nothing_is_added():
    assert asyncio.run(Evaluator([], MetricSampler("salt")).evaluate(sample())) == []


def learn(signals):
    for number in range(SIZE):
        signals.evaluations(sample(number, duration_s=1.0 + number / SIZE), 1.0)


def names(signals, **changes):
    return {one.metric: one.outcome.value for one in signals.evaluations(sample(SIZE, **changes), 1.0)}


async def test_what_was_learned_survives_a_restart_and_is_taken_over_by_a_new_replica():
    store = States()

    first = Signals(SIGNALS, store, "one")
    await first.tick()
    learn(first)
    await first.tick()
    for replica in ("one", "two"):
        again = Signals(SIGNALS, store, replica)
        assert "slow" not in names(again, duration_s=9.0)
        again = Signals(SIGNALS, store, replica)
        await again.tick()
        assert names(again, duration_s=9.0)["slow"] == 1.0


async def test_nothing_is_saved_while_nothing_is_new():
    store = States()

    signals = Signals(SIGNALS, store, "one")
    await signals.tick()
    assert store.states == {}
    learn(signals)
    await signals.tick()
    store.states.clear()
    await signals.tick()
    assert store.states == {}


async def test_a_damaged_state_is_learned_again():
    store = States()
    store.states = {f"{PREFIX}one": b"nonsense", f"{PREFIX}two": b""}

    signals = Signals(SIGNALS, store, "one")
    await signals.tick()
    learn(signals)
    assert names(signals, duration_s=9.0)["slow"] == 1.0


async def test_states_of_replicas_that_are_gone_are_removed():
    store, now = States(), [0.0]

    old = Signals(SIGNALS, store, "old", clock=lambda: now[0])
    await old.tick()
    learn(old)
    await old.tick()
    now[0] = 8 * 86_400.0
    await Signals(SIGNALS, store, "new", clock=lambda: now[0]).tick()
    assert store.states[f"{PREFIX}old"] == b""
