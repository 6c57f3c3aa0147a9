"""A month of traffic written straight into a store: exchanges with five evaluations each, late scores, ratings."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from gaugeway.records import Context, Sample, Supplement
from gaugeway.storage.engines.conditions import day_of
from gaugeway.storage.engines.postgres.migrate import SCHEMA as PG_SCHEMA
from gaugeway.storage.engines.postgres.store import _make
from gaugeway.storage.engines.sqlite.store import SQLiteStore

DAY_S = 86_400.0
DAYS = 30
DROP_S = 3 * 3600.0
METRICS = {
    "lexical_groundedness": 0.79,
    "faithfulness": 0.93,
    "answer_relevancy": 0.88,
    "context_relevancy": 0.81,
    "hallucination": 0.07,
}
APPS = ("support", "handbook", "checkout", "search")
MODELS = ("chat-1", "chat-2", "chat-mini")
PROMPTS = tuple(f"9f3b21c{number}" for number in range(5))
RARE = "zanzibar"
"""A word in one of 100,000 questions."""
RATED_EVERY, BATCH = 500, 20_000
_WORDS = [
    "order",
    "refund",
    "delivery",
    "voucher",
    "invoice",
    "customs",
    "parcel",
    "warehouse",
    "discount",
    "student",
    "courier",
    "receipt",
    "account",
    "payment",
    "address",
    "return",
    "warranty",
    "battery",
    "screen",
    "cable",
    "adapter",
    "colour",
    "size",
    "stock",
    "price",
    "shipping",
    "store",
    "gift",
    "card",
    "number",
]
_COLUMNS = [
    "sample_id",
    "metric",
    "version",
    "started_at",
    "app",
    "model",
    "outcome",
    "value",
    "reason",
    "detail",
    "evidence",
    "judge",
    "seconds",
    "cost_usd",
    "rate",
    "prompt",
    "tags",
]


def exchanges(count: int, now: float, seed: int = 1) -> Iterator[tuple[Sample, list[tuple[Any, ...]]]]:
    """The exchanges of the last 30 days, evenly spread, with rows of their evaluations; one app got worse lately."""
    draw = random.Random(seed)
    passage = [" ".join(draw.choices(_WORDS, k=60)) + "." for _ in range(200)]
    for index in range(count):
        at = now - DAYS * DAY_S * (1 - index / count)
        app = APPS[int(draw.random() ** 2 * len(APPS))]
        rare = f" {RARE}" if index % 100_000 == 7 else ""
        number = draw.randrange(10**6)
        prompt = PROMPTS[min(len(PROMPTS) - 1, int(len(PROMPTS) * index / count + draw.random()))]
        tags = {"release": str(30 + int(12 * index / count)), "tenant": f"tenant-{draw.randrange(20)}"}
        sample = Sample(
            id=f"{draw.getrandbits(128):032x}",
            started_at=at,
            app=app,
            model=MODELS[draw.randrange(3)],
            question=f"What about {draw.choice(_WORDS)} {number}{rare}?",
            contexts=(Context(text=draw.choice(passage), id=str(number), score=0.8),),
            context_source="explicit",
            response=draw.choice(passage)[:200],
            tags=tags,
            trace_id=f"{draw.getrandbits(128):032x}",
            prompt=prompt,
        )
        worse = 0.15 if app == "support" and at > now - DROP_S else 0.0
        yield sample, evaluations(sample, msgspec.json.encode(tags).decode(), worse, draw)


def evaluations(sample: Sample, tags: str, worse: float, draw: random.Random) -> list[tuple[Any, ...]]:
    """Rows as `stores.rows.row` makes them, some skipped or failed, a few by a metric's next version too."""
    made = []
    for metric, level in METRICS.items():
        judge = None if metric == "lexical_groundedness" else "judge-large"
        chance, value, reason, detail, kind = draw.random(), None, "", "", "score"
        if chance < 0.01:
            kind, reason = ("failed", "timeout") if judge else ("skipped", "no_contexts")
        elif chance < 0.03:
            kind, reason = "skipped", "refusal"
        else:
            mean = level - worse if metric == "faithfulness" else level
            value, detail = round(draw.betavariate(9 * mean, 9 * (1 - mean)), 3), "4 of 5 claims"
        rate = 0.5 if judge and sample.app == "search" else 1.0
        row = (sample.id, metric, "1", sample.started_at, sample.app, sample.model, kind, value, reason, detail, "[]")
        made.append((*row, judge, 0.8, 0.0004, rate, sample.prompt, tags))
    return made


def said(samples: Sequence[Sample], number: int) -> list[Supplement]:
    """What people said of some of these: a rating, half of them a label."""
    return [
        Supplement(
            id=f"said-{number}-{index}",
            received_at=one.started_at + 600.0,
            source="feedback",
            exchange_id=one.id,
            rating=float(index % 7 > 0),
            label="faithfulness:fail" if index % 14 == 0 else None,
        )
        for index, one in enumerate(samples[::RATED_EVERY])
    ]


async def fill_sqlite(path: Path, count: int, now: float) -> None:
    """Fill a file: without its indices, which are made at the end."""
    store = SQLiteStore(path)
    await store.load()
    await store.aclose()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = -1500000")
        connection.execute("PRAGMA synchronous = OFF")
        aside = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger')")
        made = [(kind, name, sql) for kind, name, sql in aside if sql]
        for kind, name, _ in made:
            connection.execute(f"DROP {kind} {name}")
        rows, number = exchanges(count, now), 0
        while some := list(islice(rows, BATCH)):
            samples = [one for one, _ in some]
            payloads = [msgspec.json.encode(one).decode() for one in samples]
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO samples (id, started_at, app, model, payload, trace_id) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (s.id, s.started_at, s.app, s.model, text, s.trace_id)
                    for s, text in zip(samples, payloads, strict=True)
                ],
            )
            connection.executemany(
                f"INSERT INTO evaluations ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})",
                [row for _, found in some for row in found],
            )
            connection.executemany(
                "INSERT INTO supplements (id, received_at, kind, value, payload) VALUES (?, ?, 'exchange', ?, ?)",
                [(s.id, s.received_at, s.exchange_id, msgspec.json.encode(s).decode()) for s in said(samples, number)],
            )
            connection.execute("COMMIT")
            number += 1
        for _, _, sql in made:
            connection.execute(sql)


async def fill_postgres(url: str, count: int, now: float) -> None:
    """Fill a database that has its tables: a day is filled before it is attached, without indices until then."""
    connection = await asyncpg.connect(url, server_settings={"search_path": PG_SCHEMA})
    try:
        today = day_of(now)
        for day in range(today - DAYS, today + 2):
            async with connection.transaction():
                await _make(connection, day)
        rows, number = exchanges(count, now), 0
        while some := list(islice(rows, BATCH)):
            samples = [one for one, _ in some]
            await connection.copy_records_to_table(
                "samples",
                columns=["id", "day", "started_at", "app", "model", "payload", "trace_id"],
                records=[
                    (
                        s.id,
                        day_of(s.started_at),
                        s.started_at,
                        s.app,
                        s.model,
                        msgspec.json.encode(s).decode(),
                        s.trace_id,
                    )
                    for s in samples
                ],
            )
            await connection.copy_records_to_table(
                "evaluations",
                columns=[*_COLUMNS, "day"],
                records=[(*row, day_of(row[3])) for _, found in some for row in found],
            )
            await connection.copy_records_to_table(
                "supplements",
                columns=["id", "received_at", "kind", "value", "says", "payload"],
                records=[
                    (s.id, s.received_at, "exchange", s.exchange_id, True, msgspec.json.encode(s).decode())
                    for s in said(samples, number)
                ],
            )
            number += 1
        await connection.execute("ANALYZE")
    finally:
        await connection.close()
