"""The demo's output: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_LINE_EVERY_S = 3.0
_SHOWN_ANSWERS = 3
_CUT = 100


@dataclass(frozen=True, slots=True)
class Wrong:
    """One of the worst answers of an alert."""

    question: str
    response: str
    passage: str
    scores: dict[str, float]


@dataclass(slots=True)
class Progress:
    """State of the demo. Times are Unix seconds."""

    phase: str = "starting"
    started_at: float = field(default_factory=time.time)
    asked: int = 0
    streamed: int = 0
    failed: int = 0
    metrics: list[dict[str, Any]] = field(default_factory=list)
    broken_at: float | None = None
    alert: dict[str, Any] | None = None
    alert_at: float | None = None
    worst: list[Wrong] = field(default_factory=list)

    @property
    def cause(self) -> str:
        """The likely cause given in the alert."""
        return str(self.annotations.get("likely_cause", "unknown"))

    @property
    def annotations(self) -> dict[str, Any]:
        """The alert's annotations; {} before there is one."""
        found = (self.alert or {}).get("annotations")
        return found if isinstance(found, dict) else {}


class View(Protocol):
    """Shows progress."""

    def show(self, progress: Progress) -> None:
        """Show the current state."""

    def say(self, text: str) -> None:
        """Show an event once."""

    def close(self) -> None:
        """Stop showing."""


def view_for(console: Console) -> View:
    """Return the live view for a colour terminal, else plain lines."""
    live = console.is_terminal and not console.is_dumb_terminal and not console.no_color
    return Screen(console) if live else Lines(console)


class Lines:
    """Prints a line every few seconds and one per event."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._next = clock()

    def show(self, progress: Progress) -> None:
        if self._clock() < self._next:
            return
        self._next = self._clock() + _LINE_EVERY_S
        parts = [f"{traffic_text(progress)}", *(score_text(row) for row in progress.metrics)]
        self.say(f"[{progress.phase}] " + " | ".join(parts))

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        """No resources to release."""


class Screen:
    """A view that is redrawn continuously."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, progress: Progress) -> None:
        self._live.update(picture(progress), refresh=True)

    def say(self, text: str) -> None:
        self._live.console.print(Text(text))

    def close(self) -> None:
        self._live.stop()


def picture(progress: Progress) -> RenderableType:
    """Render the whole view."""
    parts: list[RenderableType] = [_phases(progress), Text(traffic_text(progress), style="dim"), _scores(progress)]
    if progress.alert:
        body = Text("\n").join(Text(line) for line in alert_lines(progress))
        parts.append(Panel(body, title="ALERT GaugewayQualityDrop", border_style="red", title_align="left"))
    return Group(*parts)


def traffic_text(progress: Progress) -> str:
    """Describe the traffic counts."""
    seconds = time.time() - progress.started_at
    return (
        f"{seconds:.0f} s, {progress.asked} questions answered through the gateway "
        f"({progress.streamed} streamed, {progress.failed} failed)"
    )


def score_text(row: dict[str, Any]) -> str:
    """Describe one metric's mean, interval and number of scores.

    >>> score_text({"metric": "faithfulness", "mean": 0.953, "ci_low": 0.9, "ci_high": 1.0, "n": 140})
    'faithfulness 0.95 [0.90, 1.00] n=140'
    >>> score_text({"metric": "faithfulness", "mean": None, "n": 40})
    'faithfulness not enough yet n=40'
    """
    return f"{row.get('metric')} {_mean(row)} n={row.get('n')}"


def alert_lines(progress: Progress) -> Iterator[str]:
    """Render the alert: means before and since, cause, onset, worst answers."""
    notes = progress.annotations
    labels = (progress.alert or {}).get("labels") or {}
    yield f"rule {labels.get('rule')}, severity {labels.get('severity')}: {notes.get('summary')}"
    yield f"before {notes.get('mean_before')}  since {notes.get('mean_since')}  interval {notes.get('ci')}"
    yield f"likely cause: {progress.cause}"
    yield f"onset {notes.get('onset')}{_against_truth(progress)}"
    for number, wrong in enumerate(progress.worst[:_SHOWN_ANSWERS], start=1):
        scores = ", ".join(f"{metric} {value:.2f}" for metric, value in sorted(wrong.scores.items()))
        yield f"worst answer {number}: {_cut(wrong.question)}"
        yield f"    said      {_cut(wrong.response)}"
        yield f"    retrieved {_cut(wrong.passage)}"
        yield f"    scores    {scores}"


def _phases(progress: Progress) -> RenderableType:
    text = Text()
    for name in ("starting", "healthy", "broken index", "alert fired"):
        here = name == progress.phase
        text.append(f" {name} ", style="bold reverse" if here else "dim")
        text.append(" ")
    return text


def _scores(progress: Progress) -> RenderableType:
    table = Table(title="Scores of the last seconds, with 95 % confidence sequences", title_justify="left")
    for heading in ("metric", "mean [interval]", "n", "scored", "state"):
        table.add_column(Text(heading))
    for row in progress.metrics:
        state = str(row.get("state"))
        table.add_row(
            str(row.get("metric")),
            _mean(row),
            str(row.get("n")),
            f"{float(row.get('coverage_ratio') or 0.0):.0%}",
            Text(state, style="bold red" if state == "firing" else "yellow" if state == "pending" else ""),
        )
    return table


def _mean(row: dict[str, Any]) -> str:
    if row.get("mean") is None:
        return "not enough yet"
    return f"{row['mean']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"


def _against_truth(progress: Progress) -> str:
    """Compare the onset that the detector found with the moment the index was rebuilt."""
    try:
        onset = datetime.fromisoformat(str(progress.annotations.get("onset"))).timestamp()
    except ValueError:
        return ""
    if progress.broken_at is None:
        return ""
    late = onset - progress.broken_at
    return f" ({abs(late):.1f} s {'after' if late >= 0 else 'before'} the index was in truth rebuilt)"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CUT else line[: _CUT - 1] + "\u2026"
