"""The demo's output: a live view on a terminal, a table line by line elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from monitors.statistics.confidence_sequence import MIN_N_EFF, confidence_sequence
from monitors.statistics.weighted_mean import hajek

METRIC, CAUSE_METRIC = "faithfulness", "context_relevancy"
"""The metric that the demo breaks, and the one that shows the cause."""
NEWEST = 30
"""Scores in the mean that is shown: so few that it falls while the alert is on its way."""
_ROW_EVERY, _QUIET_S, _STILL_S = 10, 10.0, 60.0
"""A row is printed after so many new scores, after so many seconds with fewer, and after so many without any change."""
_SHOWN_ANSWERS = 3
_CUT = 100


class Wrong(Struct, frozen=True):
    """One of the worst answers of an alert."""

    question: str
    response: str
    passage: str
    scores: dict[str, float]


class Estimated(Struct, frozen=True):
    """The mean of some scores in [0, 1] with its 95 % interval; both None below an effective sample size of 10."""

    n: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, points: Sequence[dict[str, Any]]) -> Estimated:
        """Estimate from evaluations of the API that have a score."""
        if len(points) < MIN_N_EFF:
            return cls(len(points))
        found = hajek([float(point["value"]) for point in points], [float(point["rate"]) for point in points])
        if found.n_eff < MIN_N_EFF:
            return cls(len(points))
        return cls(len(points), found.mean, *confidence_sequence(found))

    def __str__(self) -> str:
        """Describe it.

        >>> str(Estimated(30, 0.953, 0.9, 1.0)), str(Estimated(4))
        ('0.95 [0.90, 1.00]', 'not enough yet')
        """
        return "not enough yet" if self.mean is None else f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Scores:
    """The evaluations read so far, by metric, in the order in which the questions were asked."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, str], dict[str, Any]] = {}
        self.broken_at: float | None = None

    def take(self, points: Iterable[dict[str, Any]]) -> None:
        """Add evaluations as `/api/exchanges` returns them; what is known already stays."""
        for point in points:
            self._points.setdefault((point["metric"], point["sample_id"]), point)

    def metrics(self) -> list[str]:
        """Return the names of the metrics."""
        return sorted({metric for metric, _ in self._points})

    def scored(self, metric: str = METRIC) -> list[dict[str, Any]]:
        """Return the evaluations with a score, the oldest question first."""
        points = (point for (name, _), point in self._points.items() if name == metric and point["outcome"] == "score")
        return sorted(points, key=lambda point: float(point["started_at"]))

    def unscored(self, metric: str = METRIC) -> Counter[str]:
        """Count the evaluations without a score by their reason."""
        return Counter(
            f"{point['outcome']}: {point['reason']}"
            for (name, _), point in self._points.items()
            if name == metric and point["outcome"] != "score"
        )

    def since_break(self) -> int:
        """Return how many answers of the broken index have a score."""
        return sum(self._is_broken(point) for point in self.scored())

    def newest(self, metric: str = METRIC) -> Estimated:
        """Estimate the mean of the newest `NEWEST` scores."""
        return Estimated.of(self.scored(metric)[-NEWEST:])

    def baseline(self, metric: str = METRIC) -> Estimated:
        """Estimate the mean of all scores of the healthy index."""
        return Estimated.of([point for point in self.scored(metric) if not self._is_broken(point)])

    def _is_broken(self, point: dict[str, Any]) -> bool:
        return self.broken_at is not None and float(point["started_at"]) >= self.broken_at


@dataclass(slots=True)
class Progress:
    """State of the demo. Times are Unix seconds.

    `waiting` answers were not scored at the last reading. `alert` is the latest notification of the alert, `described`
    the alert as the API describes it, which was seen `alert_after_s` seconds and `alert_after`
    scores after the index broke.
    """

    phase: str = "starting"
    started_at: float = field(default_factory=time.time)
    asked: int = 0
    streamed: int = 0
    failed: int = 0
    waiting: int = 0
    scores: Scores = field(default_factory=Scores)
    alert: dict[str, Any] | None = None
    alert_after: int = 0
    alert_after_s: float = 0.0
    described: dict[str, Any] = field(default_factory=dict)
    worst: list[Wrong] = field(default_factory=list)

    @property
    def cause(self) -> str:
        """The likely cause, "unknown" until one is found."""
        return str(self.described.get("likely_cause") or "unknown")

    @property
    def summary(self) -> str:
        """The alert's headline as it was notified; "" before there is one."""
        return str(((self.alert or {}).get("annotations") or {}).get("summary") or "")


class Rows:
    """Decides when a row is due: after every few scores, and now and then while none arrive."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at, self._scored = clock(), 0
        self._shown = (0, 0, 0)

    def due(self, progress: Progress) -> bool:
        """Return whether to print a row now; the next one is then due later."""
        scored = len(progress.scores.scored())
        counts = (progress.asked, progress.waiting, scored)
        quiet_s = _QUIET_S if counts != self._shown else _STILL_S
        if scored - self._scored < _ROW_EVERY and self._clock() - self._at < quiet_s:
            return False
        self._at, self._scored, self._shown = self._clock(), scored, counts
        return True


class View:
    """Prints a table, row by row; on a colour terminal above a picture that is redrawn continuously."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows = Rows()
        live = console.is_terminal and not console.is_dumb_terminal and not console.no_color
        self.picture = Live(console=console, auto_refresh=False, transient=True) if live else None
        if self.picture is not None:
            self.picture.start()

    def show(self, progress: Progress) -> None:
        """Show the current state."""
        if self._rows.due(progress):
            self.say(row_text(progress))
        if self.picture is not None:
            self.picture.update(picture(progress), refresh=True)

    def say(self, text: str) -> None:
        """Show an event once."""
        self._console.print(Text(text), soft_wrap=self.picture is None)

    def close(self) -> None:
        """Stop showing."""
        if self.picture is not None:
            self.picture.stop()


def picture(progress: Progress) -> RenderableType:
    """Render the whole view."""
    return Group(_phases(progress), Text(traffic_text(progress), style="dim"), _scores(progress))


def traffic_text(progress: Progress) -> str:
    """Describe the traffic counts."""
    seconds = time.time() - progress.started_at
    return (
        f"{seconds:.0f} s, {progress.asked} questions answered through the gateway "
        f"({progress.streamed} streamed, {progress.failed} failed), {progress.waiting} wait to be scored"
    )


_ROW = "{:>5}  {:>8}  {:>7}  {:>6}   {:<26}  {:<26}  {:<28}"


def heading() -> str:
    """Return the heading of the rows."""
    names = f"{METRIC}, newest {NEWEST}", "before the index broke", f"{CAUSE_METRIC}, newest {NEWEST}"
    return _ROW.format("s", "answered", "waiting", "scored", *names).rstrip()


def row_text(progress: Progress) -> str:
    """Describe the state in a row: counts, the newest scores beside those of the healthy index."""
    scores, seconds = progress.scores, f"{time.time() - progress.started_at:.0f}"
    means = map(str, (scores.newest(), scores.baseline(), scores.newest(CAUSE_METRIC)))
    return _ROW.format(seconds, progress.asked, progress.waiting, len(scores.scored()), *means).rstrip()


def alert_lines(progress: Progress) -> Iterator[str]:
    """Render the alert: headline, how long it took, cause, onset, worst answers."""
    labels, scores = (progress.alert or {}).get("labels") or {}, progress.scores
    yield progress.summary
    yield (
        f"rule {labels.get('rule')}, severity {labels.get('severity')}, fired {progress.alert_after_s:.1f} s and "
        f"{progress.alert_after} scored answers after the index broke"
    )
    yield f"newest {NEWEST} scores {scores.newest()}, before the index broke {scores.baseline()}"
    yield f"likely cause: {progress.cause}. {progress.described.get('cause_detail') or ''}".rstrip()
    if (onset := _onset(progress)) is not None:
        yield onset
    for number, wrong in enumerate(progress.worst[:_SHOWN_ANSWERS], start=1):
        values = ", ".join(f"{metric} {value:.2f}" for metric, value in sorted(wrong.scores.items()))
        yield f"worst answer {number}: {_cut(wrong.question)}"
        yield f"    said      {_cut(wrong.response)}"
        yield f"    retrieved {_cut(wrong.passage)}"
        yield f"    scores    {values}"


def _phases(progress: Progress) -> RenderableType:
    text = Text()
    for name in ("starting", "healthy", "broken index", "alert fired"):
        here = name == progress.phase
        text.append(f" {name} ", style="bold reverse" if here else "dim")
        text.append(" ")
    return text


def _scores(progress: Progress) -> RenderableType:
    table = Table(title="Mean scores with 95 % confidence sequences", title_justify="left")
    for name in ("metric", f"newest {NEWEST}", "before the index broke", "n"):
        table.add_column(Text(name))
    for metric in progress.scores.metrics():
        newest, before = progress.scores.newest(metric), progress.scores.baseline(metric)
        fell = newest.high is not None and before.low is not None and newest.high < before.low
        n = str(len(progress.scores.scored(metric)))
        table.add_row(metric, Text(str(newest), style="bold red" if fell else ""), str(before), n)
    return table


def _onset(progress: Progress) -> str | None:
    """Compare the onset that the detector found with the moment the index was rebuilt."""
    onset, broken_at = (progress.described.get("finding") or {}).get("onset"), progress.scores.broken_at
    if onset is None or broken_at is None:
        return None
    late, moment = float(onset) - broken_at, datetime.fromtimestamp(float(onset)).astimezone()
    direction = "after" if late >= 0 else "before"
    return f"onset {moment:%H:%M:%S}, {abs(late):.1f} s {direction} the index was in truth rebuilt"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CUT else line[: _CUT - 1] + "\u2026"
