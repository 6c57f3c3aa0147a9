"""A trial runner over real stores, and a metric whose scores a test knows."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.settings.shared import Price, PriceTable
from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.trials import Arm, Kept, Trial, Trials
from monitors.judges import SPEND, JudgeError
from monitors.metrics.registry import Catalogue, Enabled
from monitors.trials.runner import Gates, TrialRunner, results_of

CALL_USD = (10 * 1.0 + 5 * 2.0) / 1e6
"""What one answer of `LLMServer` costs at the price of `arm`."""


class Spoken:
    """Scores an answer by the number in it; `usd` is what a judge takes for it. "unscored" fails."""

    def __init__(self, name="spoken", usd=0.0, judge="j"):
        self.name, self.version, self.judge, self._usd = name, "1", judge, usd
        self.scored = Counter()

    async def score(self, sample: Sample) -> Score:
        self.scored[sample.app] += 1
        if (spend := SPEND.get()) is not None:
            spend.usd += self._usd
        if sample.response == "unscored":
            raise JudgeError("unreadable", "no")
        return Score(float(sample.response))


def arm(url, name="candidate", **more):
    given = {"base_url": url, "api_key": "${CANDIDATE}", "price": Price(input=1.0, output=2.0)}
    return Arm(name=name, **given | more)


class Bench:
    """A runner with its stores; `now` is its time."""

    def __init__(self, folder, url, *metrics, preference=None, **how):
        self.trials = Trials(SQLiteDocuments(folder))
        self.store = SQLiteStore(folder / "store.db")
        self.metrics = metrics or (Spoken(),)
        enabled = tuple(Enabled(metric=metric, rate=1.0, threshold=0.5) for metric in self.metrics)
        self.catalogue = Catalogue(enabled=enabled)
        self.shown = []
        self.now, self.held, self.url = 10_000.0, "", url
        gates = Gates(
            self._hold,
            lambda text: f"key of {text}",
            how.pop("redact", lambda sample: sample),
            PriceTable({}),
            self.shown.append,
        )
        self.runner = TrialRunner(
            self.trials,
            self.store,
            self.catalogue,
            gates,
            preference=preference,
            judged_timeout_s=5.0,
            clock=lambda: self.now,
        )

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.runner.aclose()
        await self.store.aclose()

    async def _hold(self):
        return self.held

    async def start(self, name="t", arms=None, **more):
        given = {"app": "shop", "send": "redacted", "primary": "spoken", "usd": 1.0, "judge_usd": 1.0, "parallel": 50}
        given |= {"per_second": 100.0, "until": 1e9, "started_at": self.now, "arms": arms or (arm(self.url),)} | more
        await self.trials.start(Trial(name=name, **given))

    async def add(self, *numbers, response="0.5", name="t", judged=True, body=None, **about):
        """Store exchanges with their live answers, and keep their requests for a trial."""
        for number in numbers:
            given = {"started_at": self.now, "duration_s": 1.0, "app": "shop", "question": f"Why {number}?"} | about
            sample = Sample(id=f"x{number}", response=response, **given)
            metric = self.metrics[0]
            made = Evaluation(
                sample_id=sample.id, metric=metric.name, version="1", judge=metric.judge, outcome=Score(float(response))
            )
            await self.store.add(sample, [made] if judged else [])
            text = body or json.dumps({"messages": [{"role": "user", "content": f"Why {number}?"}]})
            await self.trials.keep([(name, sample.id, Kept(route="chat_completions", body=text))], self.now)

    async def run(self, *, ticks=1, step_s=1.0):
        """Tick, and wait for the calls that began."""
        for _ in range(ticks):
            await self.runner.tick()
            tasks = [task for running in self.runner._running.values() for task in running.tasks.values()]  # noqa: SLF001 - a test waits for its calls
            await asyncio.gather(*tasks, return_exceptions=True)
            self.now += step_s

    async def results(self):
        """The results by arm."""
        trial = (await self.trials.get("t")).trial
        return results_of(trial, await self.trials.answers("t"), self.catalogue)

    async def answers(self, name="t"):
        return await self.trials.answers(name)

    async def states(self, name="t"):
        return dict(Counter(answer.state for answer in await self.answers(name)))
