"""How answers decline, by language: the patterns of `abstention.toml`, which says what each of them is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from gaugeway.data_files import table

_NEVER = "(?!)"
_COMMA = "[,\u3001\u060c]"
_WORD_END = r"(?:\b|(?<=[\u0900-\u097f\u3040-\u9fff\uac00-\ud7a3]))"
_GAP = r"(?:(?!(?:that|which|who|die|welche|qui|que|che|die) )[^\s,]+ ){0,4}?"
_PART = re.compile(r"\{([a-z]+)\}")


class Phrases:
    """The patterns of one language, compiled with their first use: that takes 10 ms."""

    def __init__(self, language: Mapping[str, Any]) -> None:
        self._written = language
        self._lacking: Mapping[str, str] = language.get("lacking", {})

    @cached_property
    def declines(self) -> re.Pattern[str]:
        """Matches a clause that declines; up to two phrases that begin with `before` may stand in front."""
        opening = self.opening.pattern
        openings = f"(?:{opening}[^,\u3001\u060c]{{0,90}}{_COMMA} ?){{0,2}}(?:{opening} (?:that )?)?"
        return re.compile(f"{openings}(?:{self._any_of('declines')})")

    @cached_property
    def opening(self) -> re.Pattern[str]:
        """Matches how a clause may begin before it declines."""
        return re.compile(f"(?:{self._written['before']}){_WORD_END}")

    @cached_property
    def lacking(self) -> re.Pattern[str]:
        """Found in a clause that says what the passages lack."""
        if not self._lacking:
            return re.compile(_NEVER)
        source, unsaid, inside, absent, no_source = (
            self._filled(self._lacking.get(name, _NEVER))
            for name in ("source", "unsaid", "inside", "absent", "no_source")
        )
        gap = self._lacking.get("gap", _GAP)
        return re.compile(
            f"(?:{source}){gap}(?:{unsaid})|(?:{absent}) ?{gap}(?:{inside})|(?:{inside}) ?{gap}(?:{absent})|{no_source}"
        )

    @cached_property
    def joins(self) -> re.Pattern[str]:
        """Matches what goes on with the question behind the comma of such a clause."""
        return re.compile(rf"(?:{self._lacking['joins']})\b" if "joins" in self._lacking else "")

    @cached_property
    def anywhere(self) -> re.Pattern[str]:
        """Found in a clause that declines."""
        return re.compile(self._any_of("anywhere"))

    @cached_property
    def polite(self) -> re.Pattern[str]:
        """Matches a clause that says nothing of its own."""
        return re.compile(self._any_of("polite"))

    @cached_property
    def turns(self) -> re.Pattern[str]:
        """Found between two clauses."""
        return re.compile(self._written["turns"])

    @cached_property
    def _parts(self) -> Mapping[str, str]:
        parts: dict[str, str] = {}
        for name, pattern in self._written.get("parts", {}).items():
            parts[name] = _filled(pattern, parts)
        return parts

    def _filled(self, pattern: str) -> str:
        return _filled(pattern, self._parts)

    def _any_of(self, name: str) -> str:
        """Return the pattern for any of some patterns, one a line."""
        return self._filled("|".join(line.strip() for line in self._written.get(name, _NEVER).splitlines()))


def _filled(pattern: str, parts: Mapping[str, str]) -> str:
    return _PART.sub(lambda part: parts[part[1]], pattern)


PHRASES = {language: Phrases(written) for language, written in table("gaugeway.text", "abstention.toml").items()}
