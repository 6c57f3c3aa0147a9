"""Silences: alerts whose labels match are not sent for a time. Pure: no clock, no I/O."""

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
"""Time limit of one match: some patterns backtrack exponentially."""
MAX_KNOWN = 10_000
"""Cached results, by pattern and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One condition on a label. A missing label counts as empty; patterns match the whole value.

    >>> Matcher(name="app", op="=~", value="shop|bank").matches({"app": "bank"})
    True
    >>> Matcher(name="slice", op="!=", value="").matches({"app": "bank"})
    False
    """

    name: Label
    op: Operator
    value: str

    def problem(self) -> str | None:
        """Return what is wrong with the matcher, None if it is valid."""
        if len(self.value) > MAX_VALUE:
            return f"longer than {MAX_VALUE} characters"
        if self.op in ("=~", "!~"):
            try:
                regex.compile(self.value)
            except regex.error as error:
                return f"not a regular expression: {error}"
        return None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an alert with these labels meets the condition; a pattern that times out does not."""
        value = labels.get(self.name, "")
        if self.op in ("=", "!="):
            return (value == self.value) == (self.op == "=")
        found = _fullmatch(self.value, value)
        # On a timeout the alert is sent: a silence that fails is better than a lost alert.
        return False if found is None else found == (self.op == "=~")


@lru_cache(MAX_KNOWN)
def _fullmatch(pattern: str, value: str) -> bool | None:
    """Return whether the pattern matches the whole value, None on a timeout. Runs on the event loop, once per pair."""
    try:
        return regex.fullmatch(pattern, value, timeout=MATCH_S) is not None
    except TimeoutError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Mutes alerts that meet all `matchers`, from `starts` until `ends` (Unix seconds).

    `removed`: someone ended it, before the time that was chosen.
    """

    id: str
    matchers: tuple[Matcher, ...]
    starts: float
    ends: float
    by: str
    comment: str = ""
    removed: bool = False

    def problems(self, now: float) -> list[str]:
        """Return the problems of a new silence, each prefixed with its field."""
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
        """Return the state at Unix time `now`."""
        return "expired" if now >= self.ends else "active" if now >= self.starts else "pending"

    def mutes(self, labels: Mapping[str, str], now: float) -> bool:
        """Return whether the silence mutes an alert with these labels."""
        return self.state(now) == "active" and self.matches(labels)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an alert with these labels meets all conditions, whatever the time."""
        return all(matcher.matches(labels) for matcher in self.matchers)
