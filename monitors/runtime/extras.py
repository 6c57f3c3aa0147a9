"""Which optional package belongs to which extra of the distribution."""

from __future__ import annotations

EXTRAS = {
    "aiosmtplib": "email",
    "asyncpg": "postgres",
    "clickhouse_connect": "clickhouse",
    "fastembed": "local",
    "opentelemetry.exporter": "otlp",
    "opentelemetry.proto": "otlp",
    "pyarrow": "datasets",
    "redis": "redis",
}
"""Module -> extra."""


def extra_of(module: str | None) -> str | None:
    """Return the extra that brings a module, None for one that no extra has.

    >>> extra_of("redis.asyncio"), extra_of("opentelemetry.exporter.otlp.proto.http"), extra_of("redistribute")
    ('redis', 'otlp', None)
    """
    return next((extra for name, extra in EXTRAS.items() if f"{module}.".startswith(f"{name}.")), None)


def missing(error: ImportError) -> str:
    """Return what to do about a module that could not be found.

    >>> missing(ModuleNotFoundError(name="asyncpg"))
    "needs the extra `postgres` (pip install 'gaugeway[postgres]')"
    """
    extra = extra_of(error.name)
    return f"no module named {error.name!r}" if extra is None else f"needs the extra `{extra}` ({install(extra)})"


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'gaugeway[{extra}]'"
