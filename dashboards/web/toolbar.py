"""The navigation and the bar under it: places and their views, the time range of a view and of its URL, app. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote, urlencode

from litestar.exceptions import HTTPException
from msgspec import Struct, convert

from dashboards.web.addresses import APP_PATH, APPS, app_page, fits_in_path
from dashboards.web.format import iso
from gaugeway.data_files import table
from monitors.analysis import captured

PRESETS = (
    ("15m", "15 minutes"),
    ("1h", "1 hour"),
    ("6h", "6 hours"),
    ("24h", "24 hours"),
    ("7d", "7 days"),
    ("30d", "30 days"),
)
DEFAULT = "24h"
MAX_FIELD = 40
EMPTY = "The start of the time range must be before its end."
_LEAST_S = 1.0
_PAGING = ("after", "done")
"""Parameters that belong to one time range or one action, and are dropped with it."""


class Place(Struct, frozen=True):
    """An entry of the navigation: its address, its name, the key after `g` that goes there, and its views.

    `within` are further first segments of addresses that belong to it.
    """

    to: str
    name: str
    key: str
    views: tuple[Place, ...] = ()
    within: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Whether a view with this path belongs here."""
        first = path.split("/")[1]
        return f"/{first}" == self.to or first in self.within or any(view.has(path) for view in self.views)


PLACES = convert(table("dashboards.web", "texts.toml")["places"], tuple[Place, ...])
"""The navigation. A place with several views has the address and the key of its first view."""
VIEWS = tuple(view for place in PLACES for view in place.views or (place,))
ALIASES = {"/versions": "/compare", "/system": "/pipeline"}
"""Addresses of places that lead to their first view."""


class TimeRange(Struct, frozen=True, kw_only=True):
    """From `since` up to `until` (Unix times, seconds), and the texts of the URL they come from ("" for now).

    Without `until_text` the range ends now and moves on: it is live.
    """

    since: float
    until: float
    since_text: str = DEFAULT
    until_text: str = ""

    @property
    def live(self) -> bool:
        """Whether the range ends now."""
        return not self.until_text

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return self.until - self.since

    @property
    def params(self) -> dict[str, str]:
        """The URL parameters that give this range."""
        return {"since": self.since_text} | ({"until": self.until_text} if self.until_text else {})

    def previous(self) -> TimeRange:
        """The period of the same length before this one, but not before 1970."""
        begin = max(0.0, self.since - self.seconds)
        return between(begin, max(self.since, begin + _LEAST_S))


def between(since: float, until: float) -> TimeRange:
    """A fixed range."""
    return TimeRange(since=since, until=until, since_text=iso(since), until_text=iso(until))


def time_range(params: Mapping[str, str], now: float, default: str = DEFAULT) -> TimeRange:
    """Read `since` and `until` of a URL: 30m, 24h, 7d before now, or ISO dates or times (UTC).

    Raises HTTPException (400) for an invalid or empty range, and for one of more than `captured.MAX_RANGE_S`.

    >>> time_range({"since": "1h"}, 7200.0)
    TimeRange(since=3600.0, until=7200.0, since_text='1h', until_text='')
    """
    texts = {name: params.get(name, "").strip()[:MAX_FIELD] for name in ("since", "until")}
    since_text = texts["since"] or default
    since = _moment("since", since_text, now)
    until = _moment("until", texts["until"], now) if texts["until"] else now
    if until - since < _LEAST_S:
        raise HTTPException(status_code=400, detail=EMPTY)
    try:
        captured.check_length(since, until)
    except ValueError as error:
        raise HTTPException(status_code=400, detail=f"since: {error}") from None
    return TimeRange(since=since, until=until, since_text=since_text, until_text=texts["until"])


def address(path: str, params: Iterable[tuple[str, str]], **changes: str) -> str:
    """URL of a view with some parameters changed; "" removes one. A change leaves the page of a list.

    >>> address("/explore", [("app", "docs"), ("since", "1h"), ("after", "9~1~")], since="7d")
    '/explore?app=docs&since=7d'
    """
    kept = [(name, value) for name, value in params if name not in changes and name not in _PAGING]
    fields = [*kept, *((name, value) for name, value in changes.items() if value)]
    return f"{path}?{urlencode(fields)}" if fields else path


def _moment(name: str, text: str, now: float) -> float:
    try:
        return captured.moment(text, now)
    except ValueError as error:
        raise HTTPException(status_code=400, detail=f"{name}: {error}") from None


MAX_APPS = 50
"""Apps in the list of the app picker: those with the most scores. Any other can be typed."""
Params = Sequence[tuple[str, str]]


class AppPicker(Struct, frozen=True, kw_only=True):
    """The choice of an app: `choices` are its name, the address and whether it is chosen; `more` are left out.

    The form that takes a typed name leads to `action`, with the fields `kept`.
    """

    chosen: str
    every_url: str
    choices: Sequence[tuple[str, str, bool]]
    action: str
    kept: Params
    more: int


class Toolbar(Struct, frozen=True, kw_only=True):
    """What the bar shows. Without a `time_range` the view shows no period: no range and no app to choose."""

    time_range: TimeRange | None
    presets: Sequence[tuple[str, str, str]]
    previous_url: str
    kept: Params
    apps: AppPicker | None
    link: str


def toolbar(path: str, params: Params, *, time_range: TimeRange | None, apps: Iterable[tuple[str, int]]) -> Toolbar:
    """Build the bar of a view; `apps` are names with their number of scores.

    Every link keeps the other parameters of the view. `link` has fixed times, so that it shows the same later.
    """
    shown = time_range is not None
    fixed = {} if time_range is None else {"since": iso(time_range.since), "until": iso(time_range.until)}
    return Toolbar(
        time_range=time_range,
        presets=[(text, words, address(path, params, since=text, until="")) for text, words in PRESETS if shown],
        previous_url=address(path, params, **time_range.previous().params) if time_range else "",
        kept=[(name, value) for name, value in params if name not in ("since", "until", "after", "done")],
        apps=_picker(path, params, apps) if shown else None,
        link=address(path, [*params], **fixed),
    )


def app_address(path: str, params: Params, app: str) -> str:
    """Where the app picker leads: the view of that app from the view of another one, else the view with `app` changed.

    >>> app_address("/apps/old", [("since", "1h")], "a b"), app_address("/explore", [("app", "old")], "")
    ('/apps/a%20b?since=1h', '/explore')
    """
    if _is_app_view(path):
        kept = [(name, value) for name, value in params if name != "app"]
        if not app:
            return address("/", kept)
        return address(app_page(app), kept) if fits_in_path(app) else address(APPS, kept, app=app)
    return address(path, params, app=app)


def _is_app_view(path: str) -> bool:
    return path == APPS or path.startswith(APP_PATH)


def _picker(path: str, params: Params, apps: Iterable[tuple[str, int]]) -> AppPicker:
    of_view = _is_app_view(path)
    named = next((value for name, value in params if name == "app"), "")
    chosen = unquote(path.removeprefix(APP_PATH)) if path.startswith(APP_PATH) else named
    counts: dict[str, int] = {}
    for name, n in apps:
        counts[name] = max(n, counts.get(name, 0))
    largest = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_APPS]
    return AppPicker(
        chosen=chosen,
        every_url=app_address(path, params, ""),
        choices=[(name, app_address(path, params, name), name == chosen) for name in sorted(largest)],
        action=APPS if of_view else path,
        kept=[(name, value) for name, value in params if name not in ("app", "after", "done")],
        more=len(counts) - len(largest),
    )
