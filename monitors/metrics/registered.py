"""The registered metrics: what a name stands for, and what the class behind it declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gaugeway.extensions import load, registered
from gaugeway.signals import RISING

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RANK = re.compile(r"[1-9]\d{0,3}")
_FAMILIES = (":NAME", "@K")
"""Ends of the names under which metrics with a parameter are registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The import string behind a metric's name, and the arguments that the name holds."""

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def resolve(name: str) -> Named | None:
    """Return what `name` stands for; None for an unknown name.

    >>> resolve("precision@5")
    Named(target='monitors.metrics.ranking:PrecisionAtK', arguments={'k': 5})
    >>> resolve("precision@0"), resolve("geval:")
    (None, None)
    """
    targets = registered("metrics")
    stem, colon, rest = name.partition(":")
    if (target := targets.get(f"{stem}:NAME")) is not None:
        return Named(target=target, arguments={"name": rest}) if _NAME.fullmatch(rest) else None
    if colon:
        return Named(target=name)
    stem, _, rank = name.partition("@")
    if _RANK.fullmatch(rank) and (target := targets.get(f"{stem}@K")) is not None:
        return Named(target=target, arguments={"k": int(rank)})
    return None if name.endswith(_FAMILIES) or name not in targets else Named(target=targets[name])


def names() -> list[str]:
    """Return the registered names without a parameter: first the metrics that are on by default, then the others."""
    plain = [name for name in registered("metrics") if not name.endswith(_FAMILIES)]
    return sorted(plain, key=lambda name: (not on_by_default(name), name))


def at_rank(rank: int) -> list[str]:
    """Return the names of the metrics with a rank as parameter at this rank."""
    return sorted(f"{name[:-1]}{rank}" for name in registered("metrics") if name.endswith("@K"))


def known() -> list[str]:
    """Return every name, with a placeholder for the parameter of a family."""
    return [*names(), *sorted(name for name in registered("metrics") if name.endswith(_FAMILIES))]


def unloadable() -> dict[str, str]:
    """Return the registered metrics that cannot be imported here, and why."""
    problems = {}
    for name, target in sorted(registered("metrics").items()):
        try:
            load(target, {})
        except ValueError as error:
            problems[name] = str(error)
    return problems


def declared(name: str, attribute: str) -> Any:
    """Return what the class of a registered metric declares; None if it does not, or is not there.

    >>> declared("hallucination", "lower_is_better"), declared("faithfulness", "lower_is_better")
    (True, None)
    >>> declared("ndcg@10", "measures"), declared("unheard_of", "measures")
    ('retrieval', None)
    """
    named = resolve(name)
    if named is None or named.target == name:
        return None
    try:
        return _attribute(named.target, attribute)
    except ValueError:  # an extension that cannot be imported here
        return None


@cache
def _attribute(target: str, attribute: str) -> Any:
    return getattr(load(target, {}), attribute, None)


def on_by_default(name: str) -> bool:
    """Whether a registered metric runs without being named in the configuration, where its models are configured."""
    return bool(declared(name, "on_by_default"))


def zero_is_best(name: str) -> bool:
    """Whether 0 is the best value of a registered metric or a signal; for names in the store, without the metric."""
    return name in RISING or bool(declared(name, "lower_is_better"))
