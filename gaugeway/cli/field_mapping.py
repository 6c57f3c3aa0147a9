"""The option `--map FIELD=NAME`: what the fields of a data set are called in a file."""

from __future__ import annotations

from collections.abc import Iterable

from gaugeway.settings import ConfigError


def parse(given: Iterable[str]) -> dict[str, str]:
    """Return the name in the file by field. Raises ConfigError with every invalid mapping."""
    from monitors.offline.dataset_fields import ALIASES, canonical  # noqa: PLC0415 - `--help` need not load them

    names: dict[str, str] = {}
    problems: list[str] = []
    for text in given:
        field, equals, name = (part.strip() for part in text.partition("="))
        ours = canonical(field)
        if not (field and equals and name):
            problems.append(f"--map: expected FIELD=NAME, for example user_input=query, got {text!r}")
        elif ours not in ALIASES:
            problems.append(f"--map: {field!r} is not a field; the fields are {', '.join(ALIASES)}")
        elif ours in names:
            problems.append(f"--map: {ours!r} is mapped twice")
        elif name in names.values():
            problems.append(f"--map: {name!r} is mapped to two fields")
        else:
            names[ours] = name
    if problems:
        raise ConfigError(problems)
    return names
