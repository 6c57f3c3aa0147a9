"""What a request demands as output: fields of a schema or of an example, markers, tags, or one of some words.

The names of the fields tell an answer from a title, a grade or search queries in whatever words they are asked for
(`gateway.capture.output_fields`). A passage may hold JSON, too, and words about it. So a demand in a text counts when
the response has its form: what answers a user about such a passage has not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice, pairwise
from typing import Any, Literal, NamedTuple

from gateway.capture import output_fields
from gateway.capture.instructions import Role, is_a_programs
from gaugeway.prompts.notation import json_value

Form = Literal["json", "list", "markers", "tags"]
MAX_RESPONSE = 20_000
"""Characters of a response that is compared with the demand."""
MOST_REMEMBERED = 1_000
"""System messages of which is kept what they demand: `_BEGINNING` and `_END` characters of each."""
_BEGINNING, _END = 2_400, 1_200
"""Characters at either end of a text in which the output may be demanded."""
_MOST_EXAMPLES = 12
_EXAMPLE = 1_500
_BEFORE = 200
"""Characters before an example in which its output is spoken of."""

_KEY = r"[\"'\u201c](?P<key>[^\W\d][\w \-]{0,40})[\"'\u201d]\s*[:\uff1a]"
_BEGIN = re.compile(r"\{\s{0,40}" + _KEY)
_TOKEN = re.compile(_KEY + r"\s{0,10}(?=(?P<value>[^\n]{0,60}))|[{}]")
_NO_PROSE = re.compile(r"\W{0,3}(?:true|false|bool|int|num|float|\d|yes\b|ja\b)", re.IGNORECASE)
_TYPED_NO_PROSE = re.compile(r"\"(?:integer|number|boolean|enum|const)\"")
_MARKER = re.compile(r"`\[\[ ## (\w{1,60}) ## \]\]`")
_TAGS = re.compile(r"<([a-z][\w-]{1,40})>[^<\n]{0,60}</\1>", re.IGNORECASE)
_END_OF_SENTENCE = re.compile(r"[\n.!?\u3002\uff01\uff1f]")
_NAMED = re.compile(r"[`\"'\u201c]([^\W\d][\w-]{1,40})[`\"'\u201d]|\b([a-z]{2,20}(?:_[a-z]{1,20}){1,4})\b")
_WORD = re.compile(r"[\w-]{2,40}")
_UPPER = "A-Z\u00c0-\u00d6\u00d8-\u00de\u0102\u0110\u01a0\u01af\u0391-\u03a9\u0401\u0410-\u042f"
_OPTION = (
    r"(?:[\"'`\u201c\u300c][^\W\d_][\w &/-]{1,29}[\"'`\u201d\u300d]"
    rf"|\b(?!(?:JSON|AND|ONLY)\b)[{_UPPER}][{_UPPER}_]{{2,24}}\b)"
)
_ONE_OPTION = re.compile(_OPTION)
_CHOICE = re.compile(
    rf"{_OPTION}(?:\s{{0,2}}(?:[,/|;\u3001\uff0c]\s{{0,2}}(?:\w{{1,5}}\s)?|\w{{1,5}}\s{{0,2}}){_OPTION}){{1,7}}"
)
_FENCE = re.compile(r"\A```\w*\s*\n(.*?)\n?\s*```\Z", re.DOTALL)
_LEAST_OPTIONS, _LONGEST_OPTION = 2, 40
_FIRST_SIGNS = frozenset("{[<`")
_COLONS = frozenset(":\uff1a")
_FIRST_WIDE = "\u0e00"
"""From Thai on: words are written without blanks, or with endings."""
_EDGES = " \t\r\n.。!\"'`*[]()<>"


class Demand(NamedTuple):
    """What a text demands: the kind of call, and the names that are in a response which meets it."""

    verdict: output_fields.Verdict
    form: Form
    names: frozenset[str] = frozenset()


def by_demand(systems: list[str], user: list[str], response: str) -> str | None:
    """Return what the last user's text, else the system messages, demand if the response has that form.

    The response is looked at first: prose meets none of the demands.
    """
    said = response[:MAX_RESPONSE].rpartition("</think>")[2].strip()
    if said[:1] in _FIRST_SIGNS:
        value = json_in(said)
        demands = [demand for text in user for demand in demands_of(_ends_of(text))]
        demands += [demand for text in reversed(systems) for demand in _remembered(_ends_of(text))]
        for demand in demands:
            if _meets(demand, said, value):
                return demand.verdict.kind
    texts: list[tuple[str, Role]] = [*((text, "user") for text in user), *((text, "system") for text in systems)]
    return next((chosen for text, role in texts if (chosen := _by_choice(text, said, role)) is not None), None)


def demands_of(text: str) -> tuple[Demand, ...]:
    """Return what an instruction demands, apart from a choice of words. Linear time, never raises."""
    found: list[Demand | None] = []
    if "[[ ##" in text and (names := _MARKER.findall(text)):
        found.append(_demand([output_fields.Field(name) for name in names if name != "completed"], "markers"))
    if "{" in text:
        found.extend(_by_examples(text))
    if not any(found) and ("json" in text or "JSON" in text):
        found.extend(_by_sentences(text))
    if "</" in text:
        names = [
            tag[1]
            for tag in islice(_TAGS.finditer(text), output_fields.MOST_FIELDS)
            if speaks_of_output(text, tag.start())
        ]
        found.append(_demand([output_fields.Field(name) for name in names], "tags"))
    return tuple(demand for demand in found if demand is not None)


def _ends_of(text: str) -> str:
    return text if len(text) <= _BEGINNING + _END else text[:_BEGINNING] + text[-_END:]


_remembered = lru_cache(maxsize=MOST_REMEMBERED)(demands_of)


def _by_choice(text: str, said: str, role: Role) -> str | None:
    """Return the kind of a choice between words that are explained, too, if one of them was chosen.

    A label of a known kind at the end, for the model to complete, suffices whatever the response is.
    """
    row = _label_row(text)
    chosen = said.strip(_EDGES).lower() if len(said) <= _LONGEST_OPTION else ""
    if row is None and not chosen:
        return None
    text = _ends_of(text)
    low = text.lower()
    if row is None and low.count(chosen) < _LEAST_OPTIONS:
        return None
    for options in choices_in(text):
        if (row is not None or chosen in options) and all(low.count(option) > 1 for option in options):
            kind = "routing" if row is None else row.kind
            return kind if is_a_programs(text, role) else None
    return None


def choices_in(text: str) -> Iterator[set[str]]:
    """Yield the options, in small letters, of each choice between quoted words, or words in capitals."""
    for found in islice(_CHOICE.finditer(text), _MOST_EXAMPLES):
        options = {option.strip(_EDGES).lower() for option in _ONE_OPTION.findall(found[0])}
        if len(options) >= _LEAST_OPTIONS and options.isdisjoint(output_fields.table().values):
            yield options


def _label_row(text: str) -> output_fields.Row | None:
    """Return the row of the label at the end of a text that the model has to complete: "Category:"."""
    line = text[-_BEFORE:].rstrip(_EDGES).rpartition("\n")[2]
    name = line[:-1].strip(_EDGES)
    if line[-1:] not in _COLONS or len(name) > _LONGEST_OPTION or not name.replace(" ", "").isalpha():
        return None
    row = output_fields.row_of(name)
    return None if row is None or row.kind == "answer" or row.by_response else row


def _meets(demand: Demand, said: str, value: Any) -> bool:
    """Whether a response has the form that was demanded; `value` is what it is as JSON."""
    if demand.form in ("markers", "tags"):
        left, right = ("[[ ## ", " ## ]]") if demand.form == "markers" else ("<", ">")
        return any(said.startswith(f"{left}{name}{right}") for name in demand.names)
    if demand.form == "list":
        return isinstance(value, list) and bool(value) and all(isinstance(entry, str) for entry in value)
    return isinstance(value, dict) and _has_fields(value, demand.names) and not _finishes(demand, value)


def _has_fields(value: dict[str, Any], names: frozenset[str]) -> bool:
    """Whether an object has the demanded fields: models leave some out, or add some that are no answer."""
    if names.issuperset(value):
        return bool(value)
    return names <= value.keys() and not any(map(output_fields.is_answer, value.keys() - names))


def json_in(text: str) -> Any:
    """Return the value of a text that is JSON, fenced or not; None for anything else."""
    text = text.strip()
    if text[:3] == "```" and (fenced := _FENCE.match(text)) is not None:
        text = fenced[1].strip()
    return json_value(text) if text[:1] in ("{", "[") else None


def _demand(fields: list[output_fields.Field], form: Form) -> Demand | None:
    verdict = output_fields.verdict_of(fields)
    return None if verdict is None else Demand(verdict, form, frozenset(field.name for field in fields))


def _by_examples(text: str) -> Iterator[Demand | None]:
    """Yield what each example of a JSON object in a text says."""
    end = 0
    for begin in islice(_BEGIN.finditer(text), _MOST_EXAMPLES):
        if begin.start() >= end and speaks_of_output(text, begin.start()):
            fields, inner, end = _fields_at(text, begin.start())
            found = _demand(fields, "json") or (_demand(inner, "json") if len(fields) == 1 else None)
            yield found and found._replace(names=frozenset(field.name for field in fields))


def _fields_at(text: str, begin: int) -> tuple[list[output_fields.Field], list[output_fields.Field], int]:
    """Return the fields of an object, those one level below, and where it ends; of a JSON schema its properties."""
    outer: list[output_fields.Field] = []
    inner: list[tuple[str, output_fields.Field]] = []
    depth, end = 0, begin
    for token in islice(_TOKEN.finditer(text, begin, begin + _EXAMPLE), 4 * output_fields.MOST_FIELDS):
        end = token.end()
        if token[0] in "{}":
            depth += 1 if token[0] == "{" else -1
            if depth <= 0:
                break
            continue
        value = token["value"]
        field = output_fields.Field(
            token["key"], _NO_PROSE.match(value) is None and _TYPED_NO_PROSE.search(value) is None
        )
        if depth == 1:
            outer.append(field)
        elif depth == 2 and outer:  # noqa: PLR2004 - one below the first
            inner.append((outer[-1].name, field))
    if any(field.name == "properties" for field in outer):
        return [field for parent, field in inner if parent == "properties"], [], end
    return outer, [field for _, field in inner], end


def _by_sentences(text: str) -> Iterator[Demand | None]:
    """Yield what sentences about JSON say: "JSON with the keys `route` and `reason`", "queries as a JSON list"."""
    for sentence in _END_OF_SENTENCE.split(text):
        if "json" not in (low := sentence.lower()) or _cue().search(low) is None:
            continue
        names = [quoted or joined for quoted, joined in _NAMED.findall(sentence)]
        fields = [output_fields.Field(name) for name in names if name.lower() not in output_fields.table().values]
        if fields:
            yield _demand(fields[: output_fields.MOST_FIELDS], "json")
        elif any(word in low for word in output_fields.table().lists):
            words = [output_fields.normal(word) for word in _WORD.findall(low)]
            pairs = [f"{first}_{second}" for first, second in pairwise(words)]
            rows = [row for word in (*pairs, *words) if (row := output_fields.exact_row(word)) is not None]
            if rows and all(row.kind != "answer" and not row.by_response for row in rows):
                yield Demand(output_fields.Verdict(rows[0].kind), "list")


def speaks_of_output(text: str, place: int) -> bool:
    """Whether the words before a place demand output."""
    return _cue().search(text[max(place - _BEFORE, 0) : place].lower()) is not None


def begins_with_a_demand(low: str) -> bool:
    """Whether a sentence in small letters begins with a word that demands output."""
    return _cue().match(low) is not None


@cache
def _cue() -> re.Pattern[str]:
    """Return the words that demand output; in languages without blanks they stand anywhere."""
    spelled = [re.escape(word.replace("_", " ")) for word in output_fields.table().demands]
    apart = "|".join(word for word in spelled if word[0] < _FIRST_WIDE)
    wide = "|".join(word for word in spelled if word[0] >= _FIRST_WIDE)
    return re.compile(rf"\b(?:{apart})\b|{wide}")


def _finishes(demand: Demand, value: dict[str, Any]) -> bool:
    """Whether a step of an agent hands over the answer: an action of this name, or an answer in its input."""
    if not demand.verdict.by_response:
        return False
    names = [*value, *(name for inner in value.values() if isinstance(inner, dict) for name in inner)]
    said = [output_fields.normal(inner) for inner in value.values() if isinstance(inner, str)]
    return any(map(output_fields.is_answer, names)) or not output_fields.table().last_actions.isdisjoint(said)
