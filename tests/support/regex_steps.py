"""Counts the work of regular expressions: the steps of a backtracking matcher, the same on every machine.

`counting()` makes every pattern that is compiled from then on count, so call it before the modules under test are
imported: in a process of its own. Results are the real engine's; a second matcher, which walks the parsed pattern as
the engine does but without its shortcuts, only counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from re import _constants as op  # the engine's own names of what it parsed
from re import _parser as parser
from typing import Any

Test = Callable[[str], bool]
Then = Callable[[int], bool]
Node = Callable[["Run", int, Then], bool]

KNOWN = 500
"""Of so many texts, a pattern's steps are remembered."""
SINGLE = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
CATEGORIES: dict[Any, Test] = {
    op.CATEGORY_DIGIT: str.isdecimal,
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_WORD: lambda one: one.isalnum() or one == "_",
}
NOT = {
    op.CATEGORY_NOT_DIGIT: op.CATEGORY_DIGIT,
    op.CATEGORY_NOT_SPACE: op.CATEGORY_SPACE,
    op.CATEGORY_NOT_WORD: op.CATEGORY_WORD,
}


class Steps:
    """The steps so far."""

    total = 0


class Run:
    """One text that is matched, and the groups found in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.groups: dict[int, tuple[int, int]] = {}


def member(items: Any, fold: bool) -> Test:
    """Return a test for the characters of a parsed set, which remembers its answers."""
    known: dict[str, bool] = {}

    def one_of(character: str) -> bool:
        forms = {character, character.lower(), character.upper()} if fold else {character}
        found = negated = False
        for kind, value in items:
            if kind is op.NEGATE:
                negated = True
            elif kind is op.LITERAL:
                found = found or any(ord(form) == value for form in forms if len(form) == 1)
            elif kind is op.RANGE:
                found = found or any(value[0] <= ord(form) <= value[1] for form in forms if len(form) == 1)
            elif kind is op.CATEGORY:
                test = CATEGORIES.get(value)
                found = found or (test(character) if test else not CATEGORIES[NOT[value]](character))
        return found != negated

    def test(character: str) -> bool:
        if (answer := known.get(character)) is None:
            answer = known[character] = one_of(character)
        return answer

    return test


def single(kind: Any, value: Any, flags: int) -> Test:
    """Return the test of a node that takes one character."""
    fold = bool(flags & re.IGNORECASE)
    if kind is op.ANY:
        return (lambda _: True) if flags & re.DOTALL else (lambda character: character != "\n")
    if kind is op.IN:
        return member(value, fold)
    return member([*([(op.NEGATE, None)] if kind is op.NOT_LITERAL else []), (op.LITERAL, value)], fold)


def sequence(parsed: Any, flags: int) -> Node:
    """Return the matcher of a parsed pattern."""
    nodes = [node(kind, value, flags) for kind, value in parsed]
    tests = [single(kind, value, flags) if kind in SINGLE else None for kind, value in parsed]

    def run_from(number: int, run: Run, at: int, then: Then) -> bool:
        while True:
            Steps.total += 1
            if number == len(nodes):
                return then(at)
            if (test := tests[number]) is None:
                return nodes[number](run, at, partial(run_from, number + 1, run, then=then))
            if at >= len(run.text) or not test(run.text[at]):
                return False
            at += 1
            number += 1

    return lambda run, at, then: run_from(0, run, at, then)


def node(kind: Any, value: Any, flags: int) -> Node:  # noqa: PLR0911 - a case for each kind of node
    """Return the matcher of one node."""
    if kind in SINGLE:
        test = single(kind, value, flags)
        return lambda run, at, then: at < len(run.text) and test(run.text[at]) and then(at + 1)
    if kind is op.BRANCH:
        ways = [sequence(way, flags) for way in value[1]]
        return lambda run, at, then: any(way(run, at, then) for way in ways)
    if kind is op.SUBPATTERN:
        group, on, off, inside = value
        inner = sequence(inside, (flags | on) & ~off)
        return lambda run, at, then: inner(run, at, lambda end: _kept(run, group, at, end) or then(end))
    if kind is op.ATOMIC_GROUP:
        inner = sequence(value, flags)
        return lambda run, at, then: (end := _end(inner, run, at)) is not None and then(end)
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return repeat(kind, *value, flags)
    if kind in (op.ASSERT, op.ASSERT_NOT):
        direction, inside = value
        inner, width = sequence(inside, flags), inside.getwidth()[0] if direction < 0 else 0
        wanted = kind is op.ASSERT
        return lambda run, at, then: (at >= width and _end(inner, run, at - width) is not None) is wanted and then(at)
    if kind is op.GROUPREF:
        return lambda run, at, then: _again(run, value, at, then)
    if kind is op.AT:
        return lambda run, at, then: _at(value, run.text, at, flags) and then(at)
    raise ValueError(f"the counter does not know {kind}")


def _kept(run: Run, group: int | None, start: int, end: int) -> bool:
    if group is not None:
        run.groups[group] = start, end
    return False


def _end(inner: Node, run: Run, at: int) -> int | None:
    ends: list[int] = []
    return ends[-1] if inner(run, at, lambda end: ends.append(end) or True) else None


def _again(run: Run, group: int, at: int, then: Then) -> bool:
    start, end = run.groups.get(group, (0, 0))
    return run.text.startswith(run.text[start:end], at) and then(at + end - start)


def _at(place: Any, text: str, at: int, flags: int) -> bool:
    if place in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
        many = place is op.AT_BEGINNING and flags & re.MULTILINE
        return at == 0 or bool(many and text[at - 1] == "\n")
    if place in (op.AT_END, op.AT_END_STRING):
        last = place is op.AT_END and text[at:] == "\n"
        return at == len(text) or last or bool(place is op.AT_END and flags & re.MULTILINE and text[at] == "\n")
    word = CATEGORIES[op.CATEGORY_WORD]
    edge = (at > 0 and word(text[at - 1])) != (at < len(text) and word(text[at]))
    return edge is (place is op.AT_BOUNDARY)


def repeat(kind: Any, least: int, most: int, inside: Any, flags: int) -> Node:
    """Return the matcher of a repeat; that of one character goes through a loop, as in the engine."""
    if len(inside) == 1 and inside[0][0] in SINGLE:
        return _run_of(kind, least, most, single(*inside[0], flags))
    inner = sequence(inside, flags)

    def more(run: Run, at: int, then: Then, count: int) -> bool:
        Steps.total += 1

        def again() -> bool:
            return count < most and inner(
                run, at, lambda end: (end > at or count < least) and more(run, end, then, count + 1)
            )

        if kind is op.MIN_REPEAT:
            return (count >= least and then(at)) or again()
        return again() or (count >= least and then(at))

    if kind is op.POSSESSIVE_REPEAT:
        return lambda run, at, then: (
            (end := _end(lambda run, at, then: more(run, at, then, 0), run, at)) is not None and then(end)
        )
    return lambda run, at, then: more(run, at, then, 0)


def _run_of(kind: Any, least: int, most: int, test: Test) -> Node:
    def match(run: Run, at: int, then: Then) -> bool:
        text, count, limit = run.text, 0, min(int(most), len(run.text) - at)
        while count < (min(least, limit) if kind is op.MIN_REPEAT else limit) and test(text[at + count]):
            count += 1
        Steps.total += count
        if count < least:
            return False
        if kind is op.POSSESSIVE_REPEAT:
            return then(at + count)
        if kind is op.MAX_REPEAT:
            for taken in range(count, least - 1, -1):
                Steps.total += 1
                if then(at + taken):
                    return True
            return False
        while not then(at + count):
            Steps.total += 1
            if count >= limit or not test(text[at + count]):
                return False
            count += 1
        return True

    return match


class Counted:
    """A compiled pattern whose use counts."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self._pattern = pattern
        self._known: dict[tuple[str, str, int], int] = {}
        parsed = parser.parse(pattern.pattern, pattern.flags)
        self._node = sequence(parsed, parsed.state.flags)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._pattern, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            text = given[1] if name in ("sub", "subn") else given[0]
            start, end = (
                (*given[1:3], *(0, len(text))[len(given[1:3]) :])
                if name not in ("sub", "subn", "split")
                else (0, len(text))
            )
            self._add(name, text[:end], start)
            return found(*given, **named)

        return call

    def _add(self, name: str, text: str, start: int) -> None:
        """Count the steps, or add as many as there were when the same text was read before."""
        key = name, text, start
        before = Steps.total
        if key in self._known:
            Steps.total += self._known[key]
            return
        self._count(name, text, start)
        if len(self._known) >= KNOWN:
            self._known.clear()
        self._known[key] = Steps.total - before

    def _count(self, name: str, text: str, start: int) -> None:
        run = Run(text)
        if name in ("match", "fullmatch"):
            whole = name == "fullmatch"
            self._node(run, start, lambda end: not whole or end == len(text))
            return
        while start <= len(text):
            match = self._pattern.search(text, start)
            for at in range(start, (match.start() if match else len(text)) + 1):
                self._node(run, at, lambda _: True)
            if match is None or name == "search":
                return
            start = max(match.end(), match.start() + 1)


def counting() -> None:
    """Make every pattern that is compiled from now on count."""
    real = re._compile  # type: ignore[attr-defined]  # noqa: SLF001 - both `re.compile` and `re.search` go through it
    known: dict[Any, Counted] = {}

    def compiled(pattern: Any, flags: Any) -> Any:
        if isinstance(pattern, Counted):
            return pattern
        if not isinstance(pattern, str):
            return real(pattern, flags)
        if (pattern, flags) not in known:
            known[pattern, flags] = Counted(real(pattern, flags))
        return known[pattern, flags]

    re._compile = compiled  # type: ignore[attr-defined]  # noqa: SLF001
