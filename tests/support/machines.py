"""Running a hypothesis state machine: a few sequences in the suite, new ones for as long as asked elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

MINUTES = float(os.environ.get("GAUGEWAY_MACHINE_MINUTES", "0"))  # noqa: TID251 - a test's own switch
_SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), stateful_step_count=40)


@dataclass
class Tally:
    """What was tried, for who runs it for long."""

    sequences: int = 0
    operations: int = 0


tally = Tally()


def run_machine(machine: Callable[[], RuleBasedStateMachine], *, examples: int) -> None:
    """Run this many sequences, always the same ones; with GAUGEWAY_MACHINE_MINUTES new ones until the time is over."""
    if not MINUTES:
        run_state_machine_as_test(machine, settings=settings(_SETTINGS, max_examples=examples, derandomize=True))
        return
    deadline = time.monotonic() + MINUTES * 60
    try:
        while time.monotonic() < deadline:
            fresh = settings(_SETTINGS, max_examples=20, derandomize=False, database=None)
            run_state_machine_as_test(machine, settings=fresh)
    finally:
        print(f"\ntried: {tally.sequences:,} sequences, {tally.operations:,} operations")  # noqa: T201 - the figure asked for
