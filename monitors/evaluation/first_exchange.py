"""One log line about the first scored exchange: what was captured, how, and its scores or why there are none."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from monitors.records import Evaluation, Failed, Sample, Score, Skipped

_log = logging.getLogger("gaugeway")
_HINT = "see 'Tell Gaugeway the contexts' in the documentation"


class FirstExchange:
    """Logs the first exchange that it sees, once; `page_url` is the address of the operator's page."""

    def __init__(self, page_url: str) -> None:
        self._page_url = page_url
        self._logged = False

    def scored(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Log the exchange if it is the first."""
        if not self._logged and evaluations:
            self._logged = True
            _log.info("first exchange: %s; %s/exchanges/%s", described(sample, evaluations), self._page_url, sample.id)


def described(sample: Sample, evaluations: Sequence[Evaluation]) -> str:
    """Describe an exchange without its content.

    Says which extractor found how many passages, the score of each metric, and why others have none.
    """
    count = len(sample.contexts)
    if count:
        found = f"{count} passage{'s' if count > 1 else ''} found by '{sample.context_source}'"
    else:
        found = f"no passages found ({_HINT})"
    question = "question found" if sample.question else "no question found"
    scores = [f"{one.metric} {one.outcome.value:.2f}" for one in evaluations if isinstance(one.outcome, Score)]
    without = [f"{one.metric} ({why(one.outcome)})" for one in evaluations if not isinstance(one.outcome, Score)]
    said = [f"app {sample.app}, model {sample.model}, {question}, {found}"]
    said += [f"scores: {', '.join(scores)}"] if scores else []
    said += [f"no score: {', '.join(without)}"] if without else []
    return "; ".join(said)


def why(outcome: Skipped | Failed) -> str:
    """Say in words why a metric has no score."""
    return outcome.reason.replace("_", " ") if isinstance(outcome, Skipped) else f"failed: {outcome.error}"
