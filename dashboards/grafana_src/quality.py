"""Quality overview: how good the answers of every app are, how sure that is, and what is promised."""

from __future__ import annotations

from dashboards.grafana_src.board import Board, Chosen
from dashboards.grafana_src.panels import (
    GREEN,
    RED,
    THIRD,
    YELLOW,
    Built,
    Query,
    figure,
    increase,
    lines,
    listing,
    rate,
    series,
    share,
    states,
    with_bands,
)

STREAM = ("app", "metric")
METRICS = (
    *("faithfulness", "answer_relevancy", "context_relevancy", "hallucination", "lexical_groundedness"),
    *("answer_correctness", "answer_similarity", "context_entity_recall", "context_precision", "context_recall"),
    *("context_utilization", "mrr", "noise_sensitivity"),
)
"""The metrics whose confidence bands are filled; others have their ends as lines."""

_OBJECTIVE = f"max by (app, metric) ({series('gaugeway_slo_objective_ratio', *STREAM)})"
_QUIET_EVIDENCE = -10
_WEEK = "7d"


def missed(window: str) -> str:
    """Share of the verdicts in a window that say `fail`, by app and metric."""
    failed = increase(series("gaugeway_verdicts_total", *STREAM, verdict="fail"), window, *STREAM)
    judged = increase(series("gaugeway_verdicts_total", *STREAM, verdict="~pass|fail"), window, *STREAM)
    return share(failed, judged)


def burn(window: str) -> str:
    """How many times faster than allowed the budget of fails is spent, by app and metric."""
    return f"({missed(window)}) / on (app, metric) (1 - {_OBJECTIVE})"


def board() -> Board:
    """The dashboard to begin with."""
    return Board(
        uid="gaugeway-quality",
        title="Gaugeway / Quality overview",
        description="How good the answers of every app are, how sure that is, and what is promised.",
        variables=(Chosen("app", "gaugeway_quality_n_eff"), Chosen("metric", "gaugeway_quality_n_eff")),
        rows=(
            ("Now", _now()),
            ("Means", _means()),
            ("Alarms", _alarms()),
            ("Objectives", _objectives()),
            ("How much is known", _coverage()),
        ),
    )


def _now() -> list[Built]:
    alarm = series("gaugeway_quality_alarm", *STREAM)
    slices = series("gaugeway_quality_slice_alarm", *STREAM)
    coverage = series("gaugeway_quality_coverage_ratio", *STREAM)
    return [
        figure(
            "Alarms",
            "Alarms that are on, for apps and slices. Gaugeway raises and ends them itself, from every score, with a"
            " budget of false alarms. Nothing is shown without rules.",
            "none",
            f"sum({alarm}) + (count({slices}) or vector(0))",
            [(None, GREEN), (1, RED)],
        ),
        figure(
            "Lowest scored share",
            "The smallest share, over apps and metrics, of applicable samples that got a score. Below 1 evaluations"
            " fail, and the means say less than they seem to.",
            "percentunit",
            f"min({coverage})",
            [(None, RED), (0.9, YELLOW), (0.98, GREEN)],
        ),
        figure(
            "Fast burners",
            "Apps and metrics that miss their objective at least 3.36 times as often as allowed in the last hour: 2 %"
            " of a week's budget in one hour.",
            "none",
            f"count({burn('1h')} > 3.36) or vector(0)",
            [(None, GREEN), (1, RED)],
        ),
        figure(
            "Oldest sample waiting",
            "Age of the oldest sample that has not been evaluated. What happened since then is not in any mean yet.",
            "s",
            f"max({series('gaugeway_queue_oldest_seconds')})",
            [(None, GREEN), (300, YELLOW), (900, RED)],
        ),
        figure(
            "Judge",
            "Blind while a judge fails and is not asked; meanwhile no alarm on judged metrics is raised or ended.",
            "none",
            f"max({series('gaugeway_judge_blind')})",
            [(None, GREEN), (1, RED)],
            names={"0": "sees", "1": "blind"},
        ),
        figure(
            "Streams",
            "Apps times metrics with at least one score in the window of the means.",
            "none",
            f"count({series('gaugeway_quality_n_eff', *STREAM)} > 0)",
            [(None, GREEN)],
        ),
    ]


def _means() -> list[Built]:
    def gauge(name: str) -> str:
        return series(f"gaugeway_quality_{name}", *STREAM)

    shown = {
        "Mean": gauge("mean"),
        "95 % from": gauge("ci_low"),
        "to": gauge("ci_high"),
        "Scored": gauge("coverage_ratio"),
        "Objective": series("gaugeway_slo_objective_ratio", *STREAM),
        "Threshold": series("gaugeway_score_threshold_ratio", *STREAM),
    }
    columns = [(heading, f"max by (instance, app, metric) ({one})") for heading, one in shown.items()]
    bands = lines(
        "Confidence bands: $app",
        "Means over the window (an hour by default) with their 95 % confidence sequences, which hold however often one"
        " looks. A gap: fewer than 100 effective scores.",
        "percentunit",
        Query(gauge("mean"), "{{metric}}"),
        Query(gauge("ci_low"), "{{metric}} low"),
        Query(gauge("ci_high"), "{{metric}} high"),
        top=1,
        repeat="app",
    )
    return [
        listing(
            "Means now",
            "Mean of each metric for each app over the window, its 95 % confidence sequence, and what is promised. For"
            " `hallucination` and `noise_sensitivity` 0 is best.",
            "percentunit",
            columns,
        ),
        lines(
            "Mean of $metric",
            "The same mean for all apps side by side.",
            "percentunit",
            Query(gauge("mean"), "{{app}}"),
            top=1,
            repeat="metric",
        ),
        with_bands(bands, METRICS),
    ]


def _alarms() -> list[Built]:
    watched = "{{app}} {{metric}} {{rule}}"
    evidence = series("gaugeway_quality_evidence_log10", *STREAM)
    return [
        states(
            "Alarms over time",
            "From when to when the alarm of each rule was on, for the whole app and for slices of its traffic.",
            {"0": ("quiet", "transparent"), "1": ("alarm", RED)},
            Query(series("gaugeway_quality_alarm", *STREAM), watched),
            Query(series("gaugeway_quality_slice_alarm", *STREAM), f"{watched} {{{{slice}}}}"),
        ),
        lines(
            "Evidence of a drop",
            "log10 of the evidence over the alarm's threshold: 0 is the alarm, -1 the first doubt. Starts anew after an"
            " alarm. Values below -10 are shown as -10.",
            "none",
            Query(f"clamp_min({evidence}, {_QUIET_EVIDENCE})", watched),
        ),
    ]


def _objectives() -> list[Built]:
    stream = "{{app}} {{metric}}"
    left = f"1 - ({burn(_WEEK)})"
    return [
        lines(
            "Burn rate, 1 hour",
            "How many times as many answers fail as the objective allows. 1 spends a week's budget in a week; the fast"
            " alert is at 3.36.",
            "none",
            Query(burn("1h"), stream),
            width=THIRD,
        ),
        lines(
            "Burn rate, 6 hours",
            "The same over six hours; the slow alert is at 1.4.",
            "none",
            Query(burn("6h"), stream),
            width=THIRD,
        ),
        lines(
            "Budget left of 7 days",
            "What is left of the fails that the objective allows, over the last 7 days. Below 0: the objective is"
            " missed.",
            "percentunit",
            Query(left, stream),
            width=THIRD,
        ),
    ]


def _coverage() -> list[Built]:
    stream = "{{app}} {{metric}}"
    return [
        lines(
            "Scored",
            "Share of the applicable samples that got a score; the others failed. Skipped samples do not count.",
            "percentunit",
            Query(series("gaugeway_quality_coverage_ratio", *STREAM), stream),
            width=THIRD,
            top=1,
        ),
        lines(
            "Captured",
            "Of the answers of each app, the share in which question and passages were found; metrics that need them"
            " skip the others. 0 for an app that does not retrieve.",
            "percentunit",
            Query(f"max by (app) ({series('gaugeway_capture_ratio', 'app')})", "{{app}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Effective scores",
            "Effective number of scores behind each mean; from 100 on there is a mean and an interval.",
            "short",
            Query(series("gaugeway_quality_n_eff", *STREAM), stream),
            width=THIRD,
        ),
        lines(
            "Scores",
            "Scores given, by app and metric.",
            "ops",
            Query(rate(series("gaugeway_score_count", *STREAM), *STREAM), stream),
            width=THIRD,
        ),
        lines(
            "Scores that are no evidence",
            "Scores that no alarm takes in, because too many evaluations beside them failed.",
            "ops",
            Query(rate(series("gaugeway_uncovered_scores_total", "metric"), "metric"), "{{metric}}"),
            width=THIRD,
        ),
        lines(
            "Correlation with the lexical score",
            "How well the score that asks no judge foretells the judge's, on all traffic: 1 perfectly, 0 not at all.",
            "none",
            Query(series("gaugeway_quality_cheap_correlation", *STREAM), stream),
            width=THIRD,
        ),
        lines(
            "Judge calls saved by it",
            "How many times as many judge calls the same interval would cost without the lexical score.",
            "none",
            Query(series("gaugeway_quality_judge_saving_ratio", *STREAM), stream),
            width=THIRD,
        ),
    ]
