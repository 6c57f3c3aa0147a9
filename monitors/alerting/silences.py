"""Silences: for a time, alerts whose labels match are told to nobody. Pure: times and labels in, answers out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import regex

Label: TypeAlias = Literal["alertname", "app", "metric", "rule", "severity", "slice"]
Operator: TypeAlias = Literal["=", "!=", "=~", "!~"]
MAX_VALUE = 500
MATCH_S = 0.05
"""How long one look may take; a pattern can be written so that it takes for ever."""
MAX_KNOWN = 10_000
"""Pairs of a pattern and a value of which it is remembered whether they match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One condition on a label; a label that an alert does not have is empty. Patterns match the whole value.

    >>> Matcher(name="app", op="=~", value="shop|bank").matches({"app": "bank"})
    True
    >>> Matcher(name="slice", op="!=", value="").matches({"app": "bank"})
    False
    """

    name: Label
    op: Operator
    value: str

    def problem(self) -> str | None:
        """What is wrong with it, if anything."""
        if len(self.value) > MAX_VALUE:
            return f"longer than {MAX_VALUE} characters"
        if self.op in ("=~", "!~"):
            try:
                regex.compile(self.value)
            except regex.error as error:
                return f"not a regular expression: {error}"
        return None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert with these labels meets the condition; a pattern that takes too long meets nothing."""
        value = labels.get(self.name, "")
        if self.op in ("=", "!="):
            return (value == self.value) == (self.op == "=")
        found = _found(self.value, value)
        # An alert that is told in spite of a silence does less harm than one that is not.
        return False if found is None else found == (self.op == "=~")


@lru_cache(MAX_KNOWN)
def _found(pattern: str, value: str) -> bool | None:
    """Whether the pattern matches all of the value, None if that takes too long; tried once, on the loop."""
    try:
        return regex.fullmatch(pattern, value, timeout=MATCH_S) is not None
    except TimeoutError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """All `matchers` together, from `starts` until `ends` (Unix seconds), by whom and why."""

    id: str
    matchers: tuple[Matcher, ...]
    starts: float
    ends: float
    by: str
    comment: str = ""

    def problems(self, now: float) -> list[str]:
        """What is wrong with it as a new one, each with the field it is about."""
        found = [
            f"matchers[{index}].value: {problem}"
            for index, matcher in enumerate(self.matchers)
            if (problem := matcher.problem()) is not None
        ]
        if not self.matchers:
            found.append("matchers: a silence needs at least one")
        elif not found and all(matcher.matches({}) for matcher in self.matchers):
            found.append("matchers: at least one must not match an empty value, or this silences everything")
        if self.ends <= max(now, self.starts):
            found.append("ends: must be in the future, and after starts")
        if not self.by.strip():
            found.append("by: say who")
        return found

    def state(self, now: float) -> Literal["pending", "active", "expired"]:
        """Whether it is yet to come, at work, or over."""
        return "expired" if now >= self.ends else "active" if now >= self.starts else "pending"

    def mutes(self, labels: Mapping[str, str], now: float) -> bool:
        """Whether an alert with these labels is silenced now."""
        return self.state(now) == "active" and all(matcher.matches(labels) for matcher in self.matchers)
