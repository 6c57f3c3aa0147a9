"""Validation of the configured rules, and their runtime state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from gaugeway.extensions import load, reason, registered
from gaugeway.settings.options import fitting, option_types
from gaugeway.settings.shared import Alerts, Rule
from gaugeway.signals import SIGNALS, Direction
from monitors.alerting import detectors
from monitors.alerting.detectors import Baseline
from monitors.alerting.detectors.baselines import build as baseline_of
from monitors.alerting.rule_watch import MIN_COVERAGE, RuleWatch, name_of
from monitors.alerting.slices import Slices
from monitors.alerting.stream import on_scale
from monitors.metrics import ANCHOR, DISAGREEMENT

MONTH_S = 30 * 86_400.0
TOLERANCES = {"page": 0.05, "warn": 0.02}
_DEFAULT_TOLERANCE = 0.05
FORECAST, OF_A_SIGNAL = 0.01, 0.02
"""The tolerance below a forecast, which pays for its own error: what is not worth a page."""
_FORECASTS = ("auto", "seasonal")
FOR_SIGNALS = 0.25
"""Part of the budget for the default rules on signals, together."""
_MEAN = "m0"
_BOTH: tuple[Direction | None, ...] = ("drop", "rise")
_GIVEN = ("budget_per_s", _MEAN)
"""Arguments that the rule itself sets; an m0 among the options is accepted and ignored."""


def _higher_is_better(metric: str) -> bool:  # noqa: ARG001 - the default of what knows better
    return False


def rules_of(
    config: Alerts,
    metrics: Iterable[str],
    signals: Iterable[str] = (),
    lower_is_better: Callable[[str], bool] = _higher_is_better,
) -> Sequence[Rule]:
    """Return the rules in use: the configured ones and, where `keeps_defaults`, the default ones.

    >>> [rule.baseline for rule in rules_of(Alerts(), ["faithfulness"])], rules_of(Alerts(rules=()), ["faithfulness"])
    (['auto'], ())
    >>> slo = Rule(metric="faithfulness", slo=0.8)
    >>> [rule.slo for rule in rules_of(Alerts(rules=(slo,), default_rules=True), ["faithfulness", "hallucination"])]
    [0.8, None, None]
    """
    own = config.rules or ()
    return (*own, *_defaults(own, metrics, signals, lower_is_better)) if keeps_defaults(config) else own


def keeps_defaults(config: Alerts) -> bool:
    """Return whether the default rules are in use: as configured, else if there are no other rules."""
    return config.rules is None if config.default_rules is None else config.default_rules


def removal_warnings(
    config: Alerts, metrics: Iterable[str], signals: Iterable[str], lower_is_better: Callable[[str], bool]
) -> list[str]:
    """Return a warning if the configured rules remove default ones and `default_rules` does not settle it."""
    if not config.rules or config.default_rules is not None:
        return []
    defaults = (rule.metric for rule in _defaults(config.rules, metrics, signals, lower_is_better))
    watched = {rule.metric for rule in config.rules if "*" in rule.apps}
    removed = dict.fromkeys(metric for metric in defaults if metric not in watched)
    way_out = "to keep them set alerts.default_rules = true, to be without them false"
    return [f"alerts.rules: these rules remove the default rules on {', '.join(removed)}; {way_out}"] if removed else []


def _defaults(
    own: Sequence[Rule], metrics: Iterable[str], signals: Iterable[str], lower_is_better: Callable[[str], bool]
) -> Sequence[Rule]:
    """Return a rule with a learned baseline for every metric, and for every signal, without those that `own` replace.

    A signal that may change for the worse in both directions has a rule for each, and so has the disagreement of two
    judges. What the anchor judges has none: decisions have the same metric of all traffic. A rule of one's own with a
    baseline replaces the default one of the same metric, direction, severity and apps.

    >>> [(rule.metric, rule.direction) for rule in rules_of(Alerts(), [], ["abstained", "retriever_score"])]
    [('abstained', 'rise'), ('retriever_score', 'drop'), ('retriever_score', 'rise')]
    """
    watched = [metric for metric in metrics if not metric.endswith(ANCHOR)]
    directed = {metric: _BOTH if metric.endswith(DISAGREEMENT) else (None,) for metric in watched}
    directed |= {signal: SIGNALS[signal].watched for signal in signals}
    rules = [Rule(metric=metric, baseline="auto", direction=way) for metric, ways in directed.items() for way in ways]

    def name(rule: Rule) -> str:
        return name_of(rule, lower_is_better=is_flipped(rule, lower_is_better))

    taken = {name(rule) for rule in own} | {name(replace(rule, name=None)) for rule in own}
    return tuple(rule for rule in rules if name(rule) not in taken)


def budget_parts(rules: Sequence[Rule], config: Alerts) -> list[float]:
    """Return the part of the budget of false alarms that each rule gets; together 1.

    Where the default rules are in use, rules on signals share `FOR_SIGNALS` and the others the rest: signals have a
    score of every exchange, and need less of it. Else all get the same.

    >>> rules = rules_of(Alerts(), ["faithfulness", "hallucination"], ["retriever_score"])
    >>> budget_parts(rules, Alerts()), budget_parts(rules[:1], Alerts())
    ([0.375, 0.375, 0.125, 0.125], [1.0])
    """
    on_signals = sum(map(_is_aside, rules))
    others = len(rules) - on_signals
    if not keeps_defaults(config) or not on_signals or not others:
        return [1.0 / len(rules) for _ in rules]
    return [FOR_SIGNALS / on_signals if _is_aside(rule) else (1.0 - FOR_SIGNALS) / others for rule in rules]


def _is_aside(rule: Rule) -> bool:
    """Whether a rule is not about quality itself: about a signal, or about how two judges disagree."""
    return rule.metric in SIGNALS or rule.metric.endswith(DISAGREEMENT)


def is_flipped(rule: Rule, lower_is_better: Callable[[str], bool]) -> bool:
    """Return whether a rule is about a rise of its metric."""
    return lower_is_better(rule.metric) if rule.direction is None else rule.direction == "rise"


def problems_of(
    rules: Sequence[Rule],
    metrics: Iterable[str],
    lower_is_better: Callable[[str], bool] = _higher_is_better,
    to_enable: Callable[[str], str] = lambda _: "",
) -> list[str]:
    """Return the problems of rules, given the enabled `metrics`; `to_enable` says what others would need, if known."""
    known, problems = set(metrics), []
    named: dict[str, str] = {}
    for index, rule in enumerate(rules):
        where = f"alerts.rules[{index}]"
        if rule.metric not in known and rule.metric in SIGNALS:
            problems.append(f"{where}.metric: signal {rule.metric!r} is switched off; remove it from signals.off")
        elif rule.metric not in known:
            way_out = to_enable(rule.metric) or f"enabled: {', '.join(sorted(known)) or 'none'}"
            problems.append(f"{where}.metric: metric {rule.metric!r} is not enabled; {way_out}")
        if (rule.slo is None) == (rule.baseline is None):
            problems.append(f"{where}: give either slo or baseline")
        problems += _detector_problems(rule, where)
        if rule.slo is None and rule.baseline is None:
            continue  # without slo or baseline its default name is undefined
        name = name_of(rule, lower_is_better=is_flipped(rule, lower_is_better))
        if (first := named.setdefault(name, where)) != where:
            problems.append(f"{where}.name: {first} is called {name!r}, too; give one of them another name")
    return problems


def _detector_problems(rule: Rule, where: str) -> list[str]:
    try:
        kind = load(rule.detector, registered("detectors"), "detector")
        options = {key: value for key, value in rule.options.items() if key != _MEAN}
        _, wrong = fitting(kind, options, option_types(kind, _GIVEN))
        if not wrong:
            detectors.build(rule.detector, rule.options, 1.0)
    except Exception as error:  # noqa: BLE001 - a custom detector may raise anything; reported as a problem
        return [f"{where}.detector: {reason(error)}"]
    return [f"{where}.options.{key}: {problem}" for key, problem in wrong.items()]


def tolerance_of(rule: Rule) -> float:
    """Return how far the mean may fall below the baseline before it is a drop; 0 for an SLO by default."""
    if rule.tolerance is not None:
        return rule.tolerance
    if rule.slo is not None:
        return 0.0
    if rule.baseline in _FORECASTS:
        return OF_A_SIGNAL if rule.metric in SIGNALS else FORECAST
    return TOLERANCES.get(rule.severity or "page", _DEFAULT_TOLERANCE)


def baseline_for(rule: Rule, tolerance: float, *, flipped: bool) -> Callable[[], Baseline]:
    """Return what builds the baseline of a rule; `flipped`: it is about a rise."""
    if rule.slo is not None:
        return partial(baseline_of, "fixed", slo=max(1e-6, on_scale(rule.slo, flipped=flipped) - tolerance))
    kind = rule.baseline or "auto"
    if kind not in _FORECASTS:
        return partial(baseline_of, kind, tolerance=tolerance)
    signal = SIGNALS.get(rule.metric)
    variation = "metric" if signal is None else "signal"
    improves = not rule.metric.endswith(DISAGREEMENT) if signal is None else len(signal.watched) == 1
    return partial(baseline_of, kind, tolerance=tolerance, variation=variation, improves=improves)


def watch_of(rule: Rule, config: Alerts, *, part: float, flipped: bool) -> RuleWatch:
    """Build the state of a rule that gets this `part` of the budget; `flipped`: it is about a rise."""
    parts = [dimension for dimension in config.slices if dimension != "app"]
    return RuleWatch(
        rule=rule,
        name=name_of(rule, lower_is_better=flipped),
        flipped=flipped,
        budget_per_s=config.false_alerts_per_30d / MONTH_S * part,
        detector=partial(detectors.build, rule.detector, rule.options),
        baseline=baseline_for(rule, tolerance_of(rule), flipped=flipped),
        slices=Slices(parts, least=config.min_slice_scores),
        by_app="app" in config.slices,
        sliced=bool(parts),
        min_coverage=MIN_COVERAGE,
    )
