"""Ids of exchanges cannot be guessed from others."""

import ast
import os
import random
import re
from pathlib import Path

import pytest

from gateway.proxy.handler import begin
from gateway.proxy.request import exchange_id

ROOT = Path(__file__).parents[3]


def ids(count):
    return [begin("POST", "/v1/chat/completions", []).id for _ in range(count)]


def test_ids_do_not_follow_from_the_state_of_pythons_generator():
    state = random.getstate()
    once = {one[12:] for one in ids(600)}
    random.setstate(state)
    assert not once & {one[12:] for one in ids(600)}
    random.setstate(state)
    begin("POST", "/", [])
    assert random.getstate() == state


def test_ids_keep_their_form_and_the_order_of_time():
    found = [exchange_id(float(second)) for second in range(1000, 2000)]
    assert all(re.fullmatch(r"[0-9a-f]{32}", one) for one in found)
    assert found == sorted(found)
    assert len({one[12:] for one in found}) == 1000


def test_a_forked_process_does_not_repeat_its_parents_ids():
    begin("POST", "/", [])  # some are left unused
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, exchange_id(1.0).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 64).decode() not in {exchange_id(1.0) for _ in range(600)}
    for end in (read, write):
        os.close(end)


@pytest.mark.full
def test_pythons_generator_makes_delays_and_choices_only():
    """What it gives can be calculated from 624 of its numbers, so no id, token or fence may come from it."""
    for path in (
        one for name in ("gaugeway", "gateway", "monitors", "dashboards") for one in (ROOT / name).rglob("*.py")
    ):
        if "demo" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
                assert node.attr == "random", f"{path}:{node.lineno}"
