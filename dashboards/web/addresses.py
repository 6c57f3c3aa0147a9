"""Addresses of the views with their fields: apps, exchanges, Explore with its filters; and URLs without secrets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from dashboards.web.format import iso
from gaugeway.records import Alert
from gaugeway.text.topics import NAMELESS, UNLIKE
from monitors.alerting.rule_watch import ALL
from monitors.alerting.slices import OTHER
from monitors.analysis.incident.differences import Cutoff, Trait

HOST, PORT = "127.0.0.1", 8080
APPS, APP_PATH = "/apps", "/apps/"
_LOST = frozenset(("", ".", ".."))
"""Segments that browsers, proxies or servers remove from a path, percent-encoded or not."""


def without_secrets(url: str) -> str:
    """A URL without user, password, query and fragment, which may hold secrets.

    >>> without_secrets("postgresql://me:secret@db:5432/quality?password=x")
    'postgresql://db:5432/quality'
    """
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return "(not a URL)"


def traffic_url(gateway: Mapping[str, Any], host: str) -> str:
    """Base URL for clients: the gateway's address, or the requested host name if it listens on all interfaces."""
    address = str(gateway.get("host", HOST))
    if address in ("0.0.0.0", "::", ""):  # noqa: S104 - compared with, not bound to
        address = host
    return f"http://{f'[{address}]' if ':' in address else address}:{gateway.get('port', PORT)}/v1"


def address_with(path: str, fields: Mapping[str, str | None]) -> str:
    """An address with fields; empty ones are left out.

    >>> address_with("/explore", {"app": "a b", "metric": ""}), address_with("/explore", {})
    ('/explore?app=a+b', '/explore')
    """
    kept = {name: value for name, value in fields.items() if value}
    return f"{path}?{urlencode(kept)}" if kept else path


def fits_in_path(app: str) -> bool:
    """Whether an app's name arrives unchanged as part of a path.

    >>> fits_in_path("team/shop"), fits_in_path("../shop"), fits_in_path("team//shop")
    (True, False, False)
    """
    return not _LOST.intersection(app.split("/"))


def app_page(app: str) -> str:
    """The address of an app's view, whatever its name.

    >>> app_page("a b"), app_page("../../etc/passwd")
    ('/apps/a%20b', '/apps?app=..%2F..%2Fetc%2Fpasswd')
    """
    return f"{APP_PATH}{quote(app, safe='')}" if fits_in_path(app) else f"{APPS}?{urlencode({'app': app})}"


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


FILTERS = ("app", "metric", "model", "prompt", "tag", "outcome", "text", "source", "topic", "session")
BOUNDS = {"above": "score above", "below": "score below", "least": "score from", "most": "score up to"}
"""The bounds of scores, and what their chips are called."""
_CLOSE = 1e-6


class Chip(Struct, frozen=True, kw_only=True):
    """An active filter: its name, its value in words, and the address of the selection without it."""

    name: str
    value: str
    url: str


def chips_of(given: Mapping[str, str], path: str = "/explore") -> list[Chip]:
    """The active filters of a selection; its time range and order are no filters."""
    urls = {name: address_with(path, fields_without(given, "after", name)) for name in (*FILTERS, *BOUNDS)}
    return [
        Chip(name=BOUNDS.get(name, name), value=_value(name, given[name]), url=urls[name])
        for name in (*FILTERS, *BOUNDS)
        if given.get(name)
    ]


def _value(name: str, text: str) -> str:
    if name in ("least", "most"):
        return score_words(text)
    return topic_words(text) if name == "topic" else text


def score_words(text: str) -> str:
    """A bound of scores in words.

    >>> score_words("0.5"), score_words("0.749999999"), score_words("no number")
    ('0.5', 'just below 0.75', 'no number')
    """
    try:
        value = float(text)
    except ValueError:
        return text
    near = round(value, 4)
    if near == value or abs(near - value) > _CLOSE:
        return text
    return f"just {'below' if value < near else 'above'} {near:g}"
