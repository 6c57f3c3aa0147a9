"""The version of a prompt: the same for every request that the same prompt makes, another for another prompt."""

from __future__ import annotations

from typing import Any

import pytest

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
