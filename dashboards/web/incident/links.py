"""Links from an alert to the answers behind it, in Explore."""

from __future__ import annotations

import math
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from dashboards.web.addresses import address_with
from dashboards.web.format import iso
from gaugeway.records import Alert
from gaugeway.text.topics import NAMELESS, UNLIKE
from monitors.alerting.rule_watch import ALL
from monitors.alerting.slices import OTHER
from monitors.analysis.incident.differences import Cutoff, Trait

_UNNAMED = {UNLIKE: "other questions", NAMELESS: "questions without typical words"}


def topic_words(label: str) -> str:
    """A topic in words.

    >>> topic_words("topic:refund, order"), topic_words("topic:unlike before")
    ('refund, order', 'other questions')
    """
    return _UNNAMED.get(label) or label.removeprefix("topic:")


def trait_fields(trait: Trait) -> dict[str, str]:
    """The filter of Explore that selects a value."""
    if trait.field.startswith("tag:"):
        return {"tag": f"{trait.field.removeprefix('tag:')}={trait.value}"}
    return {trait.field: trait.value}


def alert_fields(alert: Alert, since: float, until: float | None) -> dict[str, str]:
    """The filters of Explore that select an alert's evaluations from `since` to before `until` (None: now)."""
    name, _, value = alert.slice.partition("=")
    fields = {"app": "" if alert.app == ALL else alert.app, "metric": alert.metric, "since": iso(since)}
    if until is not None:
        fields["until"] = iso(until)
    if alert.slice and value != OTHER:
        fields |= trait_fields(Trait(name, value))
    return fields


def bad_fields(cutoff: Cutoff) -> dict[str, str]:
    """The filters that select bad scores.

    Newest first: such a list goes on page after page until all are seen, however many exchanges must be searched.

    >>> bad_fields(Cutoff(value=math.nextafter(0.7, 0.0), flipped=False))
    {'below': '0.7'}
    >>> bad_fields(Cutoff(value=0.85, flipped=False, threshold=False))
    {'most': '0.85'}
    """
    if cutoff.threshold:  # the last value that fails; the metric's threshold itself passes
        passes = math.nextafter(cutoff.value, -math.inf if cutoff.flipped else math.inf)
        return {"above" if cutoff.flipped else "below": repr(min(1.0, max(0.0, passes)))}
    if cutoff.flipped:
        return {"least": repr(max(0.0, cutoff.value))}
    return {"most": repr(min(1.0, cutoff.value))}


def explore(fields: Mapping[str, str]) -> str:
    """The address of Explore with these fields; empty ones are left out."""
    return address_with("/explore", fields)


def exchange(sample_id: str, fields: Mapping[str, str] | None = None) -> str:
    """The address of an exchange, with the list one comes from."""
    here = f"/exchanges/{quote(sample_id, safe='')}"
    kept = {name: value for name, value in (fields or {}).items() if value}
    return f"{here}?{urlencode({'list': urlencode(kept)})}" if kept else here


def fields_without(fields: Mapping[str, str], *names: str) -> dict[str, str]:
    """The fields but some of them."""
    return {name: value for name, value in fields.items() if name not in names}
