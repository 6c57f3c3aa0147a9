"""G-Eval: a custom criterion, scored by a judge along steps and weighted by the probability of each score."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Annotated

import msgspec
from msgspec.structs import replace

from gaugeway.records import Sample, Score, Skipped
from monitors.judges import Judge, JudgeError, MinimalJudge, Prompt, adapted
from monitors.metrics.judged import follow_ups
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.follow_ups import FollowUps
from monitors.metrics.judged.prompts import Datum, Part, Template, contexts_of, question_of, unanswered
from monitors.metrics.judged.schemas import GEvalForm, GEvalSteps
from monitors.metrics.judged.single_flight import SingleFlight

_ATTEMPTS = 2
_MOST_SCORES = 20  # no endpoint shows more alternatives of a token


class GEval:
    """(sum of p(s) x s over the scale's scores s - lowest) / (highest - lowest).

    p(s) is the probability of the score token, from the judge's log-probabilities, over the valid scores. Steps that
    are not given are written by the judge, once for a criterion. Without log-probabilities the score is the mean of
    `samples` answers, which the evidence says; alike answers mean that the judge's temperature is 0, and the mean is
    no better than one of them. A score outside the scale, twice, is a JudgeError.

    With `history` the judge sees the conversation before a follow-up, if `params` names the question.

    Liu et al.: G-Eval (arXiv 2303.16634). Raises ValueError for a criterion, scale or rubric that cannot be used.
    """

    def __init__(
        self,
        judge: MinimalJudge,
        *,
        name: str,
        criteria: str = "",
        steps: Sequence[str] = (),
        params: Sequence[Part] = ("question", "response"),
        scale: tuple[int, int] = (1, 5),
        rubric: Mapping[str, str] | None = None,
        samples: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5,
        lower_is_better: bool = False,
        history: bool = True,
        steps_dir: Path | None = None,
    ) -> None:
        self.criterion = criterion = Criterion(
            text=criteria.strip(), texts=tuple(params), scale=scale, rubric=dict(rubric or {})
        )
        _check(criterion, steps)
        self._llm = judge = adapted(judge)
        self.given_steps = tuple(steps)
        self._steps = Steps(judge, criterion, steps_dir)
        self._samples = samples
        self._token = prompting.load("geval_score")
        self._form = prompting.load("geval_form")
        self.name = f"geval:{name}"
        self.judge = judge.model
        self.lower_is_better = lower_is_better
        definition = msgspec.json.encode((criterion, self.given_steps, samples))
        used = [self._token.version, self._form.version, *([] if steps else [self._steps.version])]
        self._history = history and "question" in params
        self.version = follow_ups.version(1, *used, sha256(definition).hexdigest()[:8], history=self._history)

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, *self.criterion.texts)) is not None:
            return skipped
        steps = self.given_steps or await self._steps.get()
        probabilities = await self._scored(self._prompt(self._token, steps, sample))
        return await self._sampled(sample, steps) if probabilities is None else self._weighted(probabilities, steps)

    async def _scored(self, prompt: Prompt) -> dict[int, float] | None:
        """Return the probability of each score; None without log-probabilities. Invalid answers get one retry."""
        scores = self.criterion.scores
        problem = JudgeError("unreadable")
        for _ in range(_ATTEMPTS):
            if (found := await self._llm.ask_scored(prompt, [str(score) for score in scores])) is None:
                return None
            try:
                return weights(found, scores)
            except JudgeError as error:
                problem = error
        raise problem

    def _weighted(self, probabilities: Mapping[int, float], steps: Sequence[str]) -> Score:
        mean = sum(score * probability for score, probability in probabilities.items())
        shown = {str(score): probability for score, probability in probabilities.items()}
        return self._score(mean, steps, {"method": "logprobs", "probabilities": shown})

    async def _sampled(self, sample: Sample, steps: Sequence[str]) -> Score:
        asked = [self._one(self._prompt(self._form, steps, sample)) for _ in range(self._samples)]
        scores = []
        for found in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(found, BaseException):
                raise found
            scores.append(found)
        return self._score(fmean(scores), steps, {"method": "sampling", "scores": scores})

    async def _one(self, prompt: Prompt) -> int:
        for _ in range(_ATTEMPTS):
            if (found := (await self._llm.ask(prompt, GEvalForm)).score) in self.criterion.scores:
                return found
        raise JudgeError(
            "unreadable", f"{found} is not a score from {self.criterion.scale[0]} to {self.criterion.scale[1]}"
        )

    def _score(self, mean: float, steps: Sequence[str], how: dict[str, object]) -> Score:
        lowest, highest = self.criterion.scale
        value = min(1.0, max(0.0, (mean - lowest) / (highest - lowest)))
        reason = f"{mean:.2f} on a scale from {lowest} to {highest}, by {how['method']}"
        return Score(value, reason, (how | {"steps": list(steps)},))

    def _prompt(self, template: Template, steps: Sequence[str], sample: Sample) -> Prompt:
        lowest, highest = self.criterion.scale
        rubric = "".join(f"\n- {scores}: {meaning}" for scores, meaning in self.criterion.rubric.items())
        words = {
            "TEXTS": ", ".join(self.criterion.texts),
            "CRITERION": self.criterion.text or "What the steps below say.",
            "STEPS": "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1)),
            "LOWEST": str(lowest),
            "HIGHEST": str(highest),
            "RUBRIC": f" What the scores stand for:\n{rubric}" if rubric else "",
        }
        text = re.sub(rf"\b({'|'.join(words)})\b", lambda match: words[match[1]], template.text)
        seen = sample if self._history else follow_ups.without_history(sample)
        return FollowUps(replace(template, text=text)).fill(seen, _data(sample, self.criterion.texts))


def _data(sample: Sample, texts: Sequence[str]) -> list[Datum]:
    data = question_of(sample) if "question" in texts else []
    if "contexts" in texts:
        data += contexts_of(sample)
    if "reference" in texts:
        data.append(Datum("reference", sample.reference or ""))
    if "response" in texts:
        data.append(Datum("response", sample.response))
    return data


def _check(criterion: Criterion, steps: Sequence[str]) -> None:
    lowest, highest = criterion.scale
    if not criterion.text and not steps:
        raise ValueError("needs criteria, or steps, or both")
    if any(not step.strip() for step in steps):
        raise ValueError("a step is empty")
    if not criterion.texts or len(set(criterion.texts)) < len(criterion.texts):
        raise ValueError("params names each text that the judge sees, once")
    if not (0 <= lowest < highest and highest - lowest < _MOST_SCORES):
        raise ValueError(f"scale is [lowest, highest], from 0 on, with at most {_MOST_SCORES} scores")
    for scores in criterion.rubric:
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", scores)
        if ends is None or not lowest <= int(ends[1]) <= int(ends[2] or ends[1]) <= highest:
            raise ValueError(f"rubric: {scores!r} is neither a score nor a range such as '1-2', of the scale")


_ATTEMPTS = 2


class Criterion(msgspec.Struct, frozen=True, kw_only=True):
    """A criterion, the texts it applies to, and its scale. `rubric` maps a score, or a range "1-2", to its meaning."""

    text: str
    texts: tuple[Part, ...]
    scale: tuple[int, int]
    rubric: dict[str, str]

    @property
    def scores(self) -> range:
        """The valid scores."""
        return range(self.scale[0], self.scale[1] + 1)

    def meaning(self, score: int) -> str:
        """Return what the rubric says of a score; "" where it says nothing."""
        for scores, meaning in self.rubric.items():
            first, _, last = scores.partition("-")
            if int(first) <= score <= int(last or first):
                return meaning
        return ""


class Steps:
    """The evaluation steps of one criterion; stored in a directory, if any, so that scores stay comparable."""

    def __init__(self, judge: Judge, criterion: Criterion, directory: Path | None) -> None:
        self._judge = judge
        self.criterion = criterion
        self._template = prompting.load("geval_steps")
        self.version = self._template.version
        self._key = sha256(msgspec.json.encode((criterion, self.version, judge.model))).hexdigest()[:16]
        self._file = None if directory is None else directory / f"{self._key}.json"
        self._shared: SingleFlight[tuple[str, ...]] = SingleFlight(size=1)

    async def get(self) -> tuple[str, ...]:
        """Return the steps from memory, from the directory, or from the judge. Raises JudgeError."""
        return await self._shared.get(self._key, self._find)

    async def _find(self) -> tuple[str, ...]:
        if (kept := await asyncio.to_thread(self._read)) is not None:
            return kept
        steps = await self._ask()
        await asyncio.to_thread(self._write, steps)
        return steps

    async def _ask(self) -> tuple[str, ...]:
        criterion = self.criterion
        rubric = "\n".join(f"{scores}: {meaning}" for scores, meaning in criterion.rubric.items())
        data = [
            Datum("criterion", criterion.text),
            Datum("texts", ", ".join(criterion.texts)),
            Datum("scale", f"{criterion.scale[0]} to {criterion.scale[1]}"),
            *([Datum("rubric", rubric)] if rubric else []),
        ]
        for _ in range(_ATTEMPTS):
            answer = await self._judge.ask(self._template.fill(data), GEvalSteps)
            if steps := tuple(step.strip() for step in answer.steps if step.strip()):
                return steps
        raise JudgeError("unreadable", "no steps for the criterion, asked twice")

    def _read(self) -> tuple[str, ...] | None:
        if self._file is None or not self._file.is_file():
            return None
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=GEvalSteps)
        except (OSError, msgspec.DecodeError):  # the judge writes them again
            return None
        return tuple(kept.steps) or None

    def _write(self, steps: tuple[str, ...]) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(GEvalSteps(list(steps))))
        fresh.replace(self._file)


_SURE = 0.5


def weights(probabilities: Mapping[str, float], choices: Iterable[int]) -> dict[int, float]:
    """Return the probability of each valid score, normalised to sum 1; white space around a token is ignored.

    Raises JudgeError when less than half of the probability is on valid scores: the judge meant to say something else.

    >>> weights({"4": 0.6, "5": 0.2, " 4": 0.1, "Sure": 0.1}, range(1, 6))
    {4: 0.777..., 5: 0.222...}
    """
    known = {str(choice): choice for choice in choices}
    found: dict[int, float] = {}
    for token, probability in probabilities.items():
        if not (math.isfinite(probability) and 0.0 <= probability <= 1.0 + 1e-6):
            raise JudgeError("unreadable", f"{probability!r} is no probability")
        if (choice := known.get(token.strip())) is not None and probability:
            found[choice] = found.get(choice, 0.0) + probability
    if (total := sum(found.values())) < _SURE:
        said = max(probabilities, key=probabilities.__getitem__, default="")
        raise JudgeError("unreadable", f"{said[:40]!r} is no score from {min(known.values())} to {max(known.values())}")
    return {choice: found[choice] / total for choice in sorted(found)}
