"""Metrics by name: what a name stands for, and the metrics that the configuration enables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from gaugeway.extensions import load, reason, registered
from gaugeway.settings import ConfigError
from gaugeway.settings import shared as config
from gaugeway.settings.options import fitting, hint, option_types
from gaugeway.signals import RISING, SIGNALS
from monitors.judges import MinimalJudge, adapted
from monitors.judges.decisions import DecisionJudge
from monitors.judges.grounding import Verifier
from monitors.metrics import ANCHOR, Calibrated, Metric, lower_is_better
from monitors.metrics.conversation_outcome import Outcomes
from monitors.metrics.decided import CANNOT, Anchored, Decisions, Disagreement
from monitors.metrics.embeddings import MinimalEmbeddings
from monitors.metrics.embeddings import adapted as adapted_embeddings
from monitors.metrics.judged.claims import Fused, Separate
from monitors.statistics.calibration import Calibration

RATE, RATE_WITH_LLM = 1.0, 0.1
THRESHOLD, THRESHOLD_IF_LOW_IS_GOOD = 0.7, 0.3

Mode: TypeAlias = Literal["fused", "separate", "verdicts"]
_LLM = frozenset({"judge", "verdicts", "outcomes"})
_PAID = _LLM | {"embeddings"}
_GIVEN = _PAID | {"steps_dir", "verifier"}
_COMMON = tuple(key for key in config.Metric.__struct_fields__ if key != "options")

__all__ = ["Catalogue", "Draft", "Enabled", "Mode", "build", "draft", "models_of", "to_enable"]


class Enabled(msgspec.Struct, frozen=True, kw_only=True):
    """An enabled metric, the share of exchanges that get it, and the share of its scores that should pass, if set."""

    metric: Metric
    rate: float
    threshold: float
    objective: float | None = None

    def passes(self, score: float) -> bool:
        """Return whether a score is at the threshold or better."""
        return score <= self.threshold if lower_is_better(self.metric) else score >= self.threshold


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The enabled metrics; `notes` are logged once at start."""

    enabled: tuple[Enabled, ...]
    notes: tuple[str, ...] = ()

    @property
    def by_name(self) -> dict[str, Metric]:
        """The metrics by their names."""
        return {enabled.metric.name: enabled.metric for enabled in self.enabled}


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics that can be built, and the problems of the others; each problem begins with its configuration key.

    `names` are about tables whose name stands for nothing, `problems` about what is in the others. `idle` are the
    metrics that the configuration asks for and that cannot run: the table they need, and a line. `unmade` are the
    tables that stand for a metric which could not be made.
    """

    catalogue: Catalogue
    names: tuple[str, ...]
    problems: tuple[str, ...]
    idle: tuple[tuple[str, str], ...]
    unmade: frozenset[str]

    @property
    def nameless(self) -> bool:
        """Whether a metric given by import string was not built, so that its name is unknown."""
        return any((named := resolve(name)) is not None and named.target == name for name in self.unmade)


class More(TypedDict, total=False):
    """The keyword arguments of `draft`, which `build` passes on."""

    steps_dir: Path | None
    verifier: Verifier | None
    judge_setting: str
    others: Sequence[str]


def build(
    settings: Mapping[str, config.Metric],
    judge: MinimalJudge | None,
    embeddings: MinimalEmbeddings | None,
    mode: Mode = "fused",
    **more: Unpack[More],
) -> Catalogue:
    """Build the metrics. Raises ConfigError with every problem found.

    A metric's constructor is given what it names: `judge`, `verdicts` and `outcomes` (shared between metrics),
    `embeddings`, `verifier`. Its other parameters are its options. `steps_dir` keeps the steps a judge wrote for
    `geval:` metrics; without it every process has them written again. The note that there is no judge says where one is
    configured, `judge_setting`, and what runs: the metrics and `others`.
    """
    found = draft(settings, judge, embeddings, mode, **more)
    if problems := [*found.names, *found.problems]:
        raise ConfigError(problems)
    return found.catalogue


def draft(
    settings: Mapping[str, config.Metric],
    judge: MinimalJudge | None,
    embeddings: MinimalEmbeddings | None,
    mode: Mode = "fused",
    *,
    steps_dir: Path | None = None,
    verifier: Verifier | None = None,
    judge_setting: str = "[judge]",
    others: Sequence[str] = (),
) -> Draft:
    """Like `build`, but return the problems together with the metrics that can be built."""
    builder = _Builder(judge, embeddings, mode, {"steps_dir": steps_dir, "verifier": verifier})
    defaults = [name for name in names() if on_by_default(name)]
    for name in [*defaults, *(name for name in settings if name not in defaults)]:
        builder.add(name, settings.get(name, config.Metric()), asked_for=name in settings)
    return builder.draft(judge_setting, others)


class _Builder:
    """Collects metrics, notes and problems."""

    def __init__(
        self, judge: MinimalJudge | None, embeddings: MinimalEmbeddings | None, mode: Mode, others: Mapping[str, Any]
    ) -> None:
        self._verdicts = Separate if mode == "separate" else Fused
        self._given: dict[str, Any] = {
            "embeddings": None if embeddings is None else adapted_embeddings(embeddings),
            **others,
            **self._judging(judge),
        }
        self._enabled: list[Enabled] = []
        self._notes: list[str] = []
        self._names: list[str] = []
        self._problems: list[str] = []
        self._idle: list[tuple[str, str]] = []
        self._unmade: set[str] = set()

    def add(self, name: str, settings: config.Metric, *, asked_for: bool) -> None:
        """Build one metric, or note the reason or the problem why not."""
        if (named := resolve(name)) is None:
            self._names.append(f"metrics.{name}: unknown metric{hint(name, known())}")
            return
        try:
            _check_map(settings.calibration)
        except ValueError as error:
            self._problems.append(f"metrics.{name}.calibration: {error}")
            settings = msgspec.structs.replace(settings, calibration=None)
        factory = self._factory(name, named)
        if settings.enabled and not self._made(name, settings, named, factory, asked_for=asked_for) and asked_for:
            self._unmade.add(name)

    def _made(
        self,
        name: str,
        settings: config.Metric,
        named: Named,
        factory: Callable[..., Metric] | None,
        *,
        asked_for: bool,
    ) -> bool:
        """Build and add one metric; return whether that worked."""
        if factory is None:
            return False
        needs = needs_of(factory)
        options = dict(settings.options)
        given = self._given
        if needs & _LLM:
            given = given | self._own_judge(name, options.pop("judge", "llm"))
        options = self._options(name, factory, named, options)
        asked = given["decisions"] is not None and bool(needs & _LLM)
        try:
            decided = given["decisions"].metric(name, factory, named.arguments, options) if asked else None
            if decided is not None and not given["decisions"].judge.tiers:
                self._accept(name, _enabled(self._calibrated(name, decided, settings), settings, RATE))
                return True
            if asked and given["judge"] is None:
                if asked_for:
                    self._does_not_run(name, "judge.anchor", CANNOT)
                return False
            if not self._can_run(name, factory, given, options, asked_for=asked_for):
                return False
            metric = factory(**{key: given[key] for key in needs}, **named.arguments, **options)
        except Exception as error:  # noqa: BLE001 - a metric of the user's own raises anything
            self._problems.append(f"metrics.{name}: {reason(error)}")
            return False
        rate = RATE_WITH_LLM if needs & _PAID else RATE
        if decided is None:
            self._accept(name, _enabled(self._calibrated(name, metric, settings), settings, rate))
        else:
            sampled = _enabled(metric, settings, rate)
            decided = self._calibrated(name, decided, settings)
            self._accept_tiers(name, replace(sampled, metric=decided, rate=RATE), sampled)
        return True

    def _calibrated(self, name: str, metric: Metric, settings: config.Metric) -> Metric:
        try:
            return Calibrated(metric, settings.calibration) if settings.calibration else metric
        except ValueError as error:  # after an upgrade, or with another judge: scores stay raw
            self._notes.append(f"metrics.{name}.calibration is not used: {error}")
            return metric

    def _accept_tiers(self, name: str, decided: Enabled, sampled: Enabled) -> None:
        """Add a metric by decisions of all traffic, by the anchor of a sample, and the difference of the two."""
        self._accept(name, decided)
        anchored = Anchored(sampled.metric)
        self._accept(name, replace(sampled, metric=anchored, objective=None))
        self._accept(name, Enabled(metric=Disagreement(decided.metric, anchored), rate=sampled.rate, threshold=0.0))

    def _can_run(
        self,
        name: str,
        factory: Callable[..., Metric],
        given: Mapping[str, Any],
        options: dict[str, Any],
        *,
        asked_for: bool,
    ) -> bool:
        """Whether the model that the metric needs is configured; a fallback, or why it cannot run, is noted."""
        needs = needs_of(factory)
        models = (_LLM, "judge", "judge"), ({"verifier"}, "verifier", "judge.grounding")
        for parameters, model, table in models:
            if needs & parameters and given[model] is None:
                if asked_for:
                    self._does_not_run(name, table, f"needs a {model}, and none is configured")
                return False
        if (without := getattr(factory, "without_embeddings", None)) is None or given["embeddings"] is not None:
            return True
        if (instead := without(options)) is None:
            self._does_not_run(name, "embeddings", "needs embeddings, and none are configured")
            return False
        for key, value in instead.items():
            if options.get(key) != value:
                self._notes.append(f'{name} uses {key} "{value}": no [embeddings] configured')
        options.update(instead)
        return True

    def _does_not_run(self, name: str, needed: str, why: str) -> None:
        self._notes.append(f"{name} {why}: it does not run")
        self._idle.append((needed, f"metrics.{name}: {why}: it does not run"))

    def draft(self, judge_setting: str, others: Sequence[str]) -> Draft:
        """Return what was collected."""
        self._notes += [f"{name} does not run: {problem}" for name, problem in unloadable().items()]
        if self._given["judge"] is None and self._given["decisions"] is None:
            names = [enabled.metric.name for enabled in self._enabled]
            *first, last = [*(names or ["no metric"]), *others]
            running = f"only {', '.join(first)} and {last} run" if first else f"only {last} runs"
            if not names:
                running = f"no metric runs, only {' and '.join(others)}" if others else "no metric runs"
            self._notes.insert(0, f"no judge configured ({judge_setting}): {running}")
        return Draft(
            catalogue=Catalogue(enabled=tuple(self._enabled), notes=tuple(self._notes)),
            names=tuple(self._names),
            problems=tuple(self._problems),
            idle=tuple(self._idle),
            unmade=frozenset(self._unmade),
        )

    def _judging(self, judge: MinimalJudge | None) -> dict[str, Any]:
        own = None if judge is None else adapted(judge)
        if isinstance(own, DecisionJudge):
            return self._judging(own.anchor) | {"decisions": Decisions(own)}
        if own is None:
            return {"judge": None, "verdicts": None, "outcomes": None, "decisions": None}
        return {"judge": own, "verdicts": self._verdicts(own), "outcomes": Outcomes(own), "decisions": None}

    def _own_judge(self, name: str, wanted: Any) -> dict[str, Any]:
        """Return the judge arguments of a metric with its own judge (called without arguments)."""
        if wanted == "llm":
            return {}
        try:
            return self._judging(load(str(wanted), registered("judges"))())
        except Exception as error:  # noqa: BLE001 - as in `add`
            self._problems.append(f"metrics.{name}.judge: {reason(error)}")
            return {}

    def _factory(self, name: str, named: Named) -> Callable[..., Metric] | None:
        try:
            factory: Callable[..., Metric] = load(named.target, {})
        except ValueError as error:
            self._names.append(f"metrics.{name}: {error}")
            return None
        if not callable(factory):
            self._names.append(f"metrics.{name}: is no class or function that makes a metric")
            return None
        try:
            inspect.signature(factory)
        except ValueError as error:
            self._names.append(f"metrics.{name}: {error}")
            return None
        return factory

    def _options(
        self, name: str, factory: Callable[..., Metric], named: Named, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the options of the right types; add a problem for each of the others."""
        good, wrong = fitting(factory, options, option_types(factory, {*_GIVEN, *named.arguments}), near=_COMMON)
        self._problems += [f"metrics.{name}.{key}: {problem}" for key, problem in wrong.items()]
        return good

    def _accept(self, name: str, enabled: Enabled) -> None:
        if enabled.metric.name in SIGNALS:
            self._problems.append(f"metrics.{name}: {enabled.metric.name!r} is the name of a signal")
        elif any(enabled_metric.metric.name == enabled.metric.name for enabled_metric in self._enabled):
            self._problems.append(f"metrics.{name}: another metric has the name {enabled.metric.name!r} already")
        else:
            self._enabled.append(enabled)


def _enabled(metric: Metric, settings: config.Metric, rate: float) -> Enabled:
    """Return a metric as configured, at this rate where none is."""
    if (threshold := settings.threshold) is None:
        threshold = THRESHOLD_IF_LOW_IS_GOOD if lower_is_better(metric) else THRESHOLD
    rate = rate if settings.rate is None else settings.rate
    return Enabled(metric=metric, rate=rate, threshold=threshold, objective=settings.objective)


def needs_of(factory: Callable[..., Metric]) -> frozenset[str]:
    """Return what a metric is given: the names of a judge, embeddings or a verifier among its parameters."""
    return _GIVEN & inspect.signature(factory).parameters.keys()


def models_of(name: str) -> set[str]:
    """Return which of the models "judge" and "embeddings" a registered metric uses where they are configured."""
    named = resolve(name)
    needs = frozenset[str]() if named is None else needs_of(load(named.target, {}))
    return ({"judge"} if needs & _LLM else set()) | (needs & {"embeddings"})


def to_enable(name: str, shared: config.Shared) -> str:
    """Return what a configuration needs so that a metric is enabled; "" for an unknown name.

    >>> to_enable("faithfulness", config.Shared())
    'add [judge]'
    >>> to_enable("context_recall", config.Shared()), to_enable("precision@5", config.Shared())
    ('add [judge] and [metrics.context_recall]', 'add [metrics."precision@5"]')
    """
    if (named := resolve(name)) is None or named.target == name:
        return ""
    factory = load(named.target, {})
    needs, without = needs_of(factory), getattr(factory, "without_embeddings", dict)
    table = f"[metrics.{name}]" if name.isidentifier() else f'[metrics."{name}"]'
    if (settings := shared.metrics.get(name)) is not None and not settings.enabled:
        return f"remove enabled = false from {table}"
    wanted = {
        "[judge]": bool(needs & _LLM) and not shared.judge.base_url,
        "[judge.grounding]": "verifier" in needs and shared.judge.grounding is None,
        "[embeddings]": without({}) is None and shared.embeddings.model is None,
        table: not on_by_default(name) and settings is None,
    }
    missing = " and ".join(what for what, is_missing in wanted.items() if is_missing)
    return f"add {missing}" if missing else ""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RANK = re.compile(r"[1-9]\d{0,3}")
_FAMILIES = (":NAME", "@K")
"""Ends of the names under which metrics with a parameter are registered."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """The import string behind a metric's name, and the arguments that the name holds."""

    target: str
    arguments: Mapping[str, Any] = {}


def resolve(name: str) -> Named | None:
    """Return what `name` stands for; None for an unknown name.

    >>> resolve("precision@5")
    Named(target='monitors.metrics.ranking:PrecisionAtK', arguments={'k': 5})
    >>> resolve("precision@0"), resolve("geval:")
    (None, None)
    """
    targets = registered("metrics")
    stem, colon, rest = name.partition(":")
    if (target := targets.get(f"{stem}:NAME")) is not None:
        return Named(target=target, arguments={"name": rest}) if _NAME.fullmatch(rest) else None
    if colon:
        return Named(target=name)
    stem, _, rank = name.partition("@")
    if _RANK.fullmatch(rank) and (target := targets.get(f"{stem}@K")) is not None:
        return Named(target=target, arguments={"k": int(rank)})
    return None if name.endswith(_FAMILIES) or name not in targets else Named(target=targets[name])


def names() -> list[str]:
    """Return the registered names without a parameter: first the metrics that are on by default, then the others."""
    plain = [name for name in registered("metrics") if not name.endswith(_FAMILIES)]
    return sorted(plain, key=lambda name: (not on_by_default(name), name))


def at_rank(rank: int) -> list[str]:
    """Return the names of the metrics with a rank as parameter at this rank."""
    return sorted(f"{name[:-1]}{rank}" for name in registered("metrics") if name.endswith("@K"))


def known() -> list[str]:
    """Return every name, with a placeholder for the parameter of a family."""
    return [*names(), *sorted(name for name in registered("metrics") if name.endswith(_FAMILIES))]


def unloadable() -> dict[str, str]:
    """Return the registered metrics that cannot be imported here, and why."""
    problems = {}
    for name, target in sorted(registered("metrics").items()):
        try:
            load(target, {})
        except ValueError as error:
            problems[name] = str(error)
    return problems


def declared(name: str, attribute: str) -> Any:
    """Return what the class of a registered metric declares; None if it does not, or is not there.

    >>> declared("hallucination", "lower_is_better"), declared("faithfulness", "lower_is_better")
    (True, None)
    >>> declared("ndcg@10", "measures"), declared("unheard_of", "measures")
    ('retrieval', None)
    """
    if (named := resolve(name)) is None or named.target == name:
        return None
    try:
        return _attribute(named.target, attribute)
    except ValueError:  # an extension that cannot be imported here
        return None


@cache
def _attribute(target: str, attribute: str) -> Any:
    return getattr(load(target, {}), attribute, None)


def on_by_default(name: str) -> bool:
    """Whether a registered metric runs without being named in the configuration, where its models are configured."""
    return bool(declared(name, "on_by_default"))


def zero_is_best(name: str) -> bool:
    """Whether 0 is the best value of a registered metric or a signal; for names in the store, without the metric."""
    plain = name.removesuffix(ANCHOR)
    return plain in RISING or bool(declared(plain, "lower_is_better"))


def _check_map(text: str | None) -> None:
    if text is not None and Calibration.parse(text).is_flat:
        raise ValueError("it gives every score the same value, so that no drop could be seen")
