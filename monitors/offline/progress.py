"""Terminal output: a progress bar with rate and cost, and tables of the results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from monitors.offline.comparison import Comparison, Floor
from monitors.offline.reports import counted, effective, signed, summary_lines
from monitors.offline.results import Run
from monitors.offline.run import Progress

_COLOURS = {"better": "green", "worse": "red", "cannot tell": "yellow"}


@contextlib.contextmanager
def progress(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Show a progress bar while the block runs, if the console is a terminal."""
    columns = (
        *(TextColumn("evaluating"), BarColumn(), MofNCompleteColumn()),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[spent]}"),
        TextColumn("[red]{task.fields[failed]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, rate="", spent="", failed="")

        def show(now: Progress) -> None:
            elapsed = bar.tasks[0].elapsed or 0.0
            bar.update(
                task,
                total=now.total,
                completed=now.done,
                rate=f"{now.done / elapsed:.1f}/s" if elapsed > 0.0 else "",
                spent=f"{now.usd:.4f} USD",
                failed=f"{now.failed} failed" if now.failed else "",
            )

        yield show


def show_run(console: Console, run: Run) -> None:
    """Print a table of all metrics."""
    alike = ("n_eff", "design effect") if run.clustered else ()
    rows = []
    for summary in run.summary:
        mark = " (0 is best)" if run.measure(summary.metric).lower_is_better else ""
        cells = (
            str(summary.n),
            *(effective(summary) if alike else ()),
            _number(summary.mean),
            f"{_number(summary.low)} to {_number(summary.high)}" if summary.n else "-",
            f"{summary.usd:.4f}",
        )
        rows.append((summary.metric + mark, [cells]))
    show(console, run.source, ("metric", "n", *alike, "mean", "95 % interval", "USD"), rows)
    for summary in run.summary:
        if summary.skipped:
            console.print(f"{escape(summary.metric)}: skipped {_counts(summary.skipped)}", soft_wrap=True)
        if summary.failed:
            console.print(f"[red]{escape(summary.metric)}: failed {_counts(summary.failed)}[/red]", soft_wrap=True)
    again = f", {counted(run.reused, 'evaluation')} reused from earlier runs" if run.reused else ""
    console.print(f"{counted(len(run.rows), 'sample')} in {run.seconds:.1f} s, {run.paid_usd:.4f} USD paid{again}")
    for line in summary_lines(run):
        console.print(escape(line))
    for note in run.notes:
        console.print(f"[dim]note: {escape(note)}[/dim]", soft_wrap=True)


def show_floors(console: Console, floors: Sequence[Floor]) -> None:
    """Print one line per floor."""
    for floor in floors:
        word = "[green]met[/green]" if floor.met else "[red]missed[/red]"
        console.print(f"{word}  {escape(floor.metric)} {floor.limit:g}: {escape(floor.reason)}", soft_wrap=True)


def show_comparison(
    console: Console, comparisons: Sequence[Comparison], against: str, unpaired: tuple[int, int] = (0, 0)
) -> None:
    """Print a table of a comparison."""
    headers = ("metric", "pairs", "before", "after", "change", "95 % interval", "verdict")
    rows = [(comparison.metric, [_compared(comparison)]) for comparison in comparisons]
    show(console, f"Compared with {against}", headers, rows, left=("verdict",))
    for comparison in comparisons:
        if comparison.more:
            console.print(f"{escape(comparison.metric)}: needs about {comparison.more} more samples", soft_wrap=True)
    for comparison in comparisons:
        if comparison.reason:
            console.print(f"[dim]{escape(comparison.metric)}: {escape(comparison.reason)}[/dim]", soft_wrap=True)
    if any(unpaired):
        old = counted(unpaired[0], "sample")
        verb = "is" if unpaired[0] == 1 else "are"
        console.print(f"[dim]{old} {verb} only in the old run, {unpaired[1]} only in the new one[/dim]")


def _compared(comparison: Comparison) -> tuple[str, ...]:
    change = ("-", "-")
    if comparison.difference is not None and comparison.low is not None and comparison.high is not None:
        change = (signed(comparison.difference), f"{signed(comparison.low)} to {signed(comparison.high)}")
    means = _number(comparison.old_mean), _number(comparison.new_mean)
    return str(comparison.pairs), *means, *change, f"[{_COLOURS[comparison.verdict]}]{comparison.verdict}[/]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {escape(reason)}" for reason, count in sorted(counts.items())) or "-"


_GAP = "  "


def show(
    console: Console,
    title: str,
    headers: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Sequence[str]]]],
    *,
    left: Collection[str] = (),
) -> None:
    """Print rows of cells beside the name they belong to; below it, if not all names have one row, or it does not fit.

    The first of `headers` is that of the names, the others are those of the cells, which may have markup. Columns are
    aligned to the right, but for those in `left`.
    """
    first, *others = headers
    heads = [Text(header) for header in others]
    lines = [(name, [[Text.from_markup(cell) for cell in row] for row in some]) for name, some in rows]
    cells = [heads, *(row for _, some in lines for row in some)]
    widths = [max(row[column].cell_len for row in cells) for column in range(len(heads))]
    names = max(Text(name).cell_len for name in (first, *(name for name, _ in rows)))
    total = names + sum(len(_GAP) + width for width in widths)
    beside = total <= console.width and all(len(some) == 1 for _, some in rows)
    if not beside:
        total -= names

    def line(name: str, row: Sequence[Text], style: str = "") -> Text:
        made = Text(name.ljust(names) if beside else "", style=style)
        for header, text, width in zip(others, row, widths, strict=True):
            space = " " * (width - text.cell_len)
            made.append(_GAP if header in left else _GAP + space).append_text(text)
            made.append(space if header in left else "")
        made.rstrip()
        return made

    _print(console, Text(title, style="italic"), Text())
    if not beside:
        _print(console, Text(first, style="bold"))
    _print(console, line(first, heads, "bold"), Text("─" * min(total, console.width)))
    for name, some in lines:
        if not beside:
            _print(console, Text(name))
        _print(console, *(line(name, row) for row in some))
    _print(console, Text())


def _print(console: Console, *lines: Text) -> None:
    for text in lines:
        console.print(text, soft_wrap=True)
