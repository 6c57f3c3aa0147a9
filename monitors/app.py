"""Assembles the evaluation plane from the configuration; the one module that names its adapters."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec
import prometheus_client
from prometheus_client import CollectorRegistry

from gaugeway.redaction import Redactor, redaction_key
from gaugeway.runtime import audit, otlp_metrics
from gaugeway.runtime.auth import behind
from gaugeway.runtime.serving import Listener, serve
from gaugeway.runtime.system import lower_priority
from gaugeway.settings import ConfigError, Problems
from gaugeway.settings import shared as configuration
from gaugeway.settings.loading import join_problems, queue_url, store_url
from gaugeway.settings.shared import Config, Sampled, Shared
from gaugeway.signals import enabled as enabled_signals
from gaugeway.storage.engines.sqlite.connection import file_problem, path_from_url
from gaugeway.storage.leader import Follower, stand
from gaugeway.storage.queues import MAX_ATTEMPTS, Queue
from gaugeway.storage.queues import from_url as open_queue
from gaugeway.storage.stores import EngineStore, StateStore
from gaugeway.storage.stores import from_url as open_store
from gaugeway.storage.stores.hashing_store import HashingStore
from gaugeway.storage.templates import Templates, open_templates
from gaugeway.storage.trials import open_trials
from monitors.alerting.description import JudgeSignals
from monitors.alerting.engine import AlertEngine
from monitors.alerting.notifiers.factory import open_notifiers
from monitors.alerting.rules import problems_of, removal_warnings, rules_of
from monitors.analysis.datasets import open_datasets
from monitors.analysis.human_labels import passings
from monitors.analysis.retrieval.source_reading import SourceReports
from monitors.analysis.series import SeriesReader
from monitors.api.alerts import alert_handlers, incident_handlers, labelling_handlers, rule_handlers
from monitors.api.app import Pages, admin_app
from monitors.api.conversations import conversation_handlers
from monitors.api.documents import dataset_handlers, template_handlers
from monitors.api.otlp.durations import StepDurations
from monitors.api.reports import compare_handlers, label_handlers, source_handlers
from monitors.api.series import SeriesSources, series_handlers
from monitors.api.trials import TrialDesk, trial_handlers
from monitors.evaluation.cause_judging import CauseJudging
from monitors.evaluation.cluster_naming import NAME_EVERY_S, ClusterNames
from monitors.evaluation.evaluator import is_judged
from monitors.evaluation.judge_marks import MARK_EVERY_S, PromptMarking
from monitors.evaluation.models import JudgeSetup, anchor_warnings, open_embeddings, open_judge
from monitors.exporters.factory import open_exporters, open_sinks
from monitors.exporters.instruments import AlertGauges, Instruments
from monitors.judges.grounding import Verifier
from monitors.metrics import Metric, lower_is_better, scores_conversations
from monitors.metrics.registry import Catalogue, Draft, build, draft, to_enable, zero_is_best
from monitors.scheduler import Scheduler, judged_timeout_s, sampler_of, tick_s
from monitors.scoring_workers import NICENESS, ScoringWorkers
from monitors.trials.opening import open_runner

_log = logging.getLogger("gaugeway")
_DAY_S = 86_400.0
_ANY_JUDGE = configuration.Judge(base_url="http://127.0.0.1/v1", model="any")
"""Stands in for a judge that cannot be built, so that what depends on a judge can be checked."""


PageFactory: TypeAlias = Callable[..., Pages]
"""Builds the operator's page from an insight, an engine, a registry and, by name, the fields of the page's site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What both a whole evaluation plane and a process that only scores consist of."""

    instruments: Instruments
    catalogue: Catalogue
    queue: Queue
    store: EngineStore
    judging: JudgeSetup | None
    engine: AlertEngine
    redactor: Redactor
    sources: SourceReports
    scheduler: Scheduler
    durations: StepDurations | None
    closing: Sequence[Closable]
    """In the order in which they are closed after the scheduler."""

    async def aclose(self) -> None:
        """Stop the scheduler, and close everything it used."""
        await self.scheduler.aclose()
        for part in self.closing:
            await part.aclose()


class Closable(Protocol):
    """What is closed at the end."""

    async def aclose(self) -> None:
        """Close it."""


def assemble(config: Config, data_dir: Path, *, leads: bool = True) -> Parts:
    """Build the evaluation plane; without `leads` it never stands for election, and only follows."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # so in the library
    instruments = Instruments(CollectorRegistry(), version=version("gaugeway"))
    answers = data_dir / "judge-answers.db" if config.capture.content else None
    verifier, embeddings = _verifier(config, instruments, answers), open_embeddings(config, instruments)
    judging = open_judge(config.judge, instruments, answers=answers, verifier=verifier)
    judge = judging.judge if judging else None
    catalogue = build(
        config.metrics,
        judge,
        embeddings,
        config.judge.mode,
        steps_dir=data_dir / "geval",
        verifier=verifier,
        judge_setting="--judge MODEL or [judge]",
        others=("signals",) if enabled_signals(config.signals.off) else (),
    )
    other = judging.successor if judging else None
    for model, metrics in other.compared() if other else ():
        metrics.update(build(config.metrics, model, embeddings, config.judge.mode, verifier=verifier).by_name)
    queue, store = _queue(config, data_dir), _store(config, data_dir)
    salt = redaction_key(config.capture.salt, data_dir)
    redactor = Redactor(config.capture.redact, tuple(config.capture.redact_patterns.items()), salt)
    exporters = open_exporters(config, catalogue, instruments)
    urls = store_url(config, data_dir), queue_url(config, data_dir)
    leader, ledger = stand(urls[0], store, tick_s(config), urls[1])
    engine = _engine(config, queue, store, catalogue, instruments, judging=judging, ledger=ledger)
    engine.name_passages_with(salt)
    scheduler = Scheduler(
        config,
        queue=queue,
        store=store if config.capture.content else HashingStore(store, redactor, window_s=config.queue.lease_s),
        catalogue=catalogue,
        engine=engine,
        exporters=exporters,
        instruments=instruments,
        judging=judging,
        state_store=store,
        leader=leader if leads else Follower(),
    )
    durations = otlp_metrics.opened(config.telemetry, StepDurations) if config.monitors.otlp_receiver else None
    opened = (judge, other.judge if other else None, verifier, embeddings, *exporters, durations, queue, store)
    return Parts(
        instruments=instruments,
        catalogue=catalogue,
        queue=queue,
        store=store,
        judging=judging,
        engine=engine,
        redactor=redactor,
        sources=SourceReports(
            store, config.prices, salt=salt, passing=passings(catalogue), enabled=[*catalogue.by_name]
        ),
        scheduler=scheduler,
        durations=durations,
        closing=[part for part in opened if part is not None],
    )


async def run(
    config: Config,
    data_dir: Path,
    *,
    page: PageFactory | None = None,
    sources: Mapping[str, str] | None = None,
    supervised: bool = False,
    workers: ScoringWorkers,
) -> None:
    """Run the evaluation plane until it is stopped; `page` builds the operator's page."""
    parts = assemble(config, data_dir)
    scheduler, engine, queue, instruments = parts.scheduler, parts.engine, parts.queue, parts.instruments
    for note in (*parts.catalogue.notes, *_removed_rules(config, parts.catalogue)):
        _log.warning("%s", note)
    templates, datasets = open_templates(store_url(config, data_dir)), open_datasets(store_url(config, data_dir))
    _ask_for_marks_and_names(config, templates, parts)
    trials = _trials(config, data_dir, parts)
    registry = workers.registry(instruments.registry)
    pages, series = None, SeriesReader(parts.store, effects=engine.design_effects)
    if page is not None:
        redact = parts.redactor.redact_supplement
        fields = {"templates": templates, "datasets": datasets, "sources": parts.sources, "series": series}
        fields |= {"trials": trials, "config": config, "origins": sources or {}}
        fields |= {"supply": lambda some: queue.supply([*map(redact, some)])}
        pages = page(scheduler, engine, registry, **fields)
        scheduler.count_gateways = pages.count_gateways
    handlers = [*_handlers(config, parts, series, trials), *template_handlers(templates)]
    handlers += [*dataset_handlers(datasets, parts.store, engine.alerts), *(trial_handlers(trials) if trials else ())]
    audit_log = _open_audit(data_dir)
    await scheduler.look_back()
    scheduler.start()
    workers.start()
    if supervised:
        lower_priority(NICENESS, own_session=True)
    try:
        host, token = config.monitors.host, config.monitors.token
        app = admin_app(scheduler, registry, host=host, token=token, handlers=handlers, pages=pages)
        await serve(
            [Listener(behind(config.monitors.trusted_proxies, app), host, config.monitors.port)],
            drain_s=5,
            supervised=supervised,
            on_stop=pages.stop if pages else lambda: None,
            on_listening=lambda: _log.info("monitors: http://%s:%d/", host, config.monitors.port),
        )
    finally:
        workers.stop()
        await parts.aclose()
        if scheduler.trials is not None:
            await scheduler.trials.aclose()
        await workers.aclose()
        await templates.aclose()
        await datasets.aclose()
        audit.close_file(audit_log)


def _trials(config: Config, data_dir: Path, parts: Parts) -> TrialDesk | None:
    """Have the leader run trials; return who starts them. None where the store keeps none."""
    try:
        trials = open_trials(store_url(config, data_dir))
    except ValueError as error:
        _log.info("no trials: store.url: %s", error)
        return None
    parts.scheduler.trials = open_runner(
        config,
        trials,
        store=parts.scheduler.store,
        queue=parts.queue,
        catalogue=parts.catalogue,
        judging=parts.judging,
        redactor=parts.redactor,
        instruments=parts.instruments,
        judged_timeout_s=judged_timeout_s(config),
    )
    return TrialDesk(trials, config, parts.catalogue)


def _verifier(
    config: Shared, instruments: Instruments, answers: Path | None = None, *, examine: bool = False
) -> Verifier | None:
    """Build the verifier; None if none is configured. With `examine` a model on this machine is loaded, too."""
    if config.judge.grounding is None:
        return None
    from monitors.evaluation import verifiers  # noqa: PLC0415 - loads the HTTP client

    if examine:
        return verifiers.examine_verifier(config.judge, instruments)
    return verifiers.open_verifier(config.judge, instruments, answers=answers)


def _handlers(config: Config, parts: Parts, series: SeriesReader, trials: TrialDesk | None) -> list[Any]:
    """Return the handlers of the API, without those of documents."""
    passing, redact = passings(parts.catalogue), parts.redactor.redact_supplement
    shown = SeriesSources(series, parts.engine, config.alerts.rules or (), passing, list(parts.catalogue.by_name))
    hooks = {"redact": redact, "timed": parts.durations and parts.durations.record}
    return [
        *_receivers(config, parts.queue, parts.instruments, **hooks),
        *alert_handlers(parts.engine.acknowledgements),
        *incident_handlers(parts.engine, parts.store),
        *rule_handlers(parts.engine),
        *compare_handlers(parts.store, lambda name: passing(name).flipped),
        *label_handlers(parts.store, passing),
        *conversation_handlers(parts.store, passing),
        *labelling_handlers(parts.store, lambda some: parts.queue.supply([*map(redact, some)])),
        *source_handlers(parts.sources, None if trials is None else trials.advised),
        *series_handlers(shown),
    ]


def _ask_for_marks_and_names(config: Config, templates: Templates, parts: Parts) -> None:
    """Have the leader's judge mark prompts, where it may, and name clusters; nothing with content off."""
    judging, instruments, of_leader = parts.judging, parts.instruments, parts.scheduler.of_leader
    if judging is None or judging.writer is None or not config.capture.content:
        return
    names = ClusterNames(parts.store, parts.store, judging.writer, allowed=judging.is_available)
    parts.sources.name_clusters, of_leader["cluster_names"] = names.named, (NAME_EVERY_S, names.tick)
    if config.capture.ask_judge:
        marking = PromptMarking(
            templates,
            judging.writer,
            retention_s=config.capture.retention_days * _DAY_S,
            allowed=judging.is_available,
            on_outcome=lambda outcome: instruments.prompt_marks.labels(outcome).inc(),
        )
        of_leader["prompt_marks"] = MARK_EVERY_S, marking.tick


def _open_audit(data_dir: Path) -> logging.Handler:
    """Open the audit log, and make SIGHUP an audited refusal instead of the end of the process."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _refuse_reload)
    return audit.open_file(data_dir)


def _refuse_reload() -> None:
    audit.tell("reload", outcome="refused", process=os.getpid())
    _log.error("SIGHUP ignored: the monitors do not reload their configuration; restart this process")


def check(config: Shared) -> None:
    """Build everything that the configuration names, without opening or starting it. Raises ConfigError."""
    problems = Problems()
    problems.extend(join_problems(config))
    examine(config, problems)
    problems.raise_any()


def examine(config: Shared, problems: Problems) -> None:
    """Do what `check` does, but add every mistake to `problems`; a stand-in replaces what could not be built."""
    instruments = Instruments(CollectorRegistry(), version=version("gaugeway"))
    config = _with_addresses(config, problems)
    judge_settings = config.judge
    judging = problems.attempt(lambda: open_judge(judge_settings, instruments), "judge")
    if judging is None and (judge_settings.base_url or judge_settings.model):
        judging = open_judge(_ANY_JUDGE, instruments)
    judge = judging.judge if judging else None
    embeddings = problems.attempt(lambda: open_embeddings(config, instruments), "embeddings")
    verifier = problems.attempt(lambda: _verifier(config, instruments, examine=True), "judge.grounding")
    found = problems.attempt(
        lambda: draft(config.metrics, judge, embeddings, judge_settings.mode, verifier=verifier), "metrics"
    )
    if found is not None:
        problems.extend_names(found.names)
        problems.extend(found.problems)
        problems.extend([line for needed, line in found.idle if not problems.cover(f"{needed}: ")])
        problems.warnings += anchor_warnings(judge_settings, judging, found.catalogue)
        problems.warnings += _removed_rules(config, found.catalogue)
        problems.warnings += [note for note in found.catalogue.notes if note.startswith("metrics.")]
    catalogue = build({}, None, None) if found is None else found.catalogue
    queue = problems.attempt(lambda: _queue(config, Path()), "queue")
    store = problems.attempt(lambda: _store(config, Path()), "store")
    problems.attempt(lambda: open_exporters(config, catalogue, instruments, problems.warnings.append), "telemetry")
    problems.attempt(lambda: open_sinks(config, instruments), "sinks")
    problems.extend(problems.attempt(lambda: _rule_problems(config, found), "alerts.rules") or ())
    problems.attempt(lambda: open_notifiers(config), "notifiers")
    problems.attempt(lambda: sampler_of(Sampled(), judge_settings), "judge.bias")
    if queue is not None:
        problems.attempt(lambda: _receivers(config, queue, instruments), "monitors.otlp_receiver")
    if not problems.lines and queue is not None and store is not None:
        problems.attempt(lambda: _engine(config, queue, store, catalogue, instruments), "alerts")


def examine_files(config: Shared, data_dir: Path, problems: Problems) -> None:
    """Add the SQLite files of store and queue that cannot be used, without opening one."""
    from gaugeway.storage.engines.sqlite.connection import QUEUE, STORE, TEMPLATES  # noqa: PLC0415 - same
    from gaugeway.storage.engines.sqlite.documents import TEMPLATES_FILE  # noqa: PLC0415 - only where files are looked at

    known: dict[Path, str] = {}
    places = (
        ("store.url", config.store.url, store_url(config, data_dir), STORE),
        ("queue.url", config.queue.url, queue_url(config, data_dir), QUEUE),
    )
    for key, given, url, schema in places:
        if not url.startswith("sqlite:///"):
            continue
        if url == "sqlite:///" or (not given and problems.cover("--data-dir: ")):
            continue  # reported already
        path = path_from_url(url).absolute()
        problem = file_problem(path, schema)
        if (first := known.setdefault(path.resolve(), key)) != key:
            problem = f"{path} is also the file of {first}; use another one"
        if problem is not None:
            problems.extend([f"{key}: {'' if given else 'the default: '}{problem}"])
        elif schema is STORE and (problem := file_problem(path.with_name(TEMPLATES_FILE), TEMPLATES)) is not None:
            problems.extend([f"{key}: learned templates: {problem}"])


def _with_addresses(config: Shared, problems: Problems) -> Shared:
    """Replace addresses that are already reported as wrong."""
    judge, embeddings = config.judge, config.embeddings
    if judge.base_url is not None and problems.cover("judge.base_url: "):
        judge = msgspec.structs.replace(judge, base_url=_ANY_JUDGE.base_url)
    if judge.small is not None and problems.cover("judge.small.base_url: "):
        judge = msgspec.structs.replace(judge, small=None)
    if judge.anchor is not None and problems.cover("judge.anchor.base_url: "):
        judge = msgspec.structs.replace(judge, anchor=None)
    if problems.cover("judge.grounding."):
        judge = msgspec.structs.replace(judge, grounding=None)
    if embeddings.base_url is not None and problems.cover("embeddings.base_url: "):
        embeddings = msgspec.structs.replace(embeddings, base_url=_ANY_JUDGE.base_url)
    return msgspec.structs.replace(config, judge=judge, embeddings=embeddings)


def _queue(config: Shared, data_dir: Path) -> Queue:
    """Build the queue; it opens when first used."""
    try:
        return open_queue(queue_url(config, data_dir), config.queue.lease_s, MAX_ATTEMPTS)
    except ValueError as error:
        raise ConfigError([f"queue.url: {error}"]) from error


def _store(config: Shared, data_dir: Path) -> EngineStore:
    """Build the store; it opens when first used."""
    try:
        return open_store(store_url(config, data_dir))
    except ValueError as error:
        raise ConfigError([f"store.url: {error}"]) from error


def _rule_problems(config: Shared, found: Draft | None) -> list[str]:
    """Return the problems of the rules. A metric that could not be built counts as enabled here."""
    made = {} if found is None else found.catalogue.by_name
    signals = enabled_signals(config.signals.off)
    rules = rules_of(config.alerts, made, signals, _flipped(made))
    metrics = {*made, *signals, *(() if found is None else found.unmade)}
    if found is None or found.nameless:
        metrics |= {rule.metric for rule in rules}
    return problems_of(rules, metrics, _flipped(made), partial(to_enable, shared=config))


def _removed_rules(config: Shared, catalogue: Catalogue) -> list[str]:
    known = catalogue.by_name
    return removal_warnings(config.alerts, known, enabled_signals(config.signals.off), _flipped(known))


def _flipped(known: Mapping[str, Metric]) -> Callable[[str], bool]:
    return lambda name: lower_is_better(known[name]) if name in known else zero_is_best(name)


def _receivers(config: Shared, queue: Queue, instruments: Instruments, **hooks: Any) -> list[Any]:
    """Build the handlers of the OTLP receiver; none when it is off."""
    if not config.monitors.otlp_receiver:
        return []
    from monitors.api.otlp.receiver import receiver  # noqa: PLC0415 - only when switched on

    return [
        receiver(
            queue.supply,
            counted=lambda convention, count: instruments.retrieval_spans.labels(convention).inc(count),
            counted_steps=lambda operation, count: instruments.agent_spans.labels(operation).inc(count),
            **hooks,
        )
    ]


def _engine(
    config: Shared,
    queue: Queue,
    store: EngineStore,
    catalogue: Catalogue,
    instruments: Instruments,
    *,
    judging: JudgeSetup | None = None,
    ledger: StateStore | None = None,
) -> AlertEngine:
    known = catalogue.by_name
    watched = enabled_signals(config.signals.off)
    rules = rules_of(config.alerts, known, watched, _flipped(known))
    if problems := problems_of(rules, [*known, *watched], _flipped(known), partial(to_enable, shared=config)):
        raise ConfigError(problems)

    async def oldest() -> float | None:
        return (await queue.depth()).oldest_started_at

    judged = [metric for metric in known.values() if is_judged(metric)]
    of_conversations = {name for name, metric in known.items() if scores_conversations(metric)}
    extra, kept = None, isinstance(config, Config) and config.capture.content
    if judging is not None and kept and config.alerts.cause_samples:
        extra = CauseJudging(
            store,
            [metric for metric in judged if metric.name not in of_conversations and "~" not in metric.name],
            samples=config.alerts.cause_samples,
            allowed=judging.is_available,
            on_judged=lambda metric: instruments.cause_evaluations.labels(metric).inc(),
        )
    signals = JudgeSignals(
        metrics=[metric.name for metric in judged],
        in_use=bool(judging and judged),
        score_more=extra.complete if extra else None,
        delay_s=lambda name: config.monitors.conversation_silence_s if name in of_conversations else 0.0,
    )
    if judging is not None:
        signals = replace(
            signals,
            failing_since=judging.blind_since,
            resume=judging.resume_outage,
            evidence=judging.evidence,
            on_alarm=judging.recheck_anchors,
        )
    return AlertEngine(
        rules,
        config.alerts,
        store,
        ledger or store,
        queue_oldest=oldest,
        notifiers=open_notifiers(config),
        lower_is_better=_flipped(known),
        judge=signals,
        observer=AlertGauges(instruments),
    )
