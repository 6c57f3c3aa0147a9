"""Connections to Redis or Valkey, a single node or a cluster: opened at first use, and used to run Lua scripts.

Raises `EngineError` when the engine cannot be used; the next call tries again. Raises `RefusedError` for a value that
is too long for the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

try:
    import redis.asyncio as client_library
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as LostError
    from redis.exceptions import NoScriptError, ReadOnlyError, RedisClusterException, RedisError, ResponseError
    from redis.exceptions import TimeoutError as SlowError
except ModuleNotFoundError as missing:  # pragma: no cover - the extra is installed where this is tested
    raise ValueError("Redis needs an extra: pip install 'gaugeway[redis]'") from missing

from gaugeway.storage.engines.failures import VALUE_ERRORS, Circuit, EngineError, RefusedError

COMMAND_S = 5.0
"""The longest a command, or opening a connection, may take."""
OLDEST = 6, 2
"""The first release that lists what is held for longer than some time (XPENDING IDLE)."""
SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
_FORM = (
    "expected redis://user:password@host:6379/0 (rediss:// with TLS); in a password, "
    "characters such as / and # are written as %2F and %23"
)
_TLS_OPTIONS = {
    "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_cert_reqs", "ssl_check_hostname",
}  # fmt: skip
_LEAST_LIMIT = 1024 * 1024
"""The lowest proto-max-bulk-len that an engine can have. What is longer ends the connection while it is written."""
_TOO_LONG = re.compile("invalid (?:multi)?bulk length|exceeds maximum allowed size|too large to be stored")
_CONNECTIONS = 8
_log = logging.getLogger("gaugeway")

Argument: TypeAlias = str | bytes | int | float


class Address(Struct, frozen=True, kw_only=True):
    """A parsed URL: `url` to connect with, password included, and `name` for messages, without it.

    `prefix` separates several installations on one engine. `shards` streams are spread over a cluster's nodes.
    """

    url: str
    name: str
    prefix: str = "gaugeway"
    shards: int = 1
    max_waiting: int = 100_000
    cluster: bool = False


class Script:
    """A Lua script, which runs atomically; when its first write is refused it changes nothing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Engine:
    """The connections to the engine at `address`, behind a `Circuit`.

    A script may run twice when the connection is lost before the reply. After `aclose` the next operation connects
    again.
    """

    def __init__(self, address: Address, *, draw: Callable[[], float] = random.random) -> None:
        self.address = address
        self._circuit = Circuit(address.name, draw=draw)
        self._client: Any = None
        self._looked = False
        self._places = asyncio.Semaphore(_CONNECTIONS)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run a script, whose keys share one hash tag; return its reply. Raises EngineError."""
        return await self._circuit.run(lambda: self._run(script, keys, arguments))

    async def aclose(self) -> None:
        """Close the connections, if there are any."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(RedisError, RedisClusterException, OSError):
                await client.aclose()

    async def _run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        try:
            async with self._places:
                try:
                    reply = await self._ask(script, keys, arguments)
                except LostError:
                    if not self._circuit.closed or self.address.cluster or self._client is None:
                        raise
                    # The server closes idle connections; each fails at its next use, and so may the others.
                    await self._client.connection_pool.disconnect(inuse_connections=False)
                    reply = await self._ask(script, keys, arguments)
        except (LostError, SlowError, RedisClusterException, OSError) as error:
            longest = max(map(_length, arguments), default=0)
            if isinstance(error, LostError) and longest > _LEAST_LIMIT and await self._answers():
                with contextlib.suppress(RedisError, OSError):
                    return await self._ask(script, keys, arguments)
                if await self._answers():
                    said = f"{longest} bytes; it closes the connection (proto-max-bulk-len)"
                    raise RefusedError(f"{self.address.name}: {said}") from error
            self._circuit.failed()
            raise self._translated(error) from error
        except ReadOnlyError as error:  # it is a replica now: resolve the name again
            self._circuit.failed()
            await self.aclose()
            raise self._translated(error) from error
        except RedisError as error:
            if _TOO_LONG.search(str(error)):
                raise RefusedError(f"{self.address.name}: {error}") from error
            raise self._translated(error) from error
        except VALUE_ERRORS as error:
            raise RefusedError(f"{self.address.name}: {type(error).__name__}") from error
        self._circuit.succeeded()
        return reply

    async def _answers(self) -> bool:
        """Whether the engine answers on a new connection."""
        if self._client is None or self.address.cluster:
            return False
        with contextlib.suppress(RedisError, OSError):
            await self._client.connection_pool.disconnect(inuse_connections=False)
            return bool(await self._client.info())
        return False

    async def _ask(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        if self._client is None:
            self._client = _connect(self.address)
        client = self._client
        if not (self._looked or self.address.cluster):
            with contextlib.suppress(ResponseError):  # without permission for INFO there is no check
                self._check(await client.info())
            self._looked = True
        try:
            return await client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:  # the script is not loaded yet, or was flushed
            return await client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)

    def _check(self, facts: dict[str, Any]) -> None:
        """Raise EngineError for a release that is too old; warn about an engine that may evict the queue."""
        release = str(facts.get("redis_version", ""))
        if (numbers := re.match(r"(\d+)\.(\d+)", release)) and (int(numbers[1]), int(numbers[2])) < OLDEST:
            raise EngineError(f"{self.address.name}: needs release 6.2 or later, this is {release}")
        policy = str(facts.get("maxmemory_policy", ""))
        if policy.startswith("allkeys"):
            _log.warning(
                "%s: maxmemory-policy %s may evict queued samples, uncounted, when memory is short; set noeviction",
                self.address.name,
                policy,
            )

    def _translated(self, error: Exception) -> EngineError:
        """The same error with the engine's name in front, once."""
        if isinstance(error, EngineError):
            return error
        return EngineError(f"{self.address.name}: {str(error) or type(error).__name__}")


def _length(argument: Argument) -> int:
    return len(argument) if isinstance(argument, (bytes, str)) else 0


def _connect(address: Address) -> Any:
    common: dict[str, Any] = {
        "max_connections": _CONNECTIONS,
        "socket_timeout": COMMAND_S,
        "socket_connect_timeout": COMMAND_S,
        "socket_keepalive": True,
        "client_name": "gaugeway",
    }
    if address.cluster:
        return client_library.RedisCluster.from_url(address.url, **common)
    pool = client_library.ConnectionPool.from_url(address.url, retry=Retry(NoBackoff(), 0), **common)
    return client_library.Redis.from_pool(pool)


def read_url(url: str) -> Address:
    """Return what the URL says. Raises ValueError, which quotes nothing of it but the name of an option."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ValueError(_FORM) from None
    if parts.scheme not in SCHEMES or parts.fragment or not re.fullmatch(r"/?\d*", parts.path):
        raise ValueError(_FORM)
    if (cluster := _choice(options, "cluster")) and parts.path.strip("/") not in ("", "0"):
        raise ValueError("a cluster has no database but 0")
    if not re.fullmatch(r"[\w.:-]{1,64}", (prefix := options.pop("prefix", "gaugeway")), re.ASCII):
        raise ValueError("the option prefix is made of letters, digits and . : _ -")
    shards = _number(options, "shards", 1, 1024)
    most = _number(options, "max_waiting", 100_000, 10**9)
    if unknown := sorted(options.keys() - _TLS_OPTIONS):
        known = ", ".join(sorted({"cluster", "max_waiting", "prefix", "shards"} | _TLS_OPTIONS))
        raise ValueError(f"no option {unknown[0][:30]!r} of a Redis URL; known: {known}")
    scheme, database = SCHEMES[parts.scheme], parts.path.strip("/")
    if options and scheme != "rediss":
        raise ValueError(f"the option {min(options)} needs rediss://")
    if scheme == "rediss":
        options.setdefault("ssl_check_hostname", "true")  # not every release of the client does by itself
    where = f"{host}{f':{port}' if port else ''}{f'/{database}' if database else ''}"
    return Address(
        url=parts._replace(scheme=scheme, query=urlencode(options)).geturl(),
        name=f"{parts.scheme}://{where}",
        prefix=prefix,
        shards=shards,
        max_waiting=most,
        cluster=cluster,
    )


def _number(options: dict[str, str], name: str, default: int, most: int) -> int:
    text = options.pop(name, str(default))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= most):
        raise ValueError(f"the option {name} is a whole number from 1 to {most}")
    return int(text)


def _choice(options: dict[str, str], name: str) -> bool:
    if (text := options.pop(name, "false")) not in ("true", "false"):
        raise ValueError(f"the option {name} is true or false")
    return text == "true"
