"""Puts a trial runner together from what the monitors have."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from gaugeway.redaction import Redactor
from gaugeway.settings.shared import Config
from gaugeway.storage.queues import Queue
from gaugeway.storage.stores import Store
from gaugeway.storage.trials import Trials
from monitors.evaluation.models import JudgeSetup
from monitors.exporters.instruments import Instruments
from monitors.metrics.registry import Catalogue
from monitors.trials.desk import begin, key_of, prices_of
from monitors.trials.preference import Preference
from monitors.trials.runner import Gates, TrialRunner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def open_runner(
    config: Config,
    trials: Trials,
    *,
    store: Store,
    queue: Queue,
    catalogue: Catalogue,
    judging: JudgeSetup | None,
    redactor: Redactor,
    instruments: Instruments,
    judged_timeout_s: float,
) -> TrialRunner:
    """Return the runner of these trials. Nothing is sent while the queue is behind or the judge fails."""
    writer, plain = None if judging is None else judging.writer, frozenset(config.capture.unredacted_apps)
    runner = TrialRunner(
        trials,
        store,
        catalogue,
        Gates(
            _holding(queue, judging, config.queue.target_age_s),
            lambda text: key_of(text, config),
            lambda sample: sample if sample.app in plain else redactor.redact_sample(sample),
            prices_of(config),
            instruments.show_trials,
        ),
        preference=None if writer is None else Preference(writer),
        judged_timeout_s=judged_timeout_s,
    )
    runner.wanted = partial(begin, trials, config.trials, config, catalogue)
    return runner


def _holding(queue: Queue, judging: JudgeSetup | None, behind_s: float) -> Callable[[], Awaitable[str]]:
    async def hold() -> str:
        if judging is not None and judging.breaker.is_open:
            return "judge"
        oldest = (await queue.depth()).oldest_started_at
        return "queue" if oldest is not None and time.time() - oldest > behind_s else ""

    return hold
