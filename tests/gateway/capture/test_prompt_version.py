"""The version of a prompt: the same for every request that the same prompt makes, another for another prompt."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.capture.prompt_version import prompt_version
from gateway.contexts import Extraction
from gateway.exchange import Request
from monitors.records import Context


def version(messages: list[dict[str, Any]], question: str = "", passages: tuple[str, ...] = ()) -> str | None:
    found = Extraction(question=question, contexts=tuple(Context(text=one) for one in passages), source="patterns")
    request = Request(route="chat_completions", headers={}, body={"messages": messages})
    return prompt_version(request, found, salt="s")


def chat(system: str, user: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def in_system(passages: tuple[str, ...], day: int = 1, rule: str = "Be brief.") -> str | None:
    numbered = "\n\n".join(f"[{n}] {one}" for n, one in enumerate(passages, 1))
    system = f"Today is 2026-11-{day:02d}. {rule}\nUse these passages:\n{numbered}\nAnswer in one sentence."
    return version(chat(system, "How long?"), "How long?", passages)


def test_passages_their_number_and_the_date_do_not_change_it() -> None:
    assert in_system(("One.", "Two.", "Three."), day=1) == in_system(("Four.", "Five."), day=28) is not None


def test_another_instruction_changes_it() -> None:
    assert in_system(("One.",)) != in_system(("One.",), rule="Be verbose.")


def test_the_question_does_not_change_it_and_the_instructions_in_a_user_turn_do() -> None:
    def asked(question: str, rule: str) -> str | None:
        user = f"{rule}\nContext:\nSome passage of text.\n\nQuestion: {question}"
        return version([{"role": "user", "content": user}], question, ("Some passage of text.",))

    assert asked("Why?", "Answer.") == asked("How?", "Answer.") is not None
    assert asked("Why?", "Answer.") != asked("Why?", "Answer politely.")


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": "hello"}], chat("  ", "hello")])
def test_a_chat_without_instructions_has_none(messages: list[dict[str, Any]]) -> None:
    assert version(messages) is None


ROOF = "The roof of the shed carries ninety kilograms of snow, in a cold winter."
DOOR = "The door of the shed opens to the inside, and locks by itself at night."
WALL = "The walls are of larch, and turn grey within two years or three."
PIECES = st.lists(
    st.sampled_from([ROOF, DOOR, WALL, ROOF[:60], ROOF[10:], "Use: ", "\n", "\n\n", " and ", "x", "Why?", "7"]),
    max_size=12,
)


@given(
    PIECES, st.lists(st.sampled_from([ROOF, DOOR, WALL, ROOF[:60], "x", "nowhere in it", ""]), max_size=5), st.randoms()
)
@example([DOOR, "Use: ", "\n", ROOF, "\n\n", DOOR, "\n", "x"], [ROOF, DOOR], Random(1))
@example([ROOF[:60], "\n", ROOF, "\n\n", DOOR, "\n", "7"], [ROOF, DOOR], Random(1))
@example(["Use: ", "\n", ROOF, "\n", WALL, "\n", DOOR, "\n", WALL, "\n", "x"], [ROOF, DOOR, WALL], Random(1))
@example(["Use: ", "\n", ROOF, DOOR, ROOF, "\n", "7"], [ROOF, DOOR, ROOF], Random(1))
def test_the_order_in_which_the_passages_are_known_does_not_change_it(
    pieces: list[str], passages: list[str], random: Random
) -> None:
    """Passages in the order of the text are found faster; in any other each is looked for from the start."""
    user = [{"role": "user", "content": "".join(pieces)}]
    with mock.patch("gateway.capture.prompt_version._in_order", return_value=None):
        expected = version(user, "Why?", tuple(passages))
    assert version(user, "Why?", tuple(passages)) == expected
    assert version(user, "Why?", tuple(random.sample(passages, len(passages)))) == expected
