"""Every store against a plain model of the port, through sequences of operations that a machine makes up."""

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from gaugeway.records import Context, Evaluation, Failed, Sample, Score, Skipped, Supplement
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.engines.postgres.store import PostgresStore
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.joining import completes
from gaugeway.storage.stores import Query, from_url
from tests.support.clickhouse import clickhouse as clickhouse_server
from tests.support.machines import run_machine, tally
from tests.support.postgres import postgres

DAY_S = 86_400.0
BEGINNINGS = {"a": 5.0, "b": DAY_S - 0.5, "c": DAY_S, "d": DAY_S + 7.0, "e": 2 * DAY_S + 1.0, "f'\u00e9": 5 * DAY_S}
WHO = st.integers(0, 1)
IDS = st.sampled_from(list(BEGINNINGS))
METRICS = st.sampled_from(["m", "abstained", "retriever_score"])  # signals, which engines may write in another way
SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
OUTCOMES = st.one_of(SCORES.map(Score), st.just(Skipped("no_contexts")), st.just(Failed("timeout", "60 s")))
EVALUATIONS = st.lists(
    st.tuples(METRICS, st.sampled_from(["1", "2"]), OUTCOMES, st.sampled_from([0.1, 0.5, 1.0])), max_size=4
)
GAPS = st.fixed_dictionaries(
    {},
    optional={
        "question": st.sampled_from(["Why?", "How?"]),
        "reference": st.just("so"),
        "contexts": st.just((Context(text="c"),)),
    },
)
ADDRESSES = ({"exchange_id": "a"}, {"exchange_id": "e"}, {"key": "k1"}, {"trace_id": "t0"}, {"trace_id": "t1"}, {})
SUPPLEMENTS = st.lists(st.integers(0, 17), max_size=4, unique=True)
TIMES = st.sampled_from([0.0, 5.0, DAY_S / 2, DAY_S - 0.5, DAY_S, DAY_S + 7.5, 2 * DAY_S, 4 * DAY_S, 9 * DAY_S])
MAYBE = {"metric": METRICS, "app": st.sampled_from(["x", "y", "z"]), "model": st.sampled_from(["g", "h"])}
NARROW = {
    "outcome": st.sampled_from(["score", "skipped", "failed"]),
    "least": SCORES,
    "most": SCORES,
    "tag": st.sampled_from([("tenant", "1"), ("tenant", "9"), ("other", "1")]),
}
QUERIES = st.builds(
    lambda begin, end, given: Query(since=begin, until=end, **given),
    TIMES,
    TIMES,
    st.fixed_dictionaries({}, optional=MAYBE | NARROW),
)

# Not TRUNCATE: that leaves what the triggers keep.
EMPTY = "WITH a AS (DELETE FROM samples), b AS (DELETE FROM evaluations) DELETE FROM supplements"


def sample_of(sample_id, **gaps):
    """All but the gaps follows from the id: it is one exchange, however often it comes."""
    number = list(BEGINNINGS).index(sample_id)
    return Sample(
        id=sample_id,
        started_at=BEGINNINGS[sample_id],
        app="xy"[number % 2],
        model="gh"[number // 2 % 2],
        response=f"answer {number}",
        tags={"tenant": str(number % 3)} if number else {},
        trace_id=f"t{number % 2}",
        context_key=f"k{number % 3}",
        prompt=f"p{number % 2}" if number % 3 else None,
        **gaps,
    )


def supplement_of(number):
    fields = ADDRESSES[number % len(ADDRESSES)]
    about = {"rating": number % 5 / 4} if number % 2 else {"comment": "c"}
    at = DAY_S + 100.0 * (number % 7)
    return Supplement(id=f"s{number:02}", received_at=at, source="feedback", **fields, **about)


class Machine(RuleBasedStateMachine):
    """Two processes at one store."""

    def __init__(self, storage):
        super().__init__()
        self.samples: dict[str, Sample] = {}
        self.evaluations: dict[str, dict[tuple[str, str], Evaluation]] = {}
        self.said: dict[str, Supplement] = {}
        self.runner = asyncio.Runner()
        self.directory = TemporaryDirectory()
        self.open = storage(Path(self.directory.name))
        self.stores = [self.open(), self.open()]
        tally.sequences += 1

    def teardown(self):
        for sample_id in BEGINNINGS:
            self.look(sample_id, 0)
        for store in self.stores:
            self.runner.run(store.aclose())
        self.runner.close()
        self.directory.cleanup()

    def store(self, who):
        tally.operations += 1
        return self.stores[who]

    def offer(self, sample, evaluations):
        """What the model would then hold, and what is new of that."""
        old = self.samples.get(sample.id)
        fills = old is not None and completes(sample, old)
        there = dict(self.evaluations.get(sample.id, {}))
        fillable = {key for key, one in there.items() if fills and isinstance(one.outcome, Skipped)}
        new = []
        for one in evaluations:
            key = (one.metric, one.version)
            if key not in there or (key in fillable and not isinstance(one.outcome, Skipped)):
                fillable.discard(key)
                there[key] = one
                new.append(one)
        return (sample if old is None or fills else old), there, new

    @rule(sample_id=IDS, gaps=GAPS, given=EVALUATIONS, who=WHO)
    def add(self, sample_id, gaps, given, who):
        sample, evaluations = self.made(sample_id, gaps, given)
        kept, there, new = self.offer(sample, evaluations)
        assert list(self.runner.run(self.store(who).add(sample, evaluations))) == new
        self.samples[sample_id], self.evaluations[sample_id] = kept, there

    @rule(sample_id=IDS, gaps=GAPS, outcome=OUTCOMES, who=WHO)
    def come_again(self, sample_id, gaps, outcome, who):
        """What is there already comes once more, fuller or otherwise, with other outcomes.

        No choice may depend on what is there: after an `add` that was given up that is a matter of time.
        """
        if sample_id not in self.samples:
            return
        sample = replace(self.samples[sample_id], **gaps)
        again = [replace(one, outcome=outcome) for one in self.evaluations[sample_id].values()]
        kept, there, new = self.offer(sample, again)
        assert list(self.runner.run(self.store(who).add(sample, again))) == new
        self.samples[sample_id], self.evaluations[sample_id] = kept, there
        self.look(sample_id, who)

    def made(self, sample_id, gaps, given):
        evaluations = [
            Evaluation(sample_id=sample_id, metric=metric, version=version, outcome=outcome, rate=rate)
            for metric, version, outcome, rate in given
        ]
        return sample_of(sample_id, **gaps), evaluations

    @rule(sample_id=IDS, gaps=GAPS, given=EVALUATIONS, turns=st.integers(0, 8), who=WHO)
    def give_up_an_add(self, sample_id, gaps, given, turns, who):
        """Everything of it is there or nothing, and the store goes on."""
        sample, evaluations = self.made(sample_id, gaps, given)
        store = self.store(who)

        async def begun():
            task = asyncio.ensure_future(store.add(sample, evaluations))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await store.prune(0.0)  # SQLite has done what was given up, or never will, when a later write is done
            await asyncio.sleep(0.005)  # ClickHouse may still carry it out
            return await store.sample(sample_id)

        found = self.runner.run(begun())
        kept, there, _ = self.offer(sample, evaluations)
        if found != self.stored(sample_id) and not self.same(found, self.stored(sample_id)):
            self.samples[sample_id], self.evaluations[sample_id] = kept, there
            assert self.same(found, self.stored(sample_id))

    def stored(self, sample_id):
        if sample_id not in self.samples:
            return None
        return self.samples[sample_id], list(self.evaluations[sample_id].values())

    def same(self, found, expected):
        """In whatever order the evaluations come."""
        if found is None or expected is None:
            return found is expected
        return found[0] == expected[0] and sorted(map(repr, found[1])) == sorted(map(repr, expected[1]))

    @rule(sample_id=IDS, who=WHO)
    def look(self, sample_id, who):
        assert self.same(self.runner.run(self.store(who).sample(sample_id)), self.stored(sample_id))

    @rule(who=WHO)
    def questions(self, who):
        expected = {name: one.question for name, one in self.samples.items() if one.question}
        assert self.runner.run(self.store(who).questions([*BEGINNINGS, "nobody"])) == expected

    def concerned(self, supplement):
        if supplement.exchange_id is not None:
            return [one for one in self.samples.values() if one.id == supplement.exchange_id]
        if supplement.key is not None:
            return [one for one in self.samples.values() if one.context_key == supplement.key]
        return [one for one in self.samples.values() if one.trace_id == supplement.trace_id]

    @rule(numbers=SUPPLEMENTS, who=WHO)
    def supplement(self, numbers, who):
        given = [supplement_of(number) for number in numbers]
        found = self.runner.run(self.store(who).supplement(given))
        kept = [one for one in given if one.exchange_id or one.key or one.trace_id]
        self.said |= {one.id: one for one in kept}
        meant = {one.id: one for supplement in kept for one in self.concerned(supplement)}
        assert list(found) == sorted(meant.values(), key=lambda one: (one.started_at, one.id))

    @rule(sample_id=IDS, who=WHO)
    def supplements_of(self, sample_id, who):
        one = sample_of(sample_id)
        names = {("exchange_id", one.id), ("key", one.context_key), ("trace_id", one.trace_id)}
        meant = [said for said in self.said.values() if any(getattr(said, kind) == value for kind, value in names)]
        expected = sorted(meant, key=lambda said: (said.received_at, said.id))
        assert list(self.runner.run(self.store(who).supplements_of(one))) == expected

    def matching(self, query):
        """Samples and evaluations that a query asks for."""
        for one in self.samples.values():
            apart = any(
                wanted is not None and wanted != is_so
                for wanted, is_so in ((query.app, one.app), (query.model, one.model))
            )
            if not query.since <= one.started_at < query.until or apart:
                continue
            if query.tag is not None and one.tags.get(query.tag[0]) != query.tag[1]:
                continue
            for evaluation in self.evaluations[one.id].values():
                value = evaluation.outcome.value if isinstance(evaluation.outcome, Score) else None
                if query.metric is not None and query.metric != evaluation.metric:
                    continue
                if query.outcome is not None and query.outcome != type(evaluation.outcome).__name__.lower():
                    continue
                bounds = query.least is not None or query.most is not None
                if bounds and (
                    value is None or not (query.least or 0.0) <= value <= (1.0 if query.most is None else query.most)
                ):
                    continue
                yield one, evaluation, value

    @rule(
        query=QUERIES,
        order=st.sampled_from(["oldest", "newest", "lowest", "highest"]),
        limit=st.one_of(st.none(), st.integers(0, 5)),
        who=WHO,
    )
    def series(self, query, order, limit, who):
        points = self.runner.run(self.store(who).series(replace(query, order=order, limit=limit)))
        expected = list(self.matching(query))
        if order in ("lowest", "highest"):
            expected = [row for row in expected if row[2] is not None]
        key = {
            "oldest": lambda at, _: (at,),
            "newest": lambda at, _: (-at,),
            "lowest": lambda at, value: (value, at),
            "highest": lambda at, value: (-value, at),
        }[order]
        ordered = sorted(key(one.started_at, value) for one, _, value in expected)
        assert [key(point.started_at, point.value) for point in points] == ordered[:limit]
        told = Counter((p.sample_id, p.metric, p.version, p.outcome, p.value, p.rate, p.app, p.model) for p in points)
        known = Counter(
            (one.id, e.metric, e.version, type(e.outcome).__name__.lower(), value, e.rate, one.app, one.model)
            for one, e, value in expected
        )
        assert told <= known

    @rule(query=QUERIES, by=st.sampled_from(["", "model", "prompt", "tag:tenant"]), who=WHO)
    def summary(self, query, by, who):
        expected = {}
        for one, evaluation, value in self.matching(query):
            part = {"": "", "model": one.model, "prompt": one.prompt or ""}.get(by, one.tags.get("tenant", ""))
            sums = expected.setdefault((one.app, evaluation.metric, part), [0.0] * 7)
            weight = 1.0 / evaluation.rate
            if value is not None:
                terms = (1, 0, weight, weight * value, weight**2, weight**2 * value, weight**2 * value**2)
            else:
                terms = (0, isinstance(evaluation.outcome, Failed), 0, 0, 0, 0, 0)
            sums[:] = [total + term for total, term in zip(sums, terms, strict=True)]
        found = {
            (one.app, one.metric, one.slice): [one.n, one.failed, one.w, one.wx, one.w2, one.w2x, one.w2x2]
            for one in self.runner.run(self.store(who).summary(query, by))
        }
        kept = {key for key, sums in found.items() if any(sums)}
        assert kept == {key for key, sums in expected.items() if any(sums)}
        assert found.keys() <= expected.keys()
        for key in kept:
            assert found[key] == pytest.approx(expected[key], rel=1e-9, abs=1e-9)

    @rule(begin=TIMES, end=TIMES, metric=st.one_of(st.none(), METRICS), who=WHO)
    def scored(self, begin, end, metric, who):
        query = Query(since=begin, until=end, metric=metric)
        scores = [row for row in self.matching(query) if row[2] is not None]
        twice = Counter((one.id, evaluation.metric) for one, evaluation, _ in scores)
        try:
            added = self.runner.run(self.store(who).scored(query))
        except Unsupported:
            return
        if max(twice.values(), default=0) > 1:
            return  # which of two versions is the last is not the model's to say
        expected = {}
        for one, evaluation, value in scores:
            expected.setdefault((one.app, evaluation.metric), []).append((value, evaluation.rate))
        found = {(one.app, one.metric): one for one in added}
        assert found.keys() == expected.keys()
        for key, rows in expected.items():
            one = found[key]
            values, rates = zip(*rows, strict=True)
            assert (one.n, one.least_rate, one.most_rate) == (len(rows), min(rates), max(rates))
            assert (one.x, one.x2) == pytest.approx((sum(values), sum(value**2 for value in values)))

    @rule(query=QUERIES, who=WHO)
    def ratings(self, query, who):
        expected = []
        for said in sorted(self.said.values(), key=lambda one: (one.received_at, one.id)):
            about = self.concerned(said)
            if said.rating is None or said.received_at < query.since - 3600.0 or not about:
                continue
            last = max(about, key=lambda one: one.started_at)
            expected += [
                (said.received_at, one.id, evaluation.metric, value, said.rating)
                for one, evaluation, value in self.matching(query)
                if one.id == last.id and value is not None
            ]
        found = self.runner.run(self.store(who).ratings(query))
        told = [(one.received_at, one.sample_id, one.metric, one.value, one.rating) for one in found]
        assert [row[0] for row in told] == [row[0] for row in expected]
        assert Counter(told) == Counter(expected)

    @rule(days=st.sampled_from([0, 1, 1, 2, 6]), who=WHO)
    def prune(self, days, who):
        """At the end of a day, where engines that drop whole days and those that do not are the same."""
        before = days * DAY_S
        gone = [name for name, one in self.samples.items() if one.started_at < before]
        assert self.runner.run(self.store(who).prune(before)) == len(gone)
        for name in gone:
            del self.samples[name]
            del self.evaluations[name]
        self.said = {name: one for name, one in self.said.items() if one.received_at >= before}
        for name in BEGINNINGS:
            self.supplements_of(name, who)

    @rule(who=WHO)
    def end_and_begin_again(self, who):
        self.runner.run(self.stores[who].aclose())
        self.stores[who] = self.open()


def sqlite():
    return lambda directory: lambda: SQLiteStore(directory / "store.db")


def postgresql():
    url = postgres().database()

    def empty(_):
        postgres().ask(url, EMPTY)
        return lambda: PostgresStore(url)

    return empty


def clickhouse():
    server = clickhouse_server()
    return lambda _: partial(from_url, server.database())


@pytest.mark.full
@pytest.mark.parametrize(("engine", "examples"), [(sqlite, 15), (postgresql, 3), (clickhouse, 2)])
def test_a_store_does_what_the_model_does(engine, examples):
    storage = engine()
    run_machine(lambda: Machine(storage), examples=examples)
