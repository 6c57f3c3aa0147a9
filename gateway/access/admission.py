"""The gate with its key sync and limit sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from gateway.access.gate import Gate, needs_gate
from gateway.access.sync import REFRESH_S, SYNC_S, KeySync, LimitSync
from gateway.config import Config
from gateway.telemetry.metrics import Instruments
from gaugeway.runtime.tasks import spawn
from gaugeway.settings import ConfigError, Problems
from gaugeway.storage.documents import Documents, open_limits
from gaugeway.storage.engines.sqlite.connection import file_problem
from gaugeway.storage.keys import Keys, open_keys

T = TypeVar("T")
_BUSY_S = 0.5


class Parts(NamedTuple):
    """A gate and its background syncs."""

    gate: Gate
    keeper: KeySync | None
    sync: LimitSync | None


class Admission:
    """Owns the gateway's gate; there is none while neither keys nor limits are configured.

    A new configuration is applied in two steps, so that an invalid one changes nothing: `prepare` may raise, `use` may
    not. A gate that starts to require keys rejects every request with 503 until the keys are loaded. Without
    `keys_file`, the keys.db of a data directory, there is no key store.
    """

    def __init__(self, config: Config, keys_file: Path | None, instruments: Instruments) -> None:
        self._keys_file = keys_file
        self._instruments = instruments
        self._running = False
        self._retired: set[asyncio.Task[None]] = set()
        self._parts = self.prepare(config, first=True)

    @property
    def gate(self) -> Gate | None:
        """The current gate."""
        return self._parts.gate if self._parts is not None else None

    def prepare(self, config: Config, *, first: bool = False) -> Parts | None:
        """Return the parts that `config` needs: the current ones, new ones, or None. Raises ConfigError."""
        if not needs_gate(config.keys, config.limits):
            return None
        if not first and self._parts is not None:
            return self._parts
        limits, keys = config.limits, config.keys
        gate = Gate(
            limits,
            needs_key=keys.enabled,
            workers=config.gateway.workers,
            every_s=SYNC_S,
            on_bounded=lambda route: self._instruments.charge_estimated(route, "debt"),
        )
        keeper = sync = None
        if self._keys_file is not None:
            keeper = KeySync(_open_keys(config, self._keys_file.parent), gate, every_s=REFRESH_S)
        if (place := _open_sharing(config)) is not None:
            sync = LimitSync(place, gate, self._instruments, every_s=SYNC_S)
        return Parts(gate, keeper, sync)

    def use(self, parts: Parts | None, config: Config) -> None:
        """Make `parts`, which were prepared for `config`, the current ones."""
        old, self._parts = self._parts, parts
        if parts is not None and parts is old:
            parts.gate.use(config.limits)
            parts.gate.needs_key = config.keys.enabled
            return
        if not self._running:
            return
        if old is not None:
            retired = spawn(_close(old), name="closing keys and limits")
            self._retired.add(retired)
            retired.add_done_callback(self._retired.discard)
        if parts is not None:
            _begin(parts)

    async def start(self) -> None:
        """Start the syncs; return once the keys are loaded, or after a time limit."""
        self._running = True
        if self._parts is not None:
            _begin(self._parts)
            if self._parts.keeper is not None:
                await self._parts.keeper.first_attempt()

    async def aclose(self) -> None:
        """Save the spending and leave the shared limits."""
        self._running = False
        if self._parts is not None:
            await _close(self._parts)
        if self._retired:
            await asyncio.wait(self._retired)


def examine(config: Config, problems: Problems) -> None:
    """Add the problems of the URLs of keys and limits, without opening anything."""
    problems.attempt(lambda: _open_keys(config, Path()), "keys.url")
    problems.attempt(lambda: _open_sharing(config), "limits.url")


def examine_file(config: Config, data_dir: Path, problems: Problems) -> None:
    """Add the problem of the key store file in the data directory, without opening it."""
    if problems.cover("--data-dir: "):
        return
    if config.keys.url is None and needs_gate(config.keys, config.limits):
        from gaugeway.storage.engines.sqlite.connection import KEYS  # noqa: PLC0415 - same
        from gaugeway.storage.engines.sqlite.documents import KEYS_FILE  # noqa: PLC0415 - only where the file is looked at

        problem = file_problem(data_dir.absolute() / KEYS_FILE, KEYS)
        problems.extend([] if problem is None else [f"keys.url: the default: {problem}"])


def _begin(parts: Parts) -> None:
    if parts.keeper is not None:
        parts.keeper.start()
    if parts.sync is not None:
        parts.sync.start()


async def _close(parts: Parts) -> None:
    if parts.keeper is not None:
        await parts.keeper.aclose()
    if parts.sync is not None:
        await parts.sync.aclose()


def _open_keys(config: Config, data_dir: Path) -> Keys:
    return _named("keys.url", lambda: open_keys(config.keys.url, data_dir, busy_timeout_s=_BUSY_S))


def _open_sharing(config: Config) -> Documents | None:
    url = config.limits.url
    return None if url is None else _named("limits.url", lambda: open_limits(url))


def _named(key: str, opened: Callable[[], T]) -> T:
    """Return the opened store. Raises ConfigError that names the configuration key."""
    try:
        return opened()
    except ValueError as error:
        raise ConfigError([f"{key}: {error}"]) from error
