"""The router: chooses an upstream for each request, sends it, and retries where that is allowed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from gateway.config import Routing
from gateway.config import Upstream as Settings
from gateway.http.errors import Rejection
from gateway.http.headers import for_upstream
from gateway.http.url import Target
from gateway.upstreams import (
    Upstream,
    UpstreamError,
    UpstreamErrorKind,
    UpstreamRequest,
    UpstreamResponse,
    first_byte_late,
)
from gateway.upstreams.outlier_ejection import EJECTED, HEALTHY, Attempt, Ejection
from gateway.upstreams.policy import ANY_MODEL, RetryPolicy, Route, choose, first, replace_model, serving
from gateway.upstreams.pool import NativeUpstream
from gaugeway.exchange import Headers
from gaugeway.runtime.logs import RateLimitedWarnings

HELD_BYTES = 64 * 1024
HELD_S = 0.5
LARGE_BYTES = 256 * 1024
_SHOWN_CHARACTERS = 100
FIRST_SERVER_ERROR = 500
_NO_TAGS: dict[str, str] = {}
_log = logging.getLogger("gaugeway")


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A request ready to be sent, before its upstream is chosen.

    `headers` are the client's, unfiltered. `content_length` is set when the body was changed, `traceparent` when it
    replaces the client's; `via` are the gateways passed so far, this one included. `model` is the body's, when it was
    readable; `session` keeps requests together; `canary` is the upstream that the client named in
    `x-gaugeway-upstream`. A struct because it is made for every request (a frozen dataclass costs 1 µs more).
    """

    method: str
    raw_path: bytes
    query: bytes
    headers: Headers
    body: bytes | AsyncIterator[bytes]
    content_length: int | None = None
    traceparent: bytes | None = None
    model: str | None = None
    session: str | None = None
    canary: str | None = None
    via: bytes | None = None


class ClientSettings(NamedTuple):
    """What a client connects with: the trusted certificates (None: the system's), and an HTTP proxy's URL, if any."""

    ca_file: Path | None
    proxy: str | None


class Routed(msgspec.Struct, frozen=True):
    """A response and its origin. `model` is the alias that was sent, if one was.

    `tags` name the upstream where there are several, so that versions can be compared; shared: not to be changed.
    """

    response: UpstreamResponse
    upstream: str
    attempts: int
    model: str | None
    tags: dict[str, str]


class RoutedError(UpstreamError):
    """The request could not be served; `upstream` is the last one asked."""

    def __init__(self, kind: UpstreamErrorKind, detail: str, upstream: str, attempts: int) -> None:
        super().__init__(kind, detail)
        self.upstream = upstream
        self.attempts = attempts


class Observer(Protocol):
    """Counts what the client does not see: ejections, and failures that were followed by another attempt."""

    def state(self, upstream: str, value: float) -> None:
        """An upstream is now healthy (1), half-open (0.5) or ejected (0)."""

    def error(self, upstream: str, kind: str) -> None:
        """An attempt failed and another one followed. The last failure reaches the client, and is not reported."""


class Unobserved:
    """An observer that ignores everything."""

    def state(self, upstream: str, value: float) -> None:
        """Ignore it."""

    def error(self, upstream: str, kind: str) -> None:
        """Ignore it."""


class Router:
    """Sends requests to the upstreams of the configuration.

    `client` makes the client for `ClientSettings`; upstreams with the same settings share a client. An attempt without
    a response head after `first_byte_s` has failed.
    `clock` is monotonic, `wall` Unix time (for dates in Retry-After); both in seconds.
    """

    def __init__(
        self,
        upstreams: Sequence[Settings],
        routing: Routing,
        *,
        client: Callable[[ClientSettings], Upstream],
        observer: Observer | None = None,
        baggage: bool = False,
        first_byte_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clients = {settings: client(settings) for settings in dict.fromkeys(map(_client_settings, upstreams))}
        several = len(upstreams) > 1
        alike = {"several": several, "baggage": baggage}
        self._links = {
            upstream.name: Link(upstream, self._clients[_client_settings(upstream)], **alike) for upstream in upstreams
        }
        self._routes = [link.route for link in self._links.values()]
        self._observer = observer or Unobserved()
        self._first_byte_s = first_byte_s
        self._clock, self._wall, self._chance, self._sleep = clock, wall, chance, sleep
        self._policy = RetryPolicy(statuses=frozenset(routing.retry_on))
        self.failure_log = FailureLog(clock)
        self._ejection = Ejection(
            self._links, after=routing.eject_after, for_s=routing.eject_s, changed=self._state_changed
        )
        for name in self._links:
            self._observer.state(name, HEALTHY)
        self.reads_header = routing.header
        """Whether `Outgoing.canary` is looked at."""
        self.reads_model = several or any(route.aliases or route.models != ANY_MODEL for route in self._routes)
        """Whether `Outgoing.model` is looked at."""
        plain = not (several or routing.header or self.reads_model or self._routes[0].max_retries)
        self.only = next(iter(self._links.values())) if plain else None
        """The upstream there is, when there is one and nothing to choose, to change or to repeat."""

    async def send(self, outgoing: Outgoing) -> Routed:
        """Return as soon as the head of the response for the client has arrived.

        Raises RoutedError when no upstream answered, Rejection when none serves the model.
        """
        attempts = self.begin(outgoing)
        return await self.resume(attempts, await self.attempt(attempts))

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()

    async def resume(self, attempts: Attempts, outcome: UpstreamResponse | UpstreamError) -> Routed:
        """Go on after an attempt with this outcome: return the response, or try again first. Raises RoutedError."""
        try:
            while True:
                asked, wait_s = attempts.link, self._next(attempts, outcome)
                if wait_s is None:
                    return await self._arrive(attempts, outcome)
                await self._set_aside(attempts, asked, outcome)
                if wait_s:
                    await self._sleep(wait_s)
                self._reconsider(attempts)
                outcome = await self.attempt(attempts)
        finally:
            await self._drop_held(attempts)

    def is_final(self, outcome: int | UpstreamError) -> bool:
        """Whether an attempt with this status or error is certainly the last one."""
        return self.only is not None or not (isinstance(outcome, UpstreamError) or outcome in self._policy.statuses)

    def begin(self, outgoing: Outgoing) -> Attempts:
        """Pick the first upstream, and change nothing. Raises Rejection."""
        if self.only is not None:
            return Attempts(outgoing, [], self.only)
        routes = serving(self._routes, outgoing.model)
        candidates = self._candidates(outgoing, routes)
        if outgoing.model is None:
            # It may be about something kept at one provider (a file, a batch): another's 404 would be a worse answer
            # than the failure. So there is no other upstream for it, not even while this one is ejected.
            chosen, others = self._choose(candidates, outgoing), []
        else:
            chosen = self._choose(self._usable(candidates) or candidates, outgoing)
            others = [route for route in candidates if route is not chosen]
        return Attempts(outgoing, [route.name for route in routes], self._links[chosen.name], others)

    def check(self, outgoing: Outgoing) -> None:
        """Raise the Rejection that `send` would: no upstream serves the model, or has the name given."""
        if self.only is None:
            self._candidates(outgoing, serving(self._routes, outgoing.model))

    def _candidates(self, outgoing: Outgoing, routes: list[Route]) -> list[Route]:
        """Return those of `routes` that the client's own choice of an upstream leaves. Raises Rejection for none."""
        candidates = routes
        if self.reads_header and outgoing.canary is not None:
            if (named := self._links.get(outgoing.canary)) is None:
                raise Rejection(
                    400,
                    "invalid_value",
                    f"Unknown upstream '{outgoing.canary[:_SHOWN_CHARACTERS]}'.",
                    "x-gaugeway-upstream",
                )
            candidates = [named.route] if named.route.serves(outgoing.model) else []
        if not candidates:
            shown = (outgoing.model or "")[:_SHOWN_CHARACTERS]
            raise Rejection(404, "model_not_found", f"Gaugeway: no upstream serves the model '{shown}'.", "model")
        return candidates

    def _choose(self, routes: list[Route], outgoing: Outgoing) -> Route:
        if outgoing.model is None and outgoing.session is None:
            return first(routes)
        return choose(routes, session=outgoing.session, chance=self._chance)

    async def attempt(self, attempts: Attempts) -> UpstreamResponse | UpstreamError:
        """Make one attempt; return the response, or why there is none."""
        body = attempts.outgoing.body
        if attempts.alias is not None and isinstance(body, bytes) and len(body) > LARGE_BYTES:
            # In a thread, as this takes long: in short steps, between which other requests are served.
            request = await asyncio.to_thread(attempts.request)
        else:
            request = attempts.request()
        self.attempt_begins(attempts)
        success: bool | None = None
        try:
            response = await self._send(attempts.link, request)
            success = response.status < FIRST_SERVER_ERROR
            return response
        except UpstreamError as error:
            success = False
            return error
        finally:
            self.attempt_ended(attempts, success=success)

    async def _send(self, link: Link, request: UpstreamRequest) -> UpstreamResponse:
        if self._first_byte_s is None:
            return await link.client.send(request)
        try:
            async with asyncio.timeout(self._first_byte_s):
                return await link.client.send(request)
        except TimeoutError as error:
            raise first_byte_late(self._first_byte_s) from error

    def attempt_begins(self, attempts: Attempts) -> None:
        """Count an attempt that is made now; each is followed by `attempt_ended`."""
        attempts.count += 1
        if self.only is None:
            attempts.current = self._ejection.begin(attempts.link.name, self._clock())

    def attempt_ended(self, attempts: Attempts, *, success: bool | None) -> None:
        """Count how the current attempt ended (None: it was given up); a second call changes nothing."""
        current, attempts.current = attempts.current, None
        if current is not None:
            self._ejection.end(current, success=success, peers=attempts.peers, now=self._clock())

    def _next(self, attempts: Attempts, outcome: UpstreamResponse | UpstreamError) -> float | None:
        """Decide what follows an attempt: None if it was the last, else the wait before the next one to attempts.link.

        The same upstream first, up to its `max_retries`; then another one, at once.
        """
        headers: Headers = []
        if not isinstance(outcome, UpstreamError):
            if outcome.status not in self._policy.statuses:
                return None
            headers = outcome.headers
        if not isinstance(attempts.outgoing.body, bytes):
            return None
        others = self._usable(attempts.others)
        left = attempts.retries < attempts.link.route.max_retries
        if left and (not others or self._usable([attempts.link.route])):
            wait_s = self._policy.wait_s(attempts.retries, headers, now=self._wall(), chance=self._chance)
            if wait_s is not None:
                attempts.retries += 1
                return wait_s
        if not others:
            return None
        self._move(attempts, others)
        return 0.0

    def _reconsider(self, attempts: Attempts) -> None:
        """Choose another upstream if the chosen one was ejected, or is being probed, since it was chosen."""
        if not self._usable([attempts.link.route]) and (others := self._usable(attempts.others)):
            self._move(attempts, others)

    def _move(self, attempts: Attempts, others: list[Route]) -> None:
        chosen = self._choose(others, attempts.outgoing)
        attempts.others.remove(chosen)
        attempts.link, attempts.retries = self._links[chosen.name], 0

    def _usable(self, routes: list[Route]) -> list[Route]:
        now = self._clock()
        return [route for route in routes if self._ejection.takes(route.name, now)]

    async def _set_aside(self, attempts: Attempts, asked: Link, outcome: UpstreamResponse | UpstreamError) -> None:
        """Keep a failed response until a later one replaces it."""
        if isinstance(outcome, UpstreamError):
            self._observer.error(asked.name, outcome.kind)
            return
        try:
            held = await _hold(outcome)
        except (UpstreamError, TimeoutError):
            self._observer.error(asked.name, _kind(outcome))
            return
        await self._drop_held(attempts)
        attempts.held = Routed(held, asked.name, attempts.count, attempts.model, asked.tags)

    async def _arrive(self, attempts: Attempts, outcome: UpstreamResponse | UpstreamError) -> Routed:
        """Return the last response, even a failed one. Raises RoutedError when there was none."""
        name, count, held = attempts.link.name, attempts.count, attempts.held
        if not isinstance(outcome, UpstreamError):
            return Routed(outcome, name, count, attempts.model, attempts.link.tags)
        if held is None:
            raise RoutedError(outcome.kind, outcome.detail, name, count) from outcome
        self._observer.error(name, outcome.kind)
        attempts.held = None
        return Routed(held.response, held.upstream, count, held.model, held.tags)

    async def _drop_held(self, attempts: Attempts) -> None:
        held, attempts.held = attempts.held, None
        if held is not None:
            self._observer.error(held.upstream, _kind(held.response))
            await held.response.aclose()

    def _state_changed(self, upstream: str, value: float) -> None:
        self._observer.state(upstream, value)
        if value == EJECTED:
            _log.warning("upstream %s ejected: consecutive failures; other upstreams take its requests", upstream)
        elif value == HEALTHY:
            _log.info("upstream %s recovered", upstream)


class Link:
    """A configured upstream, with what is computed once: its address, credentials, route and client."""

    __slots__ = ("_authorization", "_baggage", "_host", "_join", "_origin", "client", "name", "pool", "route", "tags")

    def __init__(self, settings: Settings, client: Upstream, *, several: bool, baggage: bool = False) -> None:
        target = Target.parse(settings.base_url, name=settings.name, api_key=settings.api_key)
        self._join, self._origin = target.join, target.origin
        self._host, self._authorization = target.host_header, target.authorization
        self.client, self.name, self._baggage = client, settings.name, baggage
        # Only the native client lends its connections; the port, which plug-ins implement, is `send` alone.
        self.pool = client if isinstance(client, NativeUpstream) else None
        self.route = Route(
            name=settings.name,
            models=settings.models,
            aliases=settings.aliases,
            weight=settings.weight,
            priority=settings.priority,
            max_retries=settings.max_retries,
        )
        self.tags = {"upstream": settings.name} if several else _NO_TAGS

    def request(self, outgoing: Outgoing, body: bytes | None) -> UpstreamRequest:
        """Make the request for this upstream; `body`, if given, replaces the client's."""
        headers = for_upstream(
            outgoing.headers,
            host=self._host,
            content_length=outgoing.content_length if body is None else len(body),
            authorization=self._authorization,
            traceparent=outgoing.traceparent,
            baggage=self._baggage,
            via=outgoing.via,
        )
        path = self._join(outgoing.raw_path, outgoing.query)
        return UpstreamRequest(outgoing.method, self._origin, path, headers, outgoing.body if body is None else body)


class Attempts(msgspec.Struct):
    """The attempts to serve one request, and where the next one goes.

    `link` is the upstream of the current or next attempt, `peers` serve the same model, `others` may still be tried.
    `model` is the alias that the current attempt sends, if it sends one; `held` a failed response that is kept.
    """

    outgoing: Outgoing
    peers: list[str]
    link: Link
    others: list[Route] = []
    retries: int = 0
    count: int = 0
    model: str | None = None
    held: Routed | None = None
    current: Attempt | None = None

    @property
    def alias(self) -> str | None:
        """What the upstream calls the model asked for; None where it has the same name."""
        model = self.outgoing.model
        return None if model is None else self.link.route.aliases.get(model)

    @property
    def tags(self) -> dict[str, str]:
        """The exchange's tags: its upstream, where there are several, and the alias sent. Shared: not to be changed."""
        return self.link.tags if self.model is None else self.link.tags | {"model_sent": self.model}

    def request(self) -> UpstreamRequest:
        """Make the request for the next attempt, with the upstream's alias in the place of the model."""
        outgoing, body, alias = self.outgoing, None, self.alias
        self.model = None
        if alias is not None and isinstance(outgoing.body, bytes):
            body = replace_model(outgoing.body, alias)
            self.model = alias if body is not None else None
        return self.link.request(outgoing, body)


class _Held:
    """A response whose body, or its beginning, was read before it is relayed."""

    def __init__(self, response: UpstreamResponse, read: bytes, *, more: bool) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._read = read
        self._more = more

    async def read(self) -> tuple[bytes, bool]:
        """Return what was read before, then the rest. Raises UpstreamError."""
        if self._read:
            read, self._read = self._read, b""
            return read, self._more
        return await self._response.read() if self._more else (b"", False)

    async def aclose(self) -> None:
        """Release the response."""
        await self._response.aclose()


async def _hold(response: UpstreamResponse) -> _Held:
    """Read a response that may not be relayed, which frees its connection; a large one stays open.

    Raises UpstreamError and TimeoutError when it is incomplete; then it is closed.
    """
    chunks: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(HELD_S):
            while more and size < HELD_BYTES:
                chunk, more = await response.read()
                chunks.append(chunk)
                size += len(chunk)
    except BaseException:  # a cancel too: the connection must not be left open
        await response.aclose()
        raise
    return _Held(response, b"".join(chunks), more=more)


def _kind(response: UpstreamResponse) -> str:
    return f"status_{response.status // 100}xx"


def _client_settings(settings: Settings) -> ClientSettings:
    return ClientSettings(Path(settings.ca_file) if settings.ca_file is not None else None, settings.proxy)


class FailureLog:
    """Logs failures with their cause, at most one line per upstream in 10 s. `clock` is monotonic, in s."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._warnings = RateLimitedWarnings(_log, clock)

    def add(self, upstream: str, error: UpstreamError) -> None:
        """Note that a request failed at its last upstream."""
        self._warnings.warn(upstream, "upstream %s: request failed: %s (%s)", upstream, error.detail, _cause(error))


def _cause(error: UpstreamError) -> str:
    if isinstance(cause := error.__cause__, UpstreamError):
        cause = cause.__cause__
    return error.kind if cause is None else getattr(cause, "strerror", None) or type(cause).__name__
