"""The bar under the navigation: time range, app, search, link and pause. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from dashboards.web.addresses import APP_PATH, APPS, app_page, fits_in_path
from dashboards.web.format import iso
from dashboards.web.time_range import PRESETS, TimeRange, address

MAX_APPS = 50
"""Apps in the list of the app picker: those with the most scores. Any other can be typed."""
Params = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPicker:
    """The choice of an app: `choices` are its name, the address and whether it is chosen; `more` are left out.

    The form that takes a typed name leads to `action`, with the fields `kept`.
    """

    chosen: str
    every_url: str
    choices: Sequence[tuple[str, str, bool]]
    action: str
    kept: Params
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbar:
    """What the bar shows. Without a `time_range` the view shows no period: no range and no app to choose."""

    time_range: TimeRange | None
    presets: Sequence[tuple[str, str, str]]
    previous_url: str
    kept: Params
    apps: AppPicker | None
    link: str


def toolbar(
    path: str,
    params: Params,
    *,
    time_range: TimeRange | None,
    apps: Iterable[tuple[str, int]],
) -> Toolbar:
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
