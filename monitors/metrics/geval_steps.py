"""The steps of a G-Eval: written by the judge once for a criterion, kept under the criterion's hash."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path

import msgspec

from monitors.judges import Judge, JudgeError
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import GEvalSteps
from monitors.metrics.judged.single_flight import SingleFlight
from monitors.metrics.judged.texts import Part

_ASKED = 2


class Criterion(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be scored, from which texts, on which scale. `rubric`: a score, or a range "1-2" -> its meaning."""

    text: str
    texts: tuple[Part, ...]
    scale: tuple[int, int]
    rubric: dict[str, str]

    @property
    def scores(self) -> range:
        """The valid scores."""
        return range(self.scale[0], self.scale[1] + 1)


class Steps:
    """The steps for one criterion; with a directory they outlive the process, so that scores stay comparable."""

    def __init__(self, judge: Judge, criterion: Criterion, directory: Path | None) -> None:
        self._judge = judge
        self._criterion = criterion
        self._template = prompting.load("geval_steps")
        self.version = self._template.version
        self._key = sha256(msgspec.json.encode((criterion, self.version, judge.model))).hexdigest()[:16]
        self._file = None if directory is None else directory / f"{self._key}.json"
        self._shared: SingleFlight[tuple[str, ...]] = SingleFlight(size=1)

    async def get(self) -> tuple[str, ...]:
        """The steps, from memory, from the directory, or from the judge. Raises JudgeError."""
        return await self._shared.get(self._key, self._find)

    async def _find(self) -> tuple[str, ...]:
        if (kept := await asyncio.to_thread(self._read)) is not None:
            return kept
        steps = await self._ask()
        await asyncio.to_thread(self._write, steps)
        return steps

    async def _ask(self) -> tuple[str, ...]:
        criterion = self._criterion
        rubric = "\n".join(f"{scores}: {meaning}" for scores, meaning in criterion.rubric.items())
        data = [
            Datum("criterion", criterion.text),
            Datum("texts", ", ".join(criterion.texts)),
            Datum("scale", f"{criterion.scale[0]} to {criterion.scale[1]}"),
            *([Datum("rubric", rubric)] if rubric else []),
        ]
        for _ in range(_ASKED):
            answer = await self._judge.ask(self._template.fill(data), GEvalSteps)
            if steps := tuple(step.strip() for step in answer.steps if step.strip()):
                return steps
        raise JudgeError("unreadable", "no steps for the criterion, asked twice")

    def _read(self) -> tuple[str, ...] | None:
        if self._file is None or not self._file.is_file():
            return None
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=GEvalSteps)
        except (OSError, msgspec.DecodeError):  # they are written anew
            return None
        return tuple(kept.steps) or None

    def _write(self, steps: tuple[str, ...]) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(GEvalSteps(list(steps))))
        fresh.replace(self._file)
