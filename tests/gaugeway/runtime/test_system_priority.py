"""Processes that no request waits for give way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaugeway.runtime import system

LOOK = """
import os, sys
from pathlib import Path
from gaugeway.runtime.system import lower_priority
before = os.nice(0)
lower_priority(3, own_session=True)
lower_priority(100_000)
group = Path("/proc/self/autogroup")
print(before, os.nice(0), group.read_text().split()[-1] if group.exists() else "3")
"""


def test_process_and_session_give_way():
    done = subprocess.run(
        [sys.executable, "-c", LOOK], check=True, capture_output=True, text=True, start_new_session=True
    )
    before, after, group = map(int, done.stdout.split())
    assert (before, after, group) == (os.nice(0), 19, 3)


def test_a_system_that_does_not_allow_it_changes_nothing(monkeypatch, tmp_path):
    def refuse(_):
        raise PermissionError

    monkeypatch.setattr(os, "nice", refuse)
    monkeypatch.setattr(system, "_AUTOGROUP", Path(tmp_path) / "none" / "autogroup")
    system.lower_priority(3, own_session=True)


@pytest.mark.parametrize("own_session", [True, False])
def test_only_the_session_of_ones_own_gives_way(monkeypatch, tmp_path, own_session):
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setattr(system, "_AUTOGROUP", tmp_path / "autogroup")
    system.lower_priority(3, own_session=own_session)
    assert (tmp_path / "autogroup").exists() == own_session
