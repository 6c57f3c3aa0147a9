"""Number and time formats of the page. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

from monitors.statistics.confidence_sequence import MIN_N_EFF

UNKNOWN = "-"
MIN_N = MIN_N_EFF
"""Effective scores below which no interval is shown."""
_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


_PARTS = {3: "third", 4: "quarter", 12: "twelfth"}
_ORDINALS = ("first", "second", "third")


def number(value: float | None, digits: int = 2) -> str:
    """A number with `digits` decimals.

    >>> number(0.91234), number(None)
    ('0.91', '-')
    """
    return UNKNOWN if value is None else f"{value:z.{digits}f}"


def interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """An interval, "low to high".

    >>> interval(0.88, 0.94), interval(-0.001, 0.03)
    ('0.88 to 0.94', '0.00 to 0.03')
    """
    return UNKNOWN if low is None or high is None else f"{low:z.{digits}f} to {high:z.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A ratio as a percentage.

    >>> percent(0.1234), percent(1.0, 0)
    ('12.3 %', '100 %')
    """
    return UNKNOWN if value is None else f"{100.0 * value:.{digits}f} %"


def part(value: float | None) -> str:
    """A ratio in whole percents; 0 % and 100 % only for exactly 0 and 1.

    >>> part(0.998), part(1.0), part(0.001), part(0.75)
    ('99 %', '100 %', '1 %', '75 %')
    """
    if value is None or value in (0.0, 1.0):
        return percent(value, 0)
    return f"{min(99, max(1, round(100.0 * value)))} %"


def count(value: float | None) -> str:
    """A count with commas between groups of three digits.

    >>> count(1234567.0)
    '1,234,567'
    """
    return UNKNOWN if value is None else f"{value:,.0f}"


def about(value: float) -> str:
    """A count to two digits.

    >>> about(15955), about(530), about(7)
    ('16,000', '530', '7')
    """
    return f"{float(f'{value:.2g}'):,.0f}"


def roughly(seconds: float) -> str:
    """A time span in its largest unit.

    >>> roughly(5400), roughly(200_000), roughly(20)
    ('1 h', '2 d', '20 s')
    """
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size or unit == "s")
    return f"{seconds // size:.0f} {unit}"


def counted(value: float, noun: str) -> str:
    """A count with its noun, which is in the plural unless there is one.

    >>> counted(1, "exchange"), counted(0, "exchange")
    ('1 exchange', '0 exchanges')
    """
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def breakable(name: str) -> Markup:
    """A name that may be broken after its underscores, as those of metrics are where there is little room.

    >>> breakable("answer_relevancy")
    Markup('answer_<wbr>relevancy')
    """
    return Markup("_<wbr>").join(name.split("_"))


def signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign; none if it rounds to 0.

    >>> signed(0.0123), signed(-0.0123), signed(-0.0001)
    ('+0.01', '-0.01', '0.00')
    """
    if value is None:
        return UNKNOWN
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def usd(value: float | None) -> str:
    """An amount in USD; four decimals below 0.10.

    >>> usd(12.5), usd(0.62), usd(0.00123), usd(0.0)
    ('12.50 USD', '0.62 USD', '0.0012 USD', '0.00 USD')
    """
    if value is None:
        return UNKNOWN
    return f"{value:.4f} USD" if 0.0 < abs(value) < 0.1 else f"{value:.2f} USD"  # noqa: PLR2004 - smaller ones need more digits


def duration(seconds: float | None) -> str:
    """A duration in its two largest units.

    >>> duration(5400), duration(90_061), duration(12.4), duration(1.5), duration(0.25)
    ('1 h 30 min', '1 d 1 h', '12 s', '1.5 s', '250 ms')
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 1.0:
        return f"{1000.0 * seconds:.0f} ms"
    if seconds < 10.0:  # noqa: PLR2004 - two digits at least
        return f"{seconds:.1f} s".replace(".0 ", " ")
    left, parts = round(seconds), []
    for size, unit in _UNITS:
        if left >= size:
            parts.append(f"{int(left // size)} {unit}")
            left %= int(size)
        elif parts:
            break
    return " ".join(parts[:2])


def iso(at: float) -> str:
    """A Unix time as ISO 8601 in UTC, to the second.

    >>> iso(1_760_000_000.5)
    '2025-10-09T08:53:20Z'
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(at: float, now: float) -> str:
    """Time relative to `now`.

    >>> ago(100.0, 220.0), ago(220.0, 100.0), ago(99.9, 100.0)
    ('2 min ago', 'in 2 min', 'just now')
    """
    apart = abs(now - at)
    if apart < 1.0:
        return "just now"
    return f"{roughly(apart)} ago" if at <= now else f"in {roughly(apart)}"


def when(moment: float | None, now: float) -> Markup:
    """A `<time>` element: UTC and the time relative to `now`."""
    if moment is None:
        return escape(UNKNOWN)
    return Markup('{} <span class="quiet ago">({})</span>').format(at(moment), ago(moment, now))


def at(moment: float) -> Markup:
    """A `<time>` element in UTC, for a time inside a sentence.

    >>> str(at(1_760_000_000.5))
    '<time datetime="2025-10-09T08:53:20Z">2025-10-09 08:53:20 UTC</time>'
    """
    text = iso(moment)
    shown = text.replace("T", " ").replace("Z", " UTC")
    return Markup('<time datetime="{}">{}</time>').format(text, shown)


def day(moment: float) -> str:
    """A day and month in UTC.

    >>> day(1_760_000_000.5)
    '9 Oct'
    """
    return f"{datetime.fromtimestamp(moment, UTC):%-d %b}"


def weekday(moment: float, now: float) -> Markup:
    """A `<time>` element for a moment of the last days, in UTC; earlier ones have their date.

    >>> str(weekday(1_760_000_000.5, 1_760_000_900.0))
    '<time datetime="2025-10-09T08:53:20Z">Thu 08:53</time>'
    """
    recent = 0.0 <= now - moment < 6 * 86_400.0
    shown = datetime.fromtimestamp(moment, UTC).strftime("%a %H:%M" if recent else "%d %b %H:%M")
    return Markup('<time datetime="{}">{}</time>').format(iso(moment), shown)


def shortened(text: str | None, most: int = 160) -> str:
    """A text on one line, truncated with an ellipsis.

    >>> shortened("How   long? " * 3, 9)
    'How long…'
    """
    words = " ".join((text or "")[: 4 * most].split())
    return words if len(words) <= most else words[: most - 1] + "…"


def by_part(counts: Sequence[int], noun: str) -> str:
    """Say in words when something happened: counts by part of a period, the oldest first.

    >>> by_part([0, 0, 81], "use"), by_part([3, 1, 0], "question"), by_part([0, 0], "use")
    ('81 uses, all in the latest third', '4 questions in 2 of 3 thirds, the most (3) in the first', 'no uses')
    """
    total, most = sum(counts), max(counts, default=0)
    if not total:
        return f"no {noun}s"
    part = _PARTS.get(len(counts), "part")
    at = counts.index(most)
    ordinal = _ORDINALS[at] if at < len(_ORDINALS) else f"{at + 1}th"
    place = "latest" if at == len(counts) - 1 else ordinal
    said = f"{count(total)} {noun}{'' if total == 1 else 's'}"
    if most == total:
        return f"{said}, all in the {place} {part}" if total > 1 else f"{said}, in the {place} {part}"
    filled = sum(n > 0 for n in counts)
    return f"{said} in {filled} of {len(counts)} {part}s, the most ({count(most)}) in the {place}"


_MANY = re.compile(r" \(n [\d,]{3,}\)")
_ARRIVED = re.compile(r" \S+ appeared with the onset \([\d.]+ % of the exchanges since\)\.")
_VALUE = re.compile(r"\b(?:tag:)?(\w+)=(?=\S)")
_PHRASES = (
    (re.compile(r"^sizes of the falls of (.*)$"), r"how far \1 moved"),
    (re.compile(r"^no source that the drop is confined to$"), "no single source stands behind it"),
    (re.compile(r"^questions that recur fell as well$"), "questions that were asked before get worse answers too"),
    (re.compile(r"^questions that recur fell with the source$"), "questions that were asked before got worse with it"),
    (re.compile(r"^a larger fall than harder questions explain$"), "harder questions alone do not explain the fall"),
    (re.compile(r"^share of failed evaluations$"), "how many evaluations failed"),
    (re.compile(r"^version and judge model of the scores$"), "which judge made the scores"),
    (re.compile(r"^both judges on the same exchanges$"), "two judges scored the same answers"),
    (re.compile(r"^scores of exchanges with and without the source (.*)$"), r"scores with and without \1"),
)


def plain_names(text: str, *, arrivals: bool = True) -> str:
    """A sentence about a cause as people say it: "release 42" for "tag:release=42", and numbers of scores when small.

    Without `arrivals` it leaves out which versions came with the onset.

    >>> plain_names("faithfulness fell (n 182). tag:release=42 appeared; model=mini fell (n 12).")
    'faithfulness fell. release 42 appeared; model mini fell (n 12).'
    """
    return _VALUE.sub(r"\1 ", _MANY.sub("", text if arrivals else _ARRIVED.sub("", text)))


def reasons(evidence: Sequence[str]) -> str:
    """What a cause rests on, as the rest of a sentence.

    >>> reasons(["sizes of the falls of a, b", "no source that the drop is confined to"])
    'how far a, b moved; no single source stands behind it'
    """
    said = []
    for name in evidence:
        pattern, words = next(((p, w) for p, w in _PHRASES if p.match(name)), (None, ""))
        said.append(plain_names(name) if pattern is None else pattern.sub(words, name))
    return "; ".join(said)
