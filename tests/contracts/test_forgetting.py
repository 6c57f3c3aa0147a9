"""One person's data leaves the store, the queue and the judge's file, in files its bytes too; nobody else's does."""

import asyncio
import sqlite3
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from gaugeway.cli.main import main
from gaugeway.demo.servers import free_ports
from gaugeway.records import CaptureInfo, Context, Evaluation, PromptPart, Sample, Score, Supplement
from gaugeway.storage.erase import Subject
from gaugeway.storage.queues import from_url as open_queue
from gaugeway.storage.stores import Query
from gaugeway.storage.stores import from_url as open_store
from gaugeway.storage.templates import StoredTemplate, open_templates
from gaugeway.storage.trials import Arm, Kept, Trial, open_trials
from monitors.judges.middleware.cache import AnswerFile, CachedAnswer
from tests.support.postgres import postgres
from tests.support.redis import redis_server

HERS = "maria.kessler@example.org"
EVER = Query(since=0.0, until=1e12)


def sample(name, **fields):
    return Sample(**({"id": name, "started_at": 1.0, "app": "shop", "question": "q", "response": "r"} | fields))


def evaluation(one, said):
    return Evaluation(
        sample_id=one.id, metric="faithfulness", version="1", outcome=Score(0.5, said, ({"claim": said},))
    )


SAMPLES = {
    "question": sample("question", question=f"Where is the parcel of {HERS}?"),
    "response": sample("response", response=f"Ask {HERS.upper()}."),
    "context": sample("context", contexts=(Context(text="t", source=f"mail from {HERS}"),)),
    "tag": sample("tag", tags={"user": HERS}),
    "prompt": sample(
        "prompt",
        capture=CaptureInfo(
            parts=(PromptPart(role="system", kind="instructions", start=0, end=40, text=f"You write to {HERS}."),)
        ),
    ),
    "session": sample("session", session=f"s-{HERS}"),
    "other app": sample("other app", app="help", question=HERS, trace_id="t" * 32),
    "nobody": sample("nobody", question="maria.kessler(at)example.org", session="s-2"),
}


def supplement(name, **fields):
    return Supplement(**({"id": name, "received_at": 1.0, "source": "feedback"} | fields))


SUPPLEMENTS = [
    supplement("of hers", exchange_id="question", rating=0.0),
    supplement("by trace", trace_id="t" * 32, rating=1.0),
    supplement("says it", exchange_id="nobody", comment=f"She wrote from {HERS}"),
    supplement("of nobody", exchange_id="nobody", rating=1.0),
]


@dataclass
class Engines:
    """Where samples are kept and wait."""

    store: str
    queue: str
    directory: object

    def run(self, scenario, *, lease_s=60.0, max_attempts=5):
        async def main():
            store, queue = open_store(self.store), open_queue(self.queue, lease_s, max_attempts)
            try:
                return await scenario(store, queue)
            finally:
                await store.aclose()
                await queue.aclose()

        return asyncio.run(main())

    def arguments(self):
        if self.store.startswith("sqlite"):
            return ["--data-dir", self.directory]
        config = self.directory / "gaugeway.toml"
        upstream = '[[upstreams]]\nbase_url = "http://127.0.0.1:9"\n'
        config.write_text(f'{upstream}[store]\nurl = "{self.store}"\n[queue]\nurl = "{self.queue}"\n')
        return ["--data-dir", self.directory, "--config", config]


def embedded(path):
    return Engines(f"sqlite:///{path}/store.db", f"sqlite:///{path}/queue.db", path)


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def engines(request, tmp_path):
    if request.param == "sqlite":
        return embedded(tmp_path)
    url = postgres().database()
    return Engines(url, url if request.param == "postgresql" else redis_server().url(shards=3), tmp_path)


def fill(engines):
    async def scenario(store, queue):
        for one in SAMPLES.values():
            await store.add(one, [evaluation(one, f"about {one.question}")])
        await store.supplement(SUPPLEMENTS)
        await queue.put(list(SAMPLES.values()))
        assert len(await queue.lease(2)) == 2
        await queue.supply(SUPPLEMENTS)
        answers = AnswerFile(engines.directory / "judge-answers.db")
        await answers.put(b"k", CachedAnswer(HERS.encode(), 0.0, 1e12))
        await answers.aclose()

    engines.run(scenario)


async def left(store, queue):
    points = {point.sample_id for point in await store.series(EVER)}
    said = {one.id for name in SAMPLES.values() for one in await store.supplements_of(name)}
    depth = await queue.depth()
    return points, said, depth.ready + depth.leased, {one.id for one in await queue.take(10)}


def test_what_is_meant_goes_and_the_rest_stays(engines):
    fill(engines)

    async def scenario(store, queue):
        before = await left(store, queue)
        would = dict(await store.forget(Subject(match=HERS), dry_run=True))
        assert would == {"samples": 7, "evaluations": 7, "supplements": 3}
        assert (await left(store, queue))[:3] == before[:3]
        assert dict(await store.forget(Subject(match=HERS))) == would
        counted = {"queued samples": 7, "dead letters": 0, "queued supplements": 3}
        assert dict(await queue.forget(Subject(match=HERS), dry_run=True)) == counted
        assert dict(await queue.forget(Subject(match=HERS))) == counted
        points, said, waiting, _ = await left(store, queue)
        assert points == {"nobody"}
        assert said == {"of nobody"}
        assert waiting == 1
        assert set((await store.forget(Subject(match=HERS))).values()) == {0}

    engines.run(scenario)


@pytest.mark.parametrize(
    ("subject", "gone"),
    [
        ({"app": "help"}, {"other app"}),
        ({"session": f"s-{HERS}"}, {"session"}),
        ({"session": HERS}, set()),
        ({"app": "help", "match": HERS}, {"other app"}),
        ({"app": "help", "session": "s-2"}, set()),
        ({"match": "%"}, set()),
        ({"match": "MARIA.KESSLER("}, {"nobody"}),
    ],
)
def test_of_what_is_given_everything_must_fit(engines, subject, gone):
    fill(engines)

    async def scenario(store, queue):
        await store.forget(Subject(**subject))
        await queue.forget(Subject(**subject))
        points, _, waiting, _ = await left(store, queue)
        assert set(SAMPLES) - points == gone
        assert waiting == len(SAMPLES) - len(gone)

    engines.run(scenario)


@pytest.mark.parametrize("wanted", ["Jos\u00e9", "Jose\u0301", "JOS\u00c9", 'say "hi"', "a\nb", "\u6771\u4eac"])
def test_a_text_is_found_however_it_is_written(engines, wanted):
    text = 'by Jos\u00e9, who did say "hi", a\nb, \u6771\u4eac'

    async def scenario(store, _):
        await store.add(sample("a", question=text), [])
        return await store.forget(Subject(match=wanted))

    assert engines.run(scenario)["samples"] == 1


def test_a_row_that_cannot_be_read_is_searched_too(tmp_path):
    engines = embedded(tmp_path)
    fill(engines)
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE samples SET payload = '{broken ' || payload WHERE id = 'question'")
    connection.close()

    async def scenario(store, _):
        await store.forget(Subject(match=HERS))
        return await store.series(EVER)

    assert [point.sample_id for point in engines.run(scenario)] == ["nobody"]


@pytest.mark.parametrize("payload", [f'[1, ["{HERS}"]]', f'"{HERS}"', f"{{broken {HERS}", f"\x00{HERS}"])
def test_what_is_no_sample_is_searched_as_text(payload):
    assert Subject(match=HERS).meets_sample(payload)
    assert not Subject(match="somebody else").meets_sample(payload)


def test_dead_letters_go_and_what_was_said_about_them(engines):
    async def set_aside(_, queue):
        await queue.put([SAMPLES["question"], SAMPLES["nobody"]])
        assert len(await queue.lease(2)) == 2
        await asyncio.sleep(0.05)
        assert (await queue.depth()).dead == 2
        await queue.supply([SUPPLEMENTS[0], SUPPLEMENTS[3]])

    engines.run(set_aside, lease_s=0.01, max_attempts=1)

    async def scenario(_, queue):
        counted = {"queued samples": 0, "dead letters": 1, "queued supplements": 1}
        assert dict(await queue.forget(Subject(match=HERS))) == counted
        assert (await queue.depth()).dead == 1
        await queue.put([SAMPLES["question"], SAMPLES["nobody"]])  # whose id is free again, and whose is not
        assert [lease.sample.id for lease in await queue.lease(5)] == ["question"]
        return [one.id for one in await queue.take(5)]

    assert engines.run(scenario) == ["of nobody"]


def test_what_a_worker_holds_goes_and_does_not_come_back(engines):
    async def hold(_, queue):
        await queue.put([SAMPLES["question"]])
        assert len(await queue.lease(1)) == 1
        await queue.supply([SUPPLEMENTS[2]])
        assert len(await queue.take(1)) == 1

    engines.run(hold, lease_s=0.01)

    async def scenario(_, queue):
        counted = {"queued samples": 1, "dead letters": 0, "queued supplements": 1}
        assert dict(await queue.forget(Subject(match=HERS))) == counted
        await asyncio.sleep(0.05)
        return [*await queue.lease(5), *await queue.take(5)], await queue.depth()

    given, depth = engines.run(scenario, lease_s=0.01)
    assert given == []
    assert (depth.ready, depth.leased, depth.dead) == (0, 0, 0)


def test_more_than_one_batch(engines):
    async def scenario(store, queue):
        many = [sample(f"{number}", question=HERS if number % 2 else "q") for number in range(1203)]
        said = [supplement(f"{number}", exchange_id=f"{number}", rating=1.0) for number in range(1203)]
        for one in many[:603]:
            await store.add(one, [])
        await store.supplement(said)
        await queue.put(many)
        await queue.supply(said)
        counts = [await place.forget(Subject(match=HERS)) for place in (queue, store)]
        return counts, await queue.depth(), len(await queue.take(2000))

    (queued, stored), depth, said = engines.run(scenario)
    assert dict(stored) == {"samples": 301, "evaluations": 0, "supplements": 301}
    assert dict(queued) == {"queued samples": 601, "dead letters": 0, "queued supplements": 601}
    assert (depth.ready, said) == (602, 602)


def forget(*arguments):
    return CliRunner().invoke(main, ["forget", *map(str, arguments)])


def test_the_command_counts_and_says_nothing_of_the_content(engines):
    fill(engines)
    dry = forget(*engines.arguments(), "--match", HERS, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "nothing was deleted" in dry.output
    done = forget(*engines.arguments(), "--match", HERS)
    assert done.exit_code == 0, done.output
    counts = {"samples: 7", "evaluations: 7", "supplements: 3", "queued samples: 7", "queued supplements: 3"}
    assert counts | {"judge answers: 1"} <= set(dry.output.splitlines())
    assert counts | {"judge answers: 1"} <= set(done.output.splitlines())
    assert HERS not in done.output + dry.output
    again = forget(*engines.arguments(), "--match", HERS)
    assert {line for line in again.output.splitlines() if line[-1].isdigit() and not line.endswith(": 0")} == set()


def learned(version, app="shop", *, literals=("\x02Facts:\n", "\x04"), **split):
    shape = {"kind": "marker", "words": "\n"} | split
    return StoredTemplate(
        app=app, version=version, kind="u", literals=literals, slots=("passages",), split=shape, seen=10, learned_at=1.0
    )


@pytest.mark.parametrize(
    ("whose", "gone"),
    [
        (["--app", "help"], {"c"}),
        (["--match", HERS], {"b", "c", "d"}),
        (["--match", HERS, "--app", "shop"], {"b", "d"}),
        (["--app", "shop", "--session", "s-2"], set()),
    ],
)
def test_what_was_learned_from_an_app_or_quotes_somebody_goes(engines, whose, gone):
    fill(engines)
    mine = ("\x02You answer for " + HERS.upper() + ":", "\x04")
    every = [
        learned("a"),
        learned("b", literals=mine),
        learned("c", "help", literals=mine),
        learned("d", trailer=[HERS]),
    ]

    async def keep_and_read(*, keep):
        templates = open_templates(engines.store)
        for one in every if keep else ():
            await templates.put_template(one)
        if keep:
            await templates.set_template_state("shop", "b", "confirmed")
        left = await templates.templates()
        await templates.aclose()
        return {one.version for one in left}

    assert asyncio.run(keep_and_read(keep=True)) == set("abcd")
    dry = forget(*engines.arguments(), *whose, "--dry-run")
    assert asyncio.run(keep_and_read(keep=False)) == set("abcd")
    done = forget(*engines.arguments(), *whose)
    for answer in (dry, done):
        assert answer.exit_code == 0, answer.output
        assert ("templates:" in answer.output) == bool(gone)
        assert not gone or f"templates: {len(gone)}" in answer.output.splitlines()
    assert asyncio.run(keep_and_read(keep=False)) == set("abcd") - gone
    if engines.store.startswith("sqlite"):
        left_over = HERS.upper().encode() in (engines.directory / "templates.db").read_bytes()
        assert left_over == bool({"b", "c"} - gone)


def test_requests_that_wait_for_a_trial_go_too(tmp_path):
    engines = embedded(tmp_path)
    url = engines.store
    arm = Arm(base_url="http://127.0.0.1:1/v1", api_key="${KEY}")
    trial = Trial(
        name="t", app="shop", arms=(arm,), send="redacted", primary="m", usd=1.0, judge_usd=1.0, until=2.0, by="me"
    )

    async def kept():
        trials = open_trials(url)
        await trials.start(trial)
        for exchange, text in (("a", HERS), ("b", "somebody else")):
            assert await trials.keep(
                [("t", exchange, Kept(route="messages", body=f'{{"prompt": "{text}"}}'))], 1.0
            ) == [True]
        await trials.aclose()

    async def waiting():
        trials = open_trials(url)
        found = (await trials.waiting(None))[1]
        await trials.aclose()
        return {exchange for _, exchange in found}

    fill(engines)
    asyncio.run(kept())
    dry = forget(*engines.arguments(), "--match", HERS, "--dry-run")
    assert "trial requests: 1" in dry.output.splitlines()
    assert asyncio.run(waiting()) == {"a", "b"}
    done = forget(*engines.arguments(), "--match", HERS)
    assert done.exit_code == 0, done.output
    assert "trial requests: 1" in done.output.splitlines()
    assert asyncio.run(waiting()) == {"b"}
    assert HERS.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("trials.db*"))


def test_what_was_spilled_while_the_queue_was_away_goes_too(tmp_path):
    engines = embedded(tmp_path)
    fill(engines)
    fill(Engines(f"sqlite:///{tmp_path}/store.db", f"sqlite:///{tmp_path}/spill.db", tmp_path))
    done = forget(*engines.arguments(), "--match", HERS)
    assert done.exit_code == 0, done.output
    assert {"queued samples: 14", "samples: 7"} <= set(done.output.splitlines())
    assert HERS.encode() not in (tmp_path / "spill.db").read_bytes()


def test_no_byte_is_left_in_the_files(tmp_path):
    fill(embedded(tmp_path))
    assert HERS.encode() in (tmp_path / "store.db").read_bytes()
    assert forget("--data-dir", tmp_path, "--match", HERS).exit_code == 0
    for file in tmp_path.iterdir():
        assert HERS.encode() not in file.read_bytes(), file


def test_in_redis_neither_her_ids_nor_her_leases_are_left(tmp_path):
    engines = Engines(f"sqlite:///{tmp_path}/store.db", redis_server().url(prefix="forgetting"), tmp_path)
    fill(engines)

    async def scenario(_, queue):
        await queue.forget(Subject(match=HERS))

    engines.run(scenario)
    waiting = redis_server().ask("HKEYS", "{forgetting:q:0}:waiting:ids")
    assert waiting == [b"nobody"]
    assert redis_server().ask("XPENDING", "{forgetting:q:0}:waiting", "workers")["pending"] == 0


def test_an_engine_that_is_away_is_told_and_nothing_claims_success(tmp_path):
    (port,) = free_ports(1)
    engines = Engines(f"postgresql://u:hidden@127.0.0.1:{port}/d", f"redis://127.0.0.1:{port}/0", tmp_path)
    answer = forget(*engines.arguments(), "--match", HERS)
    assert answer.exit_code == 2
    assert "deleted" not in answer.output
    assert "hidden" not in answer.output
    assert HERS not in answer.output


@pytest.mark.parametrize("arguments", [[], ["--match", " "], ["--match", "x"], ["--session", "s"]])
def test_without_a_subject_or_data_nothing_is_done(tmp_path, arguments):
    answer = forget("--data-dir", tmp_path / "none", *arguments)
    assert answer.exit_code == 2
    assert not (tmp_path / "none").exists()
