"""Checks of the addresses and tokens in a configuration, without connecting to anything."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

ROUTES = (
    *("/chat/completions", "/completions", "/decisions", "/embeddings", "/messages", "/models", "/responses"),
    "/systemone",
)
"""What clients append to a base URL."""
_KEYED = (
    *("anthropic.com", "api.cohere.com", "api.deepseek.com", "api.fireworks.ai", "api.groq.com", "api.mistral.ai"),
    *("api.openai.com", "api.together.xyz", "api.x.ai", "generativelanguage.googleapis.com", "openai.azure.com"),
    "openrouter.ai",
)
"""Providers that answer 401 to every request without a key."""
IPV6 = 6
BIND_WAIT_S, BIND_EVERY_S = 3.0, 0.1
"""How long, and how often, binding is tried: the process before may be about to release the address."""
_LABEL = r"(?!-)[A-Za-z0-9_\-\u0080-\U0010ffff]{1,63}(?<!-)"
"""Underscores are in no host name of the standards, but in those of Docker's networks."""
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_LOOPBACK_NAMES = ("localhost", "ip6-localhost")
_PRIVATE_SUFFIXES = (".internal", ".lan", ".local", ".localhost", ".svc", ".test")
ATTEMPTS, ATTEMPTS_S = 5, 300.0
"""Wrong tokens from one network that are answered with 401 before the answer is 429, and the window they count in."""
LONG_TOKEN, LEAST_DISTINCT = 16, 8
"""Characters, and different characters, from which on a token cannot be found by trying."""
CHECK_S, MAX_CHECK_WAIT_S = 2.0, 4.0
"""Time between two checks of a short token for one network after too many wrong ones, and how long one may wait."""


def host_problem(host: str) -> str | None:
    """Say why `host` can be neither an IP address nor the name of a host; nothing is resolved.

    >>> host_problem("999.1.1.1")
    'looks like an IP address and is none'
    >>> host_problem("localhost:8080")
    'expected an IP address or a host name alone, without scheme, port or brackets'
    >>> host_problem("my_service"), host_problem("fe80::1%eth0")
    (None, None)
    """
    if _version(host) is not None:
        return None
    if host.replace(".", "").isdigit():
        return "looks like an IP address and is none"
    if set(host) & set(":/[]"):
        return "expected an IP address or a host name alone, without scheme, port or brackets"
    return "is neither an IP address nor a host name" if not _HOST_NAME.fullmatch(host) else None


def listener_problem(host: str) -> str | None:
    """Say why nothing can listen on `host`; an empty one stands for all addresses."""
    return host_problem(host) if host else None


def address_problem(url: str, example: str = "https://api.openai.com/v1") -> str | None:
    """Say why `url` is no http(s) address such as `example`, without quoting it: it may hold a password.

    >>> address_problem("api.openai.com/v1")
    'expected an http(s) URL such as https://api.openai.com/v1'
    >>> address_problem("http://300.0.0.1/v1")
    'its host looks like an IP address and is none'
    >>> address_problem("http://localhost:11434/v1")
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        return f"expected an http(s) URL such as {example}"
    problem = host_problem(parts.hostname or "")
    return None if problem is None else f"its host {problem}"


def base_url_problem(url: str) -> str | None:
    """Say why `url` cannot be the base URL of an OpenAI-compatible API.

    >>> base_url_problem("https://api.openai.com/v1/chat/completions/")
    'ends in /chat/completions, which clients append to it: leave that out'
    """
    if (problem := address_problem(url)) is not None:
        return problem
    path = urlsplit(url).path.rstrip("/")
    route = next((known for known in ROUTES if path.endswith(known)), None)
    return None if route is None else f"ends in {route}, which clients append to it: leave that out"


def link_problem(url: str) -> str | None:
    """Say why the page cannot link to paths below `url`.

    >>> link_problem("https://grafana.example/?orgId=2")
    'expected an address without a user, a query, a fragment or spaces'
    """
    bad = any(mark in url for mark in "?#@ ")
    return "expected an address without a user, a query, a fragment or spaces" if bad else None


def needs_key(url: str) -> bool:
    """Whether `url` is a provider's known to refuse every request without a key."""
    host = _host(url)
    return any(host == domain or host.endswith(f".{domain}") for domain in _KEYED)


def is_remote(url: str) -> bool:
    """Whether `url` names a host on the public Internet, as far as its name tells."""
    host = _host(url)
    try:
        return ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith(_PRIVATE_SUFFIXES)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        name = host.rstrip(".").lower()
        return name in _LOOPBACK_NAMES or name.endswith(".localhost")


def is_own(host: str, listener: str) -> bool:
    """Whether a connection to `host` arrives at a server of this machine that listens on the address `listener`.

    No name is resolved and no packet is sent: other names of this machine than its host name are not recognised.

    >>> is_own("localhost", "127.0.0.1"), is_own("127.0.0.1", "0.0.0.0"), is_own("192.0.2.7", "127.0.0.1")
    (True, True, False)
    """
    if _overlap(host, listener) and _version(host) in (None, _version(listener)):
        return not _is_any(listener) or _is_any(host) or is_loopback(host) or _is_this_machine(host)
    return False


def port_problems(listeners: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    """Name the listeners (key of the port, host, port) that cannot share an address. Port 0 is any free one.

    >>> list(port_problems([("a.port", "127.0.0.1", 80), ("b.port", "0.0.0.0", 80), ("c.port", "127.0.0.1", 81)]))
    ['b.port: port 80 is already used by a.port']
    """
    known: list[tuple[str, str, int]] = []
    for key, host, port in listeners:
        other = next((address for address in known if port and port == address[2] and _overlap(host, address[1])), None)
        if other is not None:
            yield f"{key}: port {port} is already used by {other[0]}"
        known.append((key, host, port))


async def wait_until_free(addresses: Iterable[tuple[str, int]]) -> None:
    """Wait until a server could listen on each address. Raises OSError if one is in use for `BIND_WAIT_S`, or invalid.

    Nothing listens meanwhile, so no connection is accepted.
    """
    for host, port in addresses:
        await _wait_until_free(host, port)


async def _wait_until_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = time.monotonic() + BIND_WAIT_S
    while True:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers: closed connections linger
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((host, port))
                return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise cannot_listen(host, port, error) from error
        await asyncio.sleep(BIND_EVERY_S)


def cannot_listen(host: str, port: int, error: OSError) -> OSError:
    """Return the error of a server that cannot listen on its address."""
    # The event loop's own words repeat the address; a name that cannot be resolved has other numbers.
    number = error.errno or 0
    reason = os.strerror(number) if number in errno.errorcode else error.strerror or str(error)
    return OSError(f"cannot listen on {host}:{port}: {reason}")


def _overlap(host: str, other: str) -> bool:
    if len(names := {host.lower(), other.lower()}) == 1 or _is_any(host) or _is_any(other):
        return True
    return any(_version(name) is None for name in names) and is_loopback(host) and is_loopback(other)


def _version(host: str) -> int | None:
    """The version of an IP address; None for a name."""
    try:
        return ip_address(host).version
    except ValueError:
        return None


def _is_this_machine(host: str) -> bool:
    """Whether an address can be bound to here, or a name is this machine's."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() == socket.gethostname().lower()
    family = socket.AF_INET6 if address.version == IPV6 else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return True
    return False


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def is_long(token: str) -> bool:
    """Whether a token is long enough to withstand guessing, if it is random.

    >>> is_long("hunter2"), is_long("a" * 40), is_long("0f3c9a7be1d24586")
    (False, False, True)
    """
    return len(token) >= LONG_TOKEN and len(set(token)) >= LEAST_DISTINCT


def short_warning(key: str, token: str | None) -> str | None:
    """Return a warning when the token of the configuration key `key` is short."""
    if token is None or is_long(token):
        return None
    return (
        f"{key}: is short: after {ATTEMPTS} wrong tokens from an address, tokens from there are checked only every "
        f"{CHECK_S:.0f} s, the correct one too; use at least {LONG_TOKEN} random characters (openssl rand -hex 32)"
    )
