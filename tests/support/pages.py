"""The operator's page as it is served: a real app on a real port, a real store, a real alert engine."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from contextlib import asynccontextmanager
from html.parser import HTMLParser

import httpx
import msgspec
from jinja2 import BytecodeCache
from prometheus_client import CollectorRegistry

from dashboards.web.app import pages
from dashboards.web.site import Site
from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.settings.shared import Alerts, Config, Judge, Monitors, Rule
from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.templates import Templates
from gaugeway.storage.trials import Trials
from monitors.alerting.engine import AlertEngine
from monitors.analysis.datasets import Datasets
from monitors.analysis.human_labels import passings
from monitors.analysis.retrieval.source_reading import SourceReports
from monitors.analysis.series import SeriesReader
from monitors.api.alerts import alert_handlers, incident_handlers, labelling_handlers, rule_handlers
from monitors.api.app import admin_app
from monitors.api.conversations import conversation_handlers
from monitors.api.documents import dataset_handlers, template_handlers
from monitors.api.reports import compare_handlers, label_handlers, source_handlers
from monitors.api.series import SeriesSources, series_handlers
from monitors.api.trials import TrialDesk
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import AlertGauges, Instruments
from monitors.judges.scripted import Scripted
from monitors.metrics.registry import build
from monitors.scheduler import Scheduler, WorkerCounts
from tests.support.alerting import People
from tests.support.running import serving

EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">\'"&'
SCRIPTS = ["/static/page.js", "/static/toolbar.js", "/static/charts.js"]
"""The scripts of every page."""
RULES = (Rule(metric="faithfulness", slo=0.85, name="answers"), Rule(metric="lexical_groundedness", baseline="auto"))
ALERTS = Alerts(bucket_s=60.0, watermark_s=0.0, group_wait_s=0.0, rules=RULES, slices=("app", "model"))
JUDGED = Config(alerts=ALERTS, judge=Judge(base_url="http://127.0.0.1:1/v1", model="j"))
"""With a judge that is never asked."""


class CompiledTemplates(BytecodeCache):
    """What one site has compiled, the next ones of the process need not."""

    def __init__(self):
        self._code = {}

    def load_bytecode(self, bucket):
        if bucket.key in self._code:
            bucket.bytecode_from_string(self._code[bucket.key])

    def dump_bytecode(self, bucket):
        self._code[bucket.key] = bucket.bytecode_to_string()


COMPILED = CompiledTemplates()
GRACE_S = 60.0
"""Views are answered whole, however busy the machine is; tests of the frame shorten it."""


class Parsed(HTMLParser):
    """A page taken apart: its elements with their attributes, its forms, its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self._forms, self._inside = [], "", [], []
        self.tables = []
        """For each table its rows, each a list of [tag, whether it is aligned as a number, whether it spans, text]."""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._table(tag, dict(attrs))
        if tag == "form":
            self._forms.append((dict(attrs), {}))
        elif tag == "input" and self._forms and "name" in dict(attrs):
            self._forms[-1][1][dict(attrs)["name"]] = dict(attrs).get("value", "")
        if tag in ("script", "style"):
            self._inside.append(tag)

    def _table(self, tag, attributes):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            is_number = "n" in (attributes.get("class") or "").split()
            self.tables[-1][-1].append([tag, is_number, bool(attributes.get("colspan")), ""])

    def misaligned(self):
        """The columns whose heading is aligned otherwise than their cells: (table counted from 1, heading)."""
        for number, (heading, *rows) in enumerate((table for table in self.tables if table), 1):
            if {tag for tag, *_ in heading} != {"th"}:
                continue
            whole = [row for row in rows if len(row) == len(heading) and not any(spans for *_, spans, _ in row)]
            for column, (_, is_number, *_, name) in enumerate(heading):
                if {row[column][1] for row in whole if row[column][-1].strip()} - {is_number}:
                    yield number, name

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()
        if tag in ("td", "th", "dt", "dd", "li", "p"):
            self.text += " "

    def handle_data(self, data):
        if not self._inside:
            self.text += data
            if self.tables and self.tables[-1] and self.tables[-1][-1]:
                self.tables[-1][-1][-1][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def form(self, action):
        """What a form to that address carries by itself."""
        return next(fields for attributes, fields in self._forms if attributes.get("action") == action)

    @property
    def words(self):
        return " ".join(self.text.split())


class World:
    """A site over a store, with a client that has a browser's habits."""

    def __init__(self, client, **parts):
        self.client = client
        self.__dict__.update(parts)
        self._count = 0

    async def add(self, value, *, at=None, metric="faithfulness", judge=None, **about):
        """Store one exchange with one evaluation; `value` may be an outcome."""
        self._count += 1
        at = time.time() - 60.0 if at is None else at
        fields = {"app": "shop", "model": "m-1", "question": "How long?", "response": "Two years."} | about
        sample = Sample(
            id=about.get("id", f"x{self._count}"), started_at=at, **{k: v for k, v in fields.items() if k != "id"}
        )
        outcome = value if isinstance(value, Score | Skipped | Failed) else Score(value)
        made = Evaluation(sample_id=sample.id, metric=metric, version="1", outcome=outcome, judge=judge)
        await self.store.add(sample, [made])
        return sample

    def answered(self, count, *, app="shop", source="none", question="How long?"):
        """Have the plane count answers in which this was found."""
        for _ in range(count):
            self._count += 1
            one = Sample(
                id=f"c{self._count}", started_at=time.time(), app=app, question=question, context_source=source
            )
            self.counts.stored(one, None)

    def judged_twice(self, count=40):
        """Have the judge "j" of the configuration judge so many answers twice; every other pair is 0.2 apart."""
        repeats = self.plane._repeats  # noqa: SLF001 - no worker runs here
        pairs = [(time.time(), 0.8, 0.6 if k % 2 else 0.8) for k in range(count)]
        repeats._own["faithfulness", "1", "j"] = deque(pairs)  # noqa: SLF001 - same
        repeats._found = None  # noqa: SLF001 - same

    async def drop(self, *, good=200, bad=120, minutes=120, app="shop", model="m-1", **about):
        """Good scores, then bad ones, spread over the last minutes; then the engine looks."""
        now, total = time.time(), good + bad
        for index in range(total):
            value = (0.95 if index % 10 else 0.8) if index < good else (0.3 if index % 4 else 0.6)
            at = now - 60.0 * minutes * (1 - index / total)
            await self.add(value, at=at, app=app, model=model, **about)
        await self.look()

    async def look(self):
        """What the plane does by itself every few seconds."""
        await self.plane.estimate()
        await self.engine.tick()
        await self.engine.aclose()
        await self.plane.measure_queue()

    def learns(self):
        """Have the page see the rule "answers" as one with a learned baseline, which can be reset."""
        rules = (Rule(metric="faithfulness", baseline="auto", name="answers"), *RULES[1:])
        config = self.site.config
        alerts = msgspec.structs.replace(config.alerts, rules=rules)
        self.site.config = msgspec.structs.replace(config, alerts=alerts)

    async def page(self, path, status=200, **headers):
        answer = await self.client.get(path, headers={"accept": "text/html", **headers})
        assert answer.status_code == status, answer.text
        parsed = Parsed(answer.text)
        assert not list(parsed.misaligned()), (path, list(parsed.misaligned()))
        return parsed

    async def post(self, path, fields, status=303, **headers):
        own = {"accept": "text/html", "origin": f"http://{self.client.base_url.netloc.decode()}"}
        answer = await self.client.post(path, data=fields, headers=own | headers)
        assert answer.status_code == status, answer.text
        return answer

    async def send(self, page, action, status=303, **fields):
        """Send a form of a page, with what it carries by itself."""
        return await self.post(action, (await self.page(page)).form(action) | fields, status)


@asynccontextmanager
async def world(
    path,
    *,
    token=None,
    config=None,
    alerts=ALERTS,
    gateways=(),
    clock=time.time,
    first_scores=0,
    **monitors,
):
    """Everything but the worker; the time is the real one, so what is stored must be about now.

    The front page is the Overview from `first_scores` scores on.
    """
    config = config or Config(monitors=Monitors(token=token, **monitors), alerts=alerts)
    instruments = Instruments(CollectorRegistry(), version="0")
    store, queue, people = SQLiteStore(path / "store.db"), MemoryQueue(), People()
    templates, datasets = Templates(SQLiteDocuments(path)), Datasets(SQLiteDocuments(path))
    trials = Trials(SQLiteDocuments(path))

    async def nothing_waits():
        return None

    engine = AlertEngine(
        config.alerts.rules or (),
        config.alerts,
        store,
        store,
        notify_within_s=300.0,  # a busy machine describes an alert in its own time
        queue_oldest=nothing_waits,
        notifiers={"people": people},
        lower_is_better=lambda name: name == "hallucination",
        observer=AlertGauges(instruments),
    )
    judging = open_judge(config.judge, instruments) if config.judge.kind == "decisions" else None
    judge = judging.judge if judging else Scripted({}) if config.judge.base_url else None
    catalogue = build(config.metrics, judge, None, config.judge.mode)
    plane = Scheduler(
        config,
        queue=queue,
        store=store,
        catalogue=catalogue,
        engine=engine,
        exporters=[],
        instruments=instruments,
        judging=judging,
    )
    site = Site(
        insight=plane,
        engine=engine,
        registry=instruments.registry,
        config=config,
        gateways=gateways,
        supply=queue.supply,
        templates=templates,
        datasets=datasets,
        trials=TrialDesk(trials, config, catalogue),
        sources=SourceReports(store, clock=clock, passing=passings(catalogue)),
        series=SeriesReader(store, effects=engine.design_effects, clock=clock),
        origins={},
        clock=clock,
        first_scores=first_scores,
        grace_s=GRACE_S,
    )
    series = SeriesSources(
        reader=site.series,
        watched=engine,
        rules=config.alerts.rules or (),
        clock=clock,
    )
    page = pages(site)
    page.templates.engine_instance.engine.bytecode_cache = COMPILED
    app = admin_app(
        plane,
        instruments.registry,
        host="127.0.0.1",
        token=token,
        handlers=[
            *alert_handlers(engine.acknowledgements),
            *incident_handlers(engine, store),
            *rule_handlers(engine),
            *compare_handlers(store),
            *label_handlers(store, passings(catalogue)),
            *conversation_handlers(store),
            *labelling_handlers(store, queue.supply),
            *source_handlers(site.sources),
            *template_handlers(templates),
            *dataset_handlers(datasets, store, engine.alerts),
            *series_handlers(series),
        ],
        pages=page,
    )
    async with (
        contextlib.aclosing(store),
        contextlib.aclosing(queue),
        contextlib.aclosing(templates),
        contextlib.aclosing(datasets),
        contextlib.aclosing(trials),
        serving(app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False, verify=False) as client,
    ):
        parts = {"engine": engine, "plane": plane, "site": site, "people": people, "port": port}
        coverage = plane._capture  # noqa: SLF001 - the worker counts there, and none runs here
        counts = WorkerCounts(instruments, engine, coverage)
        made = World(client, store=store, queue=queue, counts=counts, **parts)
        made.instruments, made.templates, made.datasets, made.trials = instruments, templates, datasets, trials
        try:
            yield made
        finally:
            site.stop()
            await engine.aclose()
