"""The first scored exchange leaves one line in the log, which says what was captured and why a score is missing."""

import asyncio
import functools
import logging
import time

from gaugeway.records import Context, Evaluation, Failed, Sample, Score, Skipped
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.evaluation.first_exchange import described, log_first


def in_a_loop(test):
    @functools.wraps(test)
    def run(*arguments, **fixtures):
        asyncio.run(test(*arguments, **fixtures))

    return run


def sample(**changes):
    given = {
        "id": "ab",
        "started_at": 1.0,
        "question": "how?",
        "contexts": (Context(text="a"), Context(text="b")),
        "context_source": "templates",
    }
    return Sample(app="shop", model="m", response="secret answer", **(given | changes))


def evaluations(of="ab", **outcomes):
    return [Evaluation(sample_id=of, metric=name, version="1", outcome=outcome) for name, outcome in outcomes.items()]


def test_it_says_what_was_found_and_scored():
    said = described(sample(), evaluations(lexical=Score(0.834, "", ()), faithfulness=Skipped("not_sampled")))
    assert said == (
        "app shop, model m, question found, 2 passages found by 'templates'; scores: lexical 0.83; "
        "no score: faithfulness (not sampled)"
    )


def test_without_passages_it_says_what_to_do():
    said = described(sample(contexts=(), context_source="none", question=None), evaluations(f=Failed("timeout", "x")))
    assert "no question found, no passages found (see docs/how-to/tell-gaugeway-the-contexts.md)" in said
    assert said.endswith("no score: f (failed: timeout)")


def test_passages_sent_with_the_request_are_not_found():
    said = described(sample(context_source="explicit"), evaluations(lexical=Score(0.8, "", ())))
    assert "2 passages sent with the request" in said


class Asked(SQLiteStore):
    """A store that says when it was asked for points."""

    def __init__(self, path):
        super().__init__(path)
        self.asked = asyncio.Event()

    async def series(self, query):
        found = await super().series(query)
        self.asked.set()
        return found


async def watched(store, later_s=0.0):
    """Watch as processes that start now, or `later_s` seconds from now."""
    began = time.time() + later_s
    await asyncio.wait_for(log_first(store, "http://127.0.0.1:9465", began=began, retention_days=30, every_s=0.001), 30)


@in_a_loop
async def test_the_first_exchange_of_a_store_is_logged_once_without_content(caplog, tmp_path):
    caplog.set_level(logging.INFO, "gaugeway")
    store = Asked(tmp_path / "store.db")
    try:
        watch = asyncio.ensure_future(watched(store))
        await store.asked.wait()
        now = time.time()
        await store.add(sample(id="late", started_at=now - 1.0), evaluations("late", lexical=Score(1.0, "", ())))
        await watch
        await store.add(sample(id="next", started_at=now), evaluations("next", lexical=Score(1.0, "", ())))
        await watched(store, later_s=3600.0)  # after a restart
    finally:
        await store.aclose()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("http://127.0.0.1:9465/exchanges/late")
    assert "secret" not in caplog.text


@in_a_loop
async def test_a_store_that_fails_is_asked_again(caplog, tmp_path):
    caplog.set_level(logging.INFO, "gaugeway")
    (tmp_path / "store.db").mkdir()  # cannot be opened as a database
    store = SQLiteStore(tmp_path / "store.db")
    watch = asyncio.ensure_future(watched(store))
    try:
        await asyncio.sleep(0.1)
        assert not watch.done(), "an error would end it"
        (tmp_path / "store.db").rmdir()
        await store.add(sample(started_at=time.time()), evaluations(lexical=Score(1.0, "", ())))
        await watch
    finally:
        watch.cancel()
        await store.aclose()
    assert len(caplog.messages) == 1


@in_a_loop
async def test_an_exchange_before_the_first_look_is_logged_too(caplog, tmp_path):
    caplog.set_level(logging.INFO, "gaugeway")
    store = SQLiteStore(tmp_path / "store.db")
    try:
        await store.add(sample(started_at=time.time() - 2.0), evaluations(lexical=Score(1.0, "", ())))
        await watched(store)
    finally:
        await store.aclose()
    assert len(caplog.messages) == 1
