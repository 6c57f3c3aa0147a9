"""Chats with equal turns at the same time are never joined wrongly; where nothing tells them apart, not at all."""

import random
from dataclasses import replace

import pytest

from gaugeway.storage.conversations import before, decide, doubts, keys_of, linked
from tests.gateway.capture.test_intermediate_steps import App

SYSTEM = {"role": "system", "content": "You help the guests of the mill."}
SAID = ["Hello", "When do you open?", "And on Sundays?", "Thanks", "Is there a tour?"]
GIVEN = [
    "Hello! What can I do for you today at the mill?",
    "We open at nine in the morning, and close at five in the afternoon.",
    "On Sundays the mill stays closed.",
    "You are welcome.",
]


def looked_up(lookup, rows):
    return [one for one in rows if lookup.key in set(keys_of(one)) and lookup.since <= one.started_at <= lookup.until]


def places(samples):
    """Decide about one exchange after the other, as the monitors do from their store; return what each continues."""
    rows = {}
    for sample in samples:
        one = linked(sample)
        found = {lookup: looked_up(lookup, rows.values()) for lookup in before(one)}
        place = decide(one, found)
        if place.before is not None and (lookup := doubts(one, rows[place.before])) is not None:
            place = decide(one, {**found, lookup: looked_up(lookup, rows.values())})
        rows[one.id] = replace(one, place=place)
    return {one.id: one.place.before for one in rows.values()}


@pytest.mark.parametrize("trimmed", [None, 3])
@pytest.mark.parametrize("seed", range(12))
def test_chats_that_say_the_same_at_the_same_time(seed, trimmed):
    draw, app = random.Random(seed), App()
    chats = [[] for _ in range(6)]
    owner, last = {}, {}
    joined = 0
    for _ in range(40):
        number = draw.randrange(len(chats))
        chats[number].append({"role": "user", "content": draw.choice(SAID)})
        shown = chats[number] if trimmed is None else chats[number][-trimmed:]
        sample = app([SYSTEM, *shown], draw.choice(GIVEN), after=draw.uniform(0.6, 9.0))
        chats[number].append({"role": "assistant", "content": sample.response})
        owner[sample.id] = number, last.get(number)
        last[number] = sample.id
    for name, earlier in places(app.samples).items():
        if earlier is not None:
            assert earlier == owner[name][1]
            joined += 1
    assert joined >= 3
