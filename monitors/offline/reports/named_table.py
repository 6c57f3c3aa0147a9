"""Tables of the terminal in which the name of a metric is never broken."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.text import Text

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
