"""Two releases side by side, as while one is rolled out: every sample is evaluated once, whoever captured it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import re
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from gaugeway.storage.engines.postgres.migrate import scripts
from tests.support.fleet import wait_until
from tests.support.in_thread import in_thread
from tests.support.postgres import Postgres, postgres
from tests.support.product import Product
from tests.support.redis import redis_server
from tests.support.scenario import Script
from tests.support.traffic import Sent, request_of, send

ROOT = Path(__file__).parents[2]
PACKAGES = ("gaugeway", "gateway", "monitors", "dashboards")
BEFORE_ANY_RELEASE = "20a5c6f"
CONFIG = """
[[upstreams]]
base_url = "{url}/app/v1"

[capture]
salt = "fleet"

[judge]
base_url = "{url}/judge/v1"
model = "judge-1"

[metrics.faithfulness]
rate = 1.0

[metrics.context_relevancy]
enabled = false

[metrics.answer_relevancy]
enabled = false

[metrics.hallucination]
enabled = false

[queue]
url = "{queue}"
lease_s = 30

[store]
url = "{store}"

[monitors]
join_window_s = 0
"""
AT_ONCE = 10


def previous_release(directory: Path) -> Path:
    """The code of the last release, or of the last commit before there was any. Skips where that is not at hand."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no history here: the code of the release before is not at hand")
    tag = subprocess.run(["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, check=False)
    name = tag.stdout.decode().strip() or BEFORE_ANY_RELEASE
    listed = subprocess.run(["git", "ls-tree", "--name-only", name], cwd=ROOT, capture_output=True, check=False)
    packages = [package for package in PACKAGES if package in listed.stdout.decode().split()]
    archive = subprocess.run(["git", "archive", name, *packages], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"{name} is not in the history of this checkout")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory


def next_release(directory: Path) -> Path:
    """This release, with what the next one may do to it: fields added to what is queued, and columns to the tables."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    records = directory / "gaugeway" / "records.py"
    changed, count = re.subn(
        r"(class (?:Sample|Supplement|Evaluation|Alert|Finding)\b.*?\n)(?=\n\n|\Z|\n    @)",
        r'\1    novelty: str = "new"' + "\n",
        records.read_text("utf-8"),
        flags=re.DOTALL,
    )
    assert count == 5
    records.write_text(changed, "utf-8")
    tables = ("waiting", "dead", "supplies", "samples", "evaluations", "supplements", "states", "terms")
    added = f"-- oldest: {len(scripts())}\n"
    added += "".join(f"ALTER TABLE {table} ADD COLUMN novelty text;\n" for table in tables)
    (directory / "gaugeway/storage/engines/postgres/migrations/9999_next.sql").write_text(added, "utf-8")
    return directory


RELEASES = {"the release before": (previous_release, None), "the release after": (None, next_release)}


class Rollout:
    """Processes of two releases over one queue and store; what each captured is followed to its evaluation."""

    def __init__(self, directory: Path, config: str, server: Postgres, store: str) -> None:
        self.sent = Sent()
        self.running: list[Product] = []
        self._directory, self._config, self._server, self._store = directory, config, server, store

    def start(self, command: str, root: Path | None) -> Product:
        """Start one plane of a release."""
        place = self._directory / f"{len(self.running)}"
        place.mkdir()
        one = Product(place, self._config, command=command, root=root)
        self.running.append(one)
        one.start()
        assert Path(f"/proc/{one.pid}/cwd").resolve() == (root or Path.cwd()).resolve()
        return one

    def ask(self, *gateways: Product) -> None:
        """Send requests to all of these, and wait until every sample so far is evaluated."""
        numbers = range(self.sent.count, self.sent.count + AT_ONCE * len(gateways))
        asyncio.run(send([one.port for one in gateways], [request_of(n) for n in numbers], self.sent, places=4))
        assert self.sent.unharmed
        wanted = {(f"{n + 1:032x}", metric) for n in range(self.sent.count) for metric in METRICS}
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: len(self._evaluated()) >= len(wanted), 30)
        rows = self._evaluated()
        assert {(trace, metric) for trace, metric, _ in rows} == wanted, self.logs()
        assert len(rows) == len(wanted)
        assert {outcome for *_, outcome in rows} == {"score"}

    def _evaluated(self) -> list[tuple[object, ...]]:
        # Asked in SQL: the store's own code belongs to one of the releases. Signals are of this release only.
        return self._server.ask(
            self._store,
            "SELECT trace_id, metric, outcome FROM evaluations JOIN samples ON samples.id = evaluations.sample_id"
            f" WHERE metric IN ({', '.join(repr(name) for name in METRICS)})",
        )

    def counted(self, one: Product) -> float:
        """How many evaluations a monitors process made."""
        return one.value(one.monitors, "gaugeway_evaluations_total")

    def logs(self) -> str:
        """What all of them logged."""
        return "\n".join(one.log.read_text("utf-8") for one in self.running)

    def stop(self, *some: Product) -> None:
        """End these; none of them may have ended by itself."""
        for one in some:
            assert one.is_running(), one.log.read_text("utf-8")
            assert one.stop() in (0, -signal.SIGTERM)


METRICS = ("faithfulness", "lexical_groundedness")


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """Release -> where its code is and where the other's is; made, and compiled by who runs it first, once for all."""

    @functools.cache
    def made(release):
        return [make and make(tmp_path_factory.mktemp("code")) for make in RELEASES[release]]

    return made


@pytest.mark.parametrize("queue", ["postgres", "redis"])
@pytest.mark.parametrize("release", RELEASES)
def test_while_a_release_is_rolled_out_each_evaluates_what_the_other_captured(release, queue, code, tmp_path):
    server = postgres()
    store = server.database(empty=True)
    where = store if queue == "postgres" else redis_server().url()
    old, new = code(release)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(in_thread(Script()))
        rollout = Rollout(tmp_path, CONFIG.format(url=url, queue=where, store=store), server, store)
        stack.callback(lambda: [one.stop() for one in rollout.running])

        def version():
            return server.ask(store, "SELECT max(version) FROM versions")[0][0]

        old_gateway, old_monitors = rollout.start("gateway", old), rollout.start("monitors", old)
        wait_until(lambda: server.ask(store, "SELECT to_regclass('gaugeway.evaluations')") != [(None,)], 60)
        rollout.ask(old_gateway)
        before = version()
        new_gateway = rollout.start("gateway", new)
        rollout.ask(old_gateway, new_gateway)
        assert rollout.counted(old_monitors) == len(METRICS) * rollout.sent.count
        new_monitors = rollout.start("monitors", new)
        rollout.ask(old_gateway, new_gateway)
        rollout.stop(old_monitors)
        rollout.ask(old_gateway, new_gateway)
        after = version()
        if new is not None:
            assert after == before + 1
        assert after == len(scripts()) + (new is not None)
        again = rollout.start("monitors", old)
        if new is not None or after == before:
            rollout.stop(new_monitors)
            rollout.ask(old_gateway, new_gateway)
        else:
            said = f"its tables have version {after}, this release knows {before}; upgrade"
            wait_until(lambda: said in again.log.read_text("utf-8"), 60)
        rollout.stop(*(one for one in rollout.running if one not in (old_monitors, new_monitors)))
        logs = rollout.logs()
    assert rollout.sent.unharmed
    assert "Traceback" not in logs
    assert " ERROR " not in logs
    assert "dead letters" not in logs
    assert server.ask(store, "SELECT count(*) FROM samples") == [(rollout.sent.count,)]
    assert server.ask(store, "SELECT count(*) FROM dead") == [(0,)]
