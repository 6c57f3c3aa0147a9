"""Addresses as the page shows them: of apps, of the traffic port for clients, and URLs without their secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

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
