"""Writes the files of this folder with the release that is installed: `python -m tests.contracts.stored_data.write`.

Run it with the oldest release whose data must still open, never to make a failing test pass.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from redis import Redis

from gaugeway.storage.engine import adapter
from gaugeway.storage.keys import Keys, open_keys
from gaugeway.storage.templates import open_templates
from tests.contracts.stored_data import scenario
from tests.support.postgres import postgres
from tests.support.redis import redis_server

HERE = Path(__file__).parent
REDIS_PREFIX = "stored"
FILES = ("store.db", "queue.db", "keys.db", "templates.db")


async def sqlite(folder: Path) -> dict[str, Any]:
    """Write the four files; return what is read of them."""
    store, queue = (f"sqlite:///{folder}/{name}.db" for name in ("store", "queue"))
    await scenario.fill_store(store)
    await scenario.fill_queue(queue)
    secret = await scenario.fill_keys(open_keys(None, folder))
    await scenario.fill_templates(open_templates(store))
    for name in FILES:
        (HERE / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), mtime=0))
    return {
        "store": await scenario.read_store(store),
        "queue": await scenario.read_queue(queue),
        "keys": await scenario.read_keys(open_keys(None, folder)),
        "secret": secret,
        "templates": await scenario.read_templates(open_templates(store)),
    }


async def postgresql() -> dict[str, Any]:
    """Write a dump in SQL, without what only some releases of the server know; return what is read of the database."""
    url = postgres().database(empty=True)
    await scenario.fill_store(url)
    await scenario.fill_queue(url)
    secret = await scenario.fill_keys(Keys(adapter(url, "keys").from_url(url)))
    await scenario.fill_templates(open_templates(url))
    dump = await asyncio.to_thread(_dump_of, url)
    lines = [line for line in dump.splitlines() if not line.startswith(("--", "\\", "SET ")) and line]
    (HERE / "postgres.sql.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    return {
        "store": await scenario.read_store(url),
        "queue": await scenario.read_queue(url),
        "keys": await scenario.read_keys(Keys(adapter(url, "keys").from_url(url))),
        "secret": secret,
        "templates": await scenario.read_templates(open_templates(url)),
    }


def _dump_of(url: str) -> str:
    command = ["pg_dump", "--inserts", "--no-owner", "--no-privileges", url]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


async def redis() -> dict[str, Any]:
    """Write the commands that make the keys; return what is read of the queue."""
    server = redis_server()
    url = server.url(prefix=REDIS_PREFIX)
    await scenario.fill_queue(url)
    with Redis(port=server.port, protocol=2) as client:
        client.response_callbacks.clear()  # replies as the server sends them
        keys = sorted(client.execute_command("KEYS", f"*{REDIS_PREFIX}*"))
        commands = [command for key in keys for command in _commands_for(client, key.decode())]
    (HERE / "redis.json").write_text(json.dumps(commands, indent=1) + "\n", "utf-8")
    return {"queue": await scenario.read_queue(url)}


def _commands_for(client: Redis, key: str) -> list[list[str]]:
    kind = client.execute_command("TYPE", key)
    if kind == b"hash":
        return [["HSET", key, *_texts(client.execute_command("HGETALL", key))]]
    if kind == b"zset":
        ranked = _texts(client.execute_command("ZRANGE", key, 0, -1, "WITHSCORES"))
        return [["ZADD", key, score, member] for member, score in zip(ranked[::2], ranked[1::2], strict=True)]
    entries = client.execute_command("XRANGE", key, "-", "+")
    made = [["XADD", key, entry.decode(), *_texts(fields)] for entry, fields in entries]
    for group in client.execute_command("XINFO", "GROUPS", key):
        facts = dict(zip(group[::2], group[1::2], strict=True))
        name = facts[b"name"].decode()
        made.append(["XGROUP", "CREATE", key, name, facts[b"last-delivered-id"].decode()])
        made += _claims(client, key, name)
    return made


def _claims(client: Redis, key: str, group: str) -> list[list[str]]:
    """What is handed out, since when, and for which time."""
    seconds, micros = client.execute_command("TIME")
    now = int(seconds) * 1000 + int(micros) // 1000
    return [
        ["XCLAIM", key, group, who.decode(), "0", entry.decode(), *_since(now - idle, times), "FORCE", "JUSTID"]
        for entry, who, idle, times in client.execute_command("XPENDING", key, group, "-", "+", 100)
    ]


def _since(moment: int, times: int) -> list[str]:
    return ["TIME", str(moment), "RETRYCOUNT", str(times)]


def _texts(items: Iterable[bytes]) -> list[str]:
    return [item.decode() for item in items]


async def main() -> None:
    """Write everything."""
    with tempfile.TemporaryDirectory() as folder:
        expected = {"sqlite": await sqlite(Path(folder)), "postgresql": await postgresql(), "redis": await redis()}
    read = json.dumps(scenario.as_json(expected), sort_keys=True, separators=(",", ":"))
    (HERE / "expected.json.gz").write_bytes(gzip.compress(read.encode(), mtime=0))


if __name__ == "__main__":
    asyncio.run(main())
