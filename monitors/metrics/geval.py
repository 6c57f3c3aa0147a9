"""G-Eval: a criterion of your own, scored by a judge along steps, weighted by how probable each score is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Annotated

import msgspec

from monitors.judges import JudgeError, MinimalJudge, Prompt, adapted
from monitors.metrics.geval_steps import Criterion, Steps
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.items import contexts_of, question_of
from monitors.metrics.judged.prompts import Datum, Template
from monitors.metrics.judged.schemas import GEvalForm
from monitors.metrics.judged.texts import Part, unanswered
from monitors.metrics.scoring import weights
from monitors.records import Sample, Score, Skipped

_ASKED = 2
_MOST_SCORES = 20  # no endpoint shows more alternatives of a token


class GEval:
    """(sum of p(s) x s over the scale's scores s - lowest) / (highest - lowest).

    p(s) is the probability of the score token, from the judge's log-probabilities, over the valid scores. Steps that
    are not given are written by the judge, once for a criterion. Without log-probabilities the score is the mean of
    `samples` answers, which the evidence says; alike answers mean that the judge's temperature is 0, and the mean is
    no better than one of them. A score outside the scale, twice, is a JudgeError.

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
        steps_dir: Path | None = None,
    ) -> None:
        self._criterion = criterion = Criterion(
            text=criteria.strip(), texts=tuple(params), scale=scale, rubric=dict(rubric or {})
        )
        _check(criterion, steps)
        self._llm = judge = adapted(judge)
        self._given = tuple(steps)
        self._steps = Steps(judge, criterion, steps_dir)
        self._samples = samples
        self._token = prompting.load("geval_score")
        self._form = prompting.load("geval_form")
        self.name = f"geval:{name}"
        self.judge = judge.model
        self.lower_is_better = lower_is_better
        told = msgspec.json.encode((criterion, self._given, samples))
        used = [self._token.version, self._form.version, *([] if steps else [self._steps.version])]
        self.version = "-".join(["1", *used, sha256(told).hexdigest()[:8]])

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, *self._criterion.texts)) is not None:
            return skipped
        steps = self._given or await self._steps.get()
        probabilities = await self._scored(self._prompt(self._token, steps, sample))
        return await self._sampled(sample, steps) if probabilities is None else self._weighted(probabilities, steps)

    async def _scored(self, prompt: Prompt) -> dict[int, float] | None:
        """The probability of each score; None without log-probabilities. What is no score is asked for once more."""
        scores = self._criterion.scores
        problem = JudgeError("unreadable")
        for _ in range(_ASKED):
            found = await self._llm.ask_scored(prompt, [str(one) for one in scores])
            if found is None:
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
        for _ in range(_ASKED):
            found = (await self._llm.ask(prompt, GEvalForm)).score
            if found in self._criterion.scores:
                return found
        raise JudgeError(
            "unreadable", f"{found} is no score from {self._criterion.scale[0]} to {self._criterion.scale[1]}"
        )

    def _score(self, mean: float, steps: Sequence[str], how: dict[str, object]) -> Score:
        lowest, highest = self._criterion.scale
        value = min(1.0, max(0.0, (mean - lowest) / (highest - lowest)))
        reason = f"{mean:.2f} on a scale from {lowest} to {highest}, by {how['method']}"
        return Score(value, reason, (how | {"steps": list(steps)},))

    def _prompt(self, template: Template, steps: Sequence[str], sample: Sample) -> Prompt:
        lowest, highest = self._criterion.scale
        rubric = "".join(f"\n- {scores}: {meaning}" for scores, meaning in self._criterion.rubric.items())
        words = {
            "TEXTS": ", ".join(self._criterion.texts),
            "CRITERION": self._criterion.text or "What the steps below say.",
            "STEPS": "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1)),
            "LOWEST": str(lowest),
            "HIGHEST": str(highest),
            "RUBRIC": f" What the scores stand for:\n{rubric}" if rubric else "",
        }
        text = re.sub(rf"\b({'|'.join(words)})\b", lambda match: words[match[1]], template.text)
        return replace(template, text=text).fill(_data(sample, self._criterion.texts))


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
            raise ValueError(f"rubric: {scores!r} is no score, and no range such as '1-2', of the scale")
