"""Reading `gaugeway.toml`: `${ENV_VAR}` and `${file:/path}` in strings, unknown keys as errors.

Every error has its key and a way out.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import types
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from gaugeway.data_files import table
from gaugeway.extensions import reason
from gaugeway.settings.placeholders import MISSING, Live, Lookup, concealed, expand, pack, placeholders_in, unpack

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")
_NO_WORD = re.compile(r"Invalid enum value (?!'[a-z_]{1,16}'\Z).*", re.DOTALL)
"""A mistyped word is worth showing; anything else in its place may be a key."""
_STEP = re.compile(r"\.(\w+)|(\[[^\]]*\])")
_INDEX = re.compile(r"\[\d+\]")
_HIDDEN = "Invalid enum value '***'"
_WRONG: Any = object()
_ONE_LINE = re.compile(
    r"(?:.*_)?(?:key|token|password|username|urls?|proxy|endpoint|host|version|channel|sender|recipients|headers)"
)
"""The names of what becomes a header or an address."""
_IN_HEADER = re.compile(r"api_key|(?:.*_)?headers")
_METRICS_IN_FILES = "PROMETHEUS_MULTIPROC_DIR"
_TRIMMED = re.compile(r"(?:.*_)?(?:key|token|urls?|proxy|endpoint|host|headers|model)")
"""The names of what is never meant to begin or end with a blank."""
_PERCENT, _READABLE = 100.0, 1e12
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class ConfigError(Exception):
    """The configuration cannot be used; `problems` has one line for each thing to mend.

    Values that came from placeholders are concealed, whichever check wrote the line.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = [concealed(problem) for problem in problems]
        super().__init__("\n".join(self.problems))


class Problems:
    """Collects every mistake of a configuration, each line beginning with its key and a colon.

    What follows from an earlier mistake is left out: a line about a key that is already reported, or about a table or a
    key within one that is. `warnings` are about what works, but should be changed.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self._keys: list[str] = []

    def extend(self, lines: Iterable[str]) -> None:
        """Add lines that were found together, of which none follows from another."""
        self._add([line for line in lines if not self.cover(line)])

    def extend_names(self, lines: Iterable[str]) -> None:
        """Add lines about the name of a table: they do not follow from a mistake within it."""
        self._add([line for line in lines if not any(_within(_key_of(line), known) for known in self._keys)])

    def note(self, lines: Iterable[str]) -> None:
        """Add lines about values that were mended: what else is wrong with them does not follow from these lines."""
        self.lines += [line for line in lines if not self.cover(line)]

    def _add(self, lines: list[str]) -> None:
        self.lines += lines
        self._keys += [_key_of(line) for line in lines]

    def cover(self, line: str) -> bool:
        """Whether the mistake in `line` follows from one that was found earlier."""
        key = _key_of(line)
        return any(_within(key, known) or _within(known, key) for known in self._keys)

    def attempt(self, build: Callable[[], R], key: str = "configuration") -> R | None:
        """Return what `build` returns; None, and its problems are added, when that raises.

        What is not a ConfigError becomes one problem of `key`: one mistake must not hide the others.
        """
        try:
            return build()
        except ConfigError as error:
            self.extend(error.problems)
        except Exception as error:  # noqa: BLE001 - classes of the user's own raise anything
            self.extend([f"{key}: {reason(error)}"])
        return None

    def raise_any(self) -> None:
        """Raise ConfigError if there are any."""
        if self.lines:
            raise ConfigError(self.lines)


def read(path: Path | None) -> dict[str, Any]:
    """Read a TOML file (none: an empty configuration) and fill in `${NAME}` and `${file:/path}`.

    The first stands for an environment variable, the second for a file's text without the line break at its end. What
    is filled in is not looked through again. Raises ConfigError when the file cannot be read, is no TOML, or names a
    variable or a file that is not there or empty; no message holds what was filled in.
    """
    problems = Problems()
    raw = read_into(path, problems)
    problems.raise_any()
    return raw


def read_into(path: Path | None, problems: Problems) -> dict[str, Any]:
    """Read as `read` does, but add what cannot be filled in to `problems`. Raises ConfigError for a file as a whole."""
    if path is None:
        return {}
    try:
        text, lookup = _text_of(path)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    return _read_text(text, path, lookup or _live(), problems)


def resolve(path: Path) -> bytes:
    """Return a configuration file with the values its placeholders have now.

    A file of this content is read as the original, and neither the environment nor another file is looked at. Raises
    OSError, and ConfigError for a file as a whole; a placeholder without a value is an error for the caller.
    """
    text, _ = _text_of(path)
    live = _live()
    _read_text(text, path, live, Problems())
    return pack(text, live.found)


def environment() -> Mapping[str, str]:
    """Return this process's environment, for variables with standard names that work without being named in a file."""
    return os.environ  # noqa: TID251 - the configuration's other look at it


def secret_of(placeholder: str) -> str | None:
    """Return what `${NAME}` or `${file:/path}` stands for in this process; None without a value, or for other texts."""
    if placeholders_in(placeholder) != [placeholder]:
        return None
    problems: list[str] = []
    found: str = expand(placeholder, "", _live(), problems)
    return None if problems else found


def text_of(path: Path) -> str:
    """Return a configuration file's text, with its placeholders. Raises OSError, and ConfigError if it is not UTF-8."""
    return _text_of(path)[0]


def _text_of(path: Path) -> tuple[str, Lookup | None]:
    try:
        content, lookup = unpack(path.read_bytes())
        if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise ConfigError([f"{path}: looks like UTF-16; save it as UTF-8"])
        # Editors on Windows begin a file of UTF-8 with a byte order mark, which tomllib does not take.
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"), lookup
    except ValueError as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error


def _live() -> Live:
    return Live(os.environ)  # noqa: TID251 - the configuration's one look at it


def _read_text(text: str, path: Path, lookup: Lookup, problems: Problems) -> dict[str, Any]:
    found: list[str] = []
    try:
        expanded = expand(tomllib.loads(text), "", lookup, found)
    except ValueError as error:  # a number of thousands of digits is no TOMLDecodeError
        raise ConfigError([f"{path}: not TOML: {error}"]) from error
    except RecursionError:
        raise ConfigError([f"{path}: nested too deeply"]) from None
    problems.extend(found)
    return dict(expanded)


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment for a child, with `extra` laid over it.

    Without what makes prometheus_client count in memory-mapped files: on a full disk those end the process (SIGBUS).
    """
    kept = {name: value for name, value in os.environ.items() if name.upper() != _METRICS_IN_FILES}  # noqa: TID251 - passed on
    return {**kept, **extra}


def convert(raw: Mapping[str, Any], into: type[T]) -> T:
    """Turn a raw configuration into `into`. Raises ConfigError naming every unknown key, every header or address that
    cannot be one, and every wrong value.
    """
    problems = Problems()
    converted = convert_into(raw, into, problems)
    problems.raise_any()
    return converted


def convert_into(raw: Mapping[str, Any], into: type[T], problems: Problems) -> T:
    """Turn a raw configuration into `into`; what is wrong is added to `problems` and has its default in the result.

    Raises ConfigError with all problems if nothing can be made of it, for want of a default.
    """
    found: list[str] = []
    mended: list[str] = []
    try:
        usable = _usable(_fit(raw, "", "", found, mended), into, "", found)
    except RecursionError:
        raise ConfigError(["configuration: nested too deeply"]) from None
    problems.note(mended)
    problems.extend(found)
    if usable is _WRONG:
        raise ConfigError(problems.lines)
    try:
        return msgspec.convert(usable, into)
    except msgspec.ValidationError as error:
        problems.extend([_said(error, "configuration", into)])
        raise ConfigError(problems.lines) from error


def plain(kind: Any) -> Any:
    """Return a type without `Annotated` and without None."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [part for part in get_args(kind) if part is not type(None)]
        return plain(kinds[0]) if len(kinds) == 1 else kind
    return kind


def is_struct(kind: Any) -> bool:
    """Whether a type is one of msgspec's structs."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def in_form(pattern: str, form: str) -> msgspec.Meta:
    """Return the constraint that a text matches `pattern`; errors describe it with the words `form`."""
    return msgspec.Meta(pattern=pattern, extra={"form": form})


def explained(error: Exception, kind: Any, *, quotes: bool = True) -> tuple[str, str]:
    """Return where in a value of type `kind` it is wrong, and why, with the values or the form it can have.

    Without `quotes` the value itself is quoted only if it looks like a word.

    >>> def problem(value, kind):
    ...     try:
    ...         msgspec.convert(value, kind)
    ...     except msgspec.ValidationError as error:
    ...         return explained(error, kind)
    >>> problem("a", Literal["b", "c"])
    ('', "Invalid enum value 'a'; expected one of 'b', 'c'")
    >>> problem({"x": ["7"]}, dict[str, list[Annotated[str, in_form("^[a-z]$", "a lower case letter")]]])
    ('[...][0]', 'expected a lower case letter')
    """
    message, _, where = str(error).partition(" - at `$")
    where = where.rstrip("`")
    found = _kind_at(kind, where)
    if not quotes:
        message = _NO_WORD.sub(_HIDDEN, message)
    if message.startswith("Invalid enum value") and (words := list(_words(found))):
        message += f"; expected one of {', '.join(map(repr, words))}"
    if "matching regex" in message and (forms := list(_forms(found))):
        message = f"expected {' or '.join(forms)}"
    return where, message


def _kind_at(kind: Any, where: str) -> Any:
    """Return the type of the value at a path as msgspec writes it: `.name` for a key, `[0]` or `[...]` for an item."""
    for name, item in _STEP.findall(where):
        core = plain(kind)
        if item:
            kind = item_of(core)
        elif is_struct(core):
            names = dict(zip(core.__struct_encode_fields__, core.__struct_fields__, strict=True))
            kind = get_type_hints(core, include_extras=True).get(names.get(name, name))
        else:
            return None
    return kind


def _words(kind: Any) -> Iterator[object]:
    if get_origin(kind) is Literal:
        yield from (word for word in get_args(kind) if word is not None)
        return
    for part in get_args(kind):
        yield from _words(part)


def _forms(kind: Any) -> Iterator[str]:
    for part in get_args(kind):
        if isinstance(part, msgspec.Meta):
            yield from [(part.extra or {})["form"]] if part.extra else []
        else:
            yield from _forms(part)


def item_of(kind: Any) -> Any:
    """Return what a tuple of any length, a list or a dict holds; None for any other type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list or (origin is tuple and arguments[-1] is ...):
        return arguments[0]
    return arguments[1] if origin is dict else None


def _fit(raw: Any, key: str, name: str, found: list[str], mended: list[str]) -> Any:
    """Return `raw` with texts that headers and addresses can carry.

    What was wrong is added to `mended`; where nothing of a text is left, to `found`.
    """
    if isinstance(raw, dict):
        free = name.endswith(("headers", "patterns"))  # there people choose the names, which say nothing then
        return {
            below: _fit(item, f"{key}.{below}".lstrip("."), name if free else below, found, mended)
            for below, item in raw.items()
        }
    if isinstance(raw, list):
        return [_fit(item, f"{key}[{index}]", name, found, mended) for index, item in enumerate(raw)]
    if not isinstance(raw, str):
        return raw
    text, problems = _mended(raw, name)
    if not problems:
        return raw
    (mended if text else found).extend(f"{key}: {problem}" for problem in problems)
    return text or MISSING


def _mended(text: str, name: str) -> tuple[str, list[str]]:
    """Return `text` without what no header or address can carry, and what that was."""
    problems = []
    if _ONE_LINE.fullmatch(name) and _CONTROL.search(text):
        problems.append("has a line break or another control character, which no header or address can carry")
        text = _CONTROL.sub("", text)
    if _IN_HEADER.fullmatch(name) and not text.isascii():
        problems.append("has a character beyond ASCII, which a header cannot carry")
        text = text.encode("ascii", "ignore").decode()
    if _TRIMMED.fullmatch(name) and text != text.strip():
        problems.append("begins or ends with a space")
        text = text.strip()
    return text, problems


def _usable(raw: Any, kind: Any, key: str, found: list[str]) -> Any:
    """Return the part of `raw` that fits `kind`, or _WRONG; errors are added to `found`.

    msgspec stops at the first mistake, hence this walk; single values are msgspec's to judge.
    """
    if is_struct(core := plain(kind)) and isinstance(raw, Mapping):
        return _usable_table(raw, core, key, found)
    item, origin = item_of(core), get_origin(core)
    if item is not None and isinstance(raw, list) and origin is not dict:
        usable = [_usable(value, item, f"{key}[{index}]", found) for index, value in enumerate(raw)]
        return [value for value in usable if value is not _WRONG]
    if item is not None and isinstance(raw, dict) and origin is dict:
        named = {name: _usable(value, item, f"{key}.{name}", found) for name, value in raw.items()}
        return {name: value for name, value in named.items() if value is not _WRONG}
    try:
        msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        found.append(_said(error, key, kind) + _out_of_range(raw, kind))
        return _WRONG
    return raw


def _usable_table(raw: Mapping[str, Any], kind: Any, key: str, found: list[str]) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    known = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    required = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}
    takes_options = getattr(kind, "takes_options", False)
    usable: dict[str, Any] = {}
    for name, value in raw.items():
        where = f"{key}.{name}".lstrip(".")
        if name in known and not (takes_options and name == "options"):
            usable[name] = _usable(value, hints[known[name]], where, found)
        elif (refusal := _refusal(key, name)) is not None:
            found.append(f"{where}: {refusal}")
        elif takes_options:
            usable.setdefault("options", {})[name] = value
        elif kind.__struct_config__.forbid_unknown_fields:
            places = [] if key or isinstance(value, dict | list) else sorted(_tables_with(name, kind))
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            if places:
                hint = f"it belongs in a table: {' or '.join(table for _, table in places)}"
            found.append(f"{where}: unknown key; {hint}")
    found += [
        f"{key or 'configuration'}: Object missing required field `{name}`"
        for name in known
        if name in required - set(raw)
    ]
    usable = {name: value for name, value in usable.items() if value is not _WRONG}
    return usable if required <= set(usable) else _WRONG


def _refusal(key: str, name: str) -> str | None:
    """Return what to do about a key that `removed_keys.toml` names, in the table at `key`."""
    return _refusals().get(_INDEX.sub("", key), {}).get(name)


@cache
def _refusals() -> Mapping[str, Mapping[str, str]]:
    refusals: Mapping[str, Mapping[str, str]] = table("gaugeway.settings", "removed_keys.toml")
    return refusals


def _tables_with(name: str, kind: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the tables below `kind` that have the key `name`: where they are, and their header as TOML spells it."""
    for field, hint in get_type_hints(kind, include_extras=True).items():
        core = plain(hint)
        item = plain(item_of(core))
        table = core if is_struct(core) else item
        if not is_struct(table):
            continue
        named = get_origin(core) is dict
        here = f"{path}{field}{'.NAME' if named else ''}"
        if name in table.__struct_encode_fields__:
            yield here, f"[{here}]" if named or table is core else f"[[{here}]]"
        yield from _tables_with(name, table, f"{here}.")


def _said(error: msgspec.ValidationError, key: str, kind: Any) -> str:
    """Return a line about a value, which is not quoted: it may be a secret that was filled in."""
    where, message = explained(error, kind, quotes=False)
    return f"{key}{where}: {message}"


def _key_of(line: str) -> str:
    return line.partition(": ")[0]


def _within(key: str, other: str) -> bool:
    return key == other or key.startswith((f"{other}.", f"{other}["))


def _out_of_range(value: Any, kind: Any) -> str:
    """Return the end of a line about a number outside its range: the number, which is never a secret, and what it may
    have meant.

    >>> _out_of_range(20, Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]), _out_of_range("20", float)
    (', got 20; 20 % is 0.2', '')
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _READABLE:
        return ""
    metas = [meta for meta in _metas(kind) if meta.ge is not None or meta.gt is not None or meta.le is not None]
    is_share = any(1.0 in (meta.le, meta.lt) for meta in metas) and 1.0 < value <= _PERCENT
    share = f"; {value:g} % is {value / _PERCENT:g}" if is_share else ""
    return f", got {value}{share}" if metas else ""


def _metas(kind: Any) -> Iterator[msgspec.Meta]:
    for argument in get_args(kind):
        if isinstance(argument, msgspec.Meta):
            yield argument
        else:
            yield from _metas(argument)
