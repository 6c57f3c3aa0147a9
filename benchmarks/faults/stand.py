"""Everything of one row: scripted upstream and judge, engine, gateways, monitors, traffic."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.faults.engines import ENGINES, Engine, small_disk
from benchmarks.faults.paths import STRAIGHT, Paths, paths
from benchmarks.faults.processes import TOKEN, Replica, ScriptedServer, total
from benchmarks.faults.traffic import Traffic

SLO, GOOD, BAD = 0.75, 0.9, 0.3
SETTLE_S, LOOK_S = 600.0, 0.5
QUIET = 3
PLANE = """
[gateway]
host = "{address}"
admin_host = "{address}"
admin_token = "{token}"
drain_s = 5

{upstreams}

[monitors]
host = "{address}"
token = "{token}"
join_window_s = 0

[judge]
base_url = "http://{judge}/judge/v1"
model = "judge-1"
api_key = "none"
concurrency = 8
timeout_s = 10
cache = "off"

[metrics.faithfulness]
rate = 1.0

[alerts]
false_alerts_per_30d = 60
bucket_s = 1
watermark_s = 5
slices = ["app"]

[[alerts.rules]]
name = "answers"
metric = "faithfulness"
slo = {slo}

[[notifiers]]
kind = "webhook"
url = "http://{hook}/hook"
"""
UPSTREAM = '[[upstreams]]\nname = "{name}"\nbase_url = "http://{at}/{name}/v1"\n{more}\n'


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a row needs. `upstream` is put into each of `upstreams`."""

    kind: str = STRAIGHT
    upstreams: tuple[str, ...] = ("only",)
    upstream: str = ""
    disk_mb: Mapping[str, int] = field(default_factory=dict)
    env: Callable[[Path], Mapping[str, str]] | None = None
    per_s: float = 20.0
    gateways: int = 2
    monitors: int = 2


class Stand:
    """Made by `standing`."""

    def __init__(self, directory: Path, engine: Engine, paths: Paths, disk: Path | None) -> None:
        self.directory = directory
        self.engine = engine
        self.paths = paths
        self.disk = disk
        self.upstream = ScriptedServer("upstream", directory)
        self.judge = ScriptedServer("judge", directory)
        self.gateways: list[Replica] = []
        self.monitors: list[Replica] = []
        self.traffic: Traffic | None = None
        self.notes: list[str] = []
        self.kills: list[tuple[int, float, float]] = []
        """Which gateway was killed when, and when it was gone."""
        self.last: dict[str, dict[str, float]] = {}
        """The counters of processes as they were last seen, by name and process id."""
        self.drop_at = 0.0

    @property
    def machines(self) -> list[Replica]:
        return [*self.gateways, *self.monitors]

    def note(self, text: str) -> None:
        self.notes.append(text)

    def plant(self) -> None:
        """From now on the answers of `shop` are worse."""
        self.drop_at = time.time()
        self.upstream.set(means={"shop": BAD})

    def look(self, replica: Replica) -> None:
        """Remember its counters."""
        if replica.ended is None and (found := replica.counters()):
            self.last[f"{replica.name} {replica.pid}"] = found

    def counted(self, name: str, plane: str, **labels: str) -> float:
        """A counter's sum over every process that there was, as far as it was seen."""
        return sum(total(found, name, **labels) for key, found in self.last.items() if key.startswith(plane))

    def alive(self, plane: str) -> list[Replica]:
        return [one for one in self.machines if one.plane == plane and one.ended is None]

    def evaluated(self, before: float) -> int:
        """How many exchanges from before that time have an evaluation by the judge's metric."""
        condition = f"metric = 'faithfulness' AND started_at <= {before}"
        return int(self.engine.ask(f"SELECT count(DISTINCT sample_id) FROM evaluations WHERE {condition}")[0][0])

    def waiting(self) -> int:
        """What is on its way in gateways and queue; raises when somebody does not answer."""
        held = sum(total(self._counters(one), "gaugeway_handoff_waiting") for one in self.alive("gateway"))
        queue = self.alive("monitors")[0].get("/api/status")["queue"]
        return int(held) + queue["ready"] + queue["leased"]

    def _counters(self, replica: Replica) -> dict[str, float]:
        found = replica.counters()
        if not found:
            raise OSError(f"{replica.name} does not answer")
        return found

    def alerts(self) -> list[dict[str, Any]]:
        """Every alert that was told."""
        return self.judge.told()["alerts"]

    def told(self, app: str) -> list[dict[str, Any]]:
        """The alerts of the rule about an app that fire."""
        return [
            one
            for one in self.alerts()
            if one["labels"]["app"] == app and one["labels"]["rule"] == "answers" and one["status"] == "firing"
        ]


@contextlib.contextmanager
def standing(name: str, wanted: Wanted, seed: int) -> Iterator[Stand]:
    """Start everything on the engine of that name, and the traffic; stop it all at the end."""
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="gaugeway-faults-", ignore_cleanup_errors=True)
        )
        directory = Path(scratch)
        directory.chmod(0o755)
        disk = directory / "disk"
        if wanted.disk_mb:
            stack.enter_context(small_disk(disk, wanted.disk_mb[name]))
        counts = {"gateway": wanted.gateways, "monitors": wanted.monitors if ENGINES[name].shared else 1}
        names = [f"{plane}{number}" for plane, count in counts.items() for number in range(count)]
        way = stack.enter_context(paths(wanted.kind, tuple(names)))
        engine = ENGINES[name](disk if wanted.disk_mb else directory, hosted=way.kind == "hosted", seed=seed)
        stack.callback(engine.destroy)
        stand = Stand(directory, engine, way, disk if wanted.disk_mb else None)
        for server in (stand.upstream, stand.judge):
            stack.callback(server.close)
            server.start()
        stand.upstream.set(means={"calm": GOOD, "shop": GOOD})
        for replica in _replicas(stand, names, wanted):
            {"gateway": stand.gateways, "monitors": stand.monitors}[replica.plane].append(replica)
            stack.callback(replica.close)
        with ThreadPoolExecutor() as pool:
            list(pool.map(Replica.start, stand.machines))
        stand.traffic = Traffic([(one.address, one.port) for one in stand.gateways], per_s=wanted.per_s)
        yield stand


def _replicas(stand: Stand, names: list[str], wanted: Wanted) -> Iterator[Replica]:
    for name in names:
        # A directory belongs to one gateway and one monitors process; further ones name the files in it by their URLs.
        first = name.rstrip("0123456789") == "monitors" or name == names[0]
        data = stand.engine.directory if first and not stand.engine.shared else stand.directory / name
        env = wanted.env(stand.directory) if wanted.env and name.startswith("monitors") else None
        replica = Replica(
            name,
            directory=stand.directory,
            data=data,
            address=stand.paths.address(name),
            prefix=tuple(stand.paths.prefix(name)),
            env=env,
        )

        def at(service: str, port: int, name: str = name) -> tuple[str, int]:
            return stand.paths.reach(name, service, port)

        def text(place: tuple[str, int]) -> str:
            return f"{place[0]}:{place[1]}"

        upstreams = [
            UPSTREAM.format(name=one, at=text(at(f"upstream{number or ''}", stand.upstream.port)), more=wanted.upstream)
            for number, one in enumerate(wanted.upstreams)
        ]
        replica.config.write_text(
            PLANE.format(
                address=replica.address,
                token=TOKEN,
                upstreams="\n".join(upstreams),
                judge=text(at("judge", stand.judge.port)),
                hook=text(at("hook", stand.judge.port)),
                slo=SLO,
            )
            + stand.engine.config(*at("engine", stand.engine.port))
        )
        yield replica


def settle(stand: Stand, each: Callable[[], None], within_s: float = SETTLE_S) -> bool:
    """Wait until nothing is on its way any more, doing `each` every time; whether it came to that."""
    begin, quiet = time.monotonic(), 0
    while time.monotonic() - begin < within_s:
        each()
        try:
            quiet = quiet + 1 if stand.waiting() == 0 else 0
        except (OSError, httpx.HTTPError):
            quiet = 0
        if quiet >= QUIET:
            return True
        time.sleep(LOOK_S)
    return False
