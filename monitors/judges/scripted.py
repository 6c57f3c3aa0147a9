"""The scripted judge: returns prepared answers, for testing metrics without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from monitors.judges import SPEND, Judge, JudgeError, Prompt
from monitors.judges import structured_output as reading

T = TypeVar("T")


class Scripted(Judge):
    """Returns answers from `answers`: a function of the prompt, or a mapping from the prompt's task to an answer.

    An answer is a dict, a struct, or a text that is parsed like a model's; an exception (such as a JudgeError) is
    raised; a function as a mapping's value is called with the prompt. `asked` holds every prompt. An answer that does
    not fit the answer type raises JudgeError("unreadable"), a task without an answer JudgeError("bad_request").

    >>> import asyncio
    >>> judge = Scripted({"mood": {"happy": True}})
    >>> asyncio.run(judge.ask(Prompt(task="mood", version="1", system="", user=":-)"), dict[str, bool]))
    {'happy': True}
    >>> [prompt.task for prompt in judge.asked]
    ['mood']
    """

    def __init__(self, answers: Callable[[Prompt], Any] | Mapping[str, Any], *, model: str = "scripted") -> None:
        self._answers = answers
        self._model = model
        self.asked: list[Prompt] = []

    @property
    def model(self) -> str:
        return self._model

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        self.asked.append(prompt)
        if (spend := SPEND.get()) is not None:
            spend.calls += 1
        if isinstance(answer := self._answer(prompt), Exception):
            raise answer
        try:
            if isinstance(answer, str):
                return reading.read(answer, answer_type)
            return msgspec.convert(msgspec.to_builtins(answer), answer_type)
        except (msgspec.ValidationError, reading.UnreadableError) as error:
            raise JudgeError("unreadable", str(error)) from error

    def _answer(self, prompt: Prompt) -> Any:
        if not isinstance(self._answers, Mapping):
            return self._answers(prompt)
        if prompt.task not in self._answers:
            return JudgeError("bad_request", f"no answer is scripted for the task {prompt.task!r}")
        answer = self._answers[prompt.task]
        return answer(prompt) if callable(answer) else answer
