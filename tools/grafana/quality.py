"""Quality overview: means with confidence intervals, alerts and objectives of every app."""

from __future__ import annotations

from monitors.metrics.registry import names
from tools.grafana.board import MISSING, Board, Chosen
from tools.grafana.panels import (
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
_OBJECTIVE = f"max by (app, metric) ({series('gaugeway_slo_objective_ratio', *STREAM)})"
_QUIET_EVIDENCE = -10
_WEEK = "7d"


def missed(window: str) -> str:
    """Share of `fail` verdicts in a window, by app and metric."""
    failed = increase(series("gaugeway_verdicts_total", *STREAM, verdict="fail"), window, *STREAM)
    judged = increase(series("gaugeway_verdicts_total", *STREAM, verdict="~pass|fail"), window, *STREAM)
    return share(failed, judged)


def burn(window: str) -> str:
    """Burn rate of the error budget in a window, by app and metric; 1 is the allowed rate."""
    return f"({missed(window)}) / on (app, metric) (1 - {_OBJECTIVE})"


def board() -> Board:
    """The overview dashboard."""
    return Board(
        uid="gaugeway-quality",
        title="Gaugeway / Quality overview",
        description="Means with confidence intervals, alerts and objectives of every app.",
        variables=(Chosen("app", "gaugeway_quality_n_eff"), Chosen("metric", "gaugeway_quality_n_eff")),
        rows=(
            ("Now", _now()),
            ("Means", _means()),
            ("Alerts", _alarms()),
            ("Objectives", _objectives()),
            ("Coverage", _coverage()),
            ("Basis of the means", _estimates()),
            ("Human labels", _labels()),
        ),
        missing=MISSING["quality"],
    )


def _now() -> list[Built]:
    alarm = series("gaugeway_quality_alarm", *STREAM)
    slices = series("gaugeway_quality_slice_alarm", *STREAM)
    coverage = series("gaugeway_quality_coverage_ratio", *STREAM)
    return [
        figure(
            "Firing alerts",
            "Quality alerts firing for apps and slices. Gaugeway computes them from every score, with a bounded"
            " false-alert rate. No data without rules.",
            "none",
            f"sum({alarm}) + (count({slices}) or vector(0))",
            [(None, GREEN), (1, RED)],
        ),
        figure(
            "Lowest coverage",
            "Smallest share, over apps and metrics, of applicable samples with a score. Below 1 some evaluations"
            " failed, and the means may be biased.",
            "percentunit",
            f"min({coverage})",
            [(None, RED), (0.9, YELLOW), (0.98, GREEN)],
        ),
        figure(
            "Fast burn",
            "Apps and metrics whose burn rate in the last hour is at least 3.36: 2 % of the weekly error budget in one"
            " hour.",
            "none",
            f"count({burn('1h')} > 3.36) or vector(0)",
            [(None, GREEN), (1, RED)],
        ),
        figure(
            "Evaluation lag",
            "Age of the oldest unevaluated sample. Means do not include later exchanges completely.",
            "s",
            f"max({series('gaugeway_queue_oldest_seconds')})",
            [(None, GREEN), (300, YELLOW), (900, RED)],
        ),
        figure(
            "Judge",
            "Circuit open: the judge keeps failing and is not called; no alert on judged metrics fires or resolves.",
            "none",
            f"max({series('gaugeway_judge_blind', role='~judge|small')})",
            [(None, GREEN), (1, RED)],
            names={"0": "OK", "1": "circuit open"},
        ),
        figure(
            "Streams",
            "App-metric pairs with at least one score in the window.",
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
    columns = [(heading, f"max by (instance, app, metric) ({selector})") for heading, selector in shown.items()]
    bands = lines(
        "Confidence bands: $app",
        "Means over the window (an hour by default) with their 95 % confidence sequences, which stay valid however"
        " often you look. A gap: fewer than 10 effective scores.",
        "score",
        Query(gauge("mean"), "{{metric}}"),
        Query(gauge("ci_low"), "{{metric}} low"),
        Query(gauge("ci_high"), "{{metric}} high"),
        top=1,
        repeat="app",
    )
    return [
        listing(
            "Means now",
            "Mean of each metric and app over the window, its 95 % confidence sequence, objective and threshold. For"
            " `hallucination`, `noise_sensitivity`, `asked_again` and `gave_up` 0 is best.",
            "score",
            columns,
        ),
        lines(
            "Mean of $metric",
            "The same mean for all apps.",
            "score",
            Query(gauge("mean"), "{{app}}"),
            top=1,
            repeat="metric",
        ),
        with_bands(bands, names()),  # any other metric shows the ends of its interval as lines
        lines(
            "Signals",
            "Means of the signals, which every captured exchange has without a judge: answers that decline, cut off"
            " responses, retriever scores (0.5 is usual) ...",
            "score",
            Query(f"max by (app, signal) ({series('gaugeway_signal_mean', 'app')})", "{{app}} {{signal}}"),
            top=1,
        ),
    ]


def _alarms() -> list[Built]:
    watched = "{{app}} {{metric}} {{rule}}"
    evidence = series("gaugeway_quality_evidence_log10", *STREAM)
    return [
        states(
            "Alerts over time",
            "When each rule was firing, for whole apps and for slices of their traffic.",
            {"0": ("OK", "transparent"), "1": ("firing", RED)},
            Query(series("gaugeway_quality_alarm", *STREAM), watched),
            Query(series("gaugeway_quality_slice_alarm", *STREAM), f"{watched} {{{{slice}}}}"),
        ),
        lines(
            "Evidence of a drop",
            "log10 of the evidence relative to the alert threshold: firing at 0, pending from -1. Reset after an alert."
            " Values below -10 are shown as -10.",
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
            "Failed share divided by the share the objective allows. 1 uses the weekly budget in a week; the fast alert"
            " fires above 3.36.",
            "none",
            Query(burn("1h"), stream),
            width=THIRD,
        ),
        lines(
            "Burn rate, 6 hours",
            "The same over six hours; the slow alert fires above 1.4.",
            "none",
            Query(burn("6h"), stream),
            width=THIRD,
        ),
        lines(
            "Error budget left, 7 days",
            "Remaining share of the error budget of the last 7 days. Below 0: the objective is missed.",
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
            "Share of the applicable samples with a score; the others failed. Skipped samples do not count.",
            "percentunit",
            Query(series("gaugeway_quality_coverage_ratio", *STREAM), stream),
            width=THIRD,
            top=1,
        ),
        lines(
            "Captured",
            "Share of each app's answers with question and passages found; metrics that need them skip the rest. 0 for"
            " an app without retrieval.",
            "percentunit",
            Query(f"max by (app) ({series('gaugeway_capture_ratio', 'app')})", "{{app}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Scores ignored by alerts",
            "Scores ignored by alerts: coverage too low.",
            "ops",
            Query(rate(series("gaugeway_uncovered_scores_total", "metric"), "metric"), "{{metric}}"),
            width=THIRD,
        ),
        lines(
            "Correlation with the covariate",
            "Correlation of the score of all traffic (grounding, else lexical) with the judge's: 1 perfect, 0 none.",
            "none",
            Query(series("gaugeway_quality_cheap_correlation", *STREAM), stream),
            width=THIRD,
        ),
        lines(
            "Judge calls saved by the covariate",
            "Judge calls needed for the same interval without the covariate, as a multiple of those made.",
            "none",
            Query(series("gaugeway_quality_judge_saving_ratio", *STREAM), stream),
            width=THIRD,
        ),
    ]


def _estimates() -> list[Built]:
    stream = "{{app}} {{metric}}"
    return [
        lines(
            "Effective scores",
            "Effective number of scores of each mean; a mean needs 10. Scores of one conversation count less than"
            " independent ones.",
            "short",
            Query(series("gaugeway_quality_n_eff", *STREAM), stream),
            width=THIRD,
        ),
        lines(
            "Window of the mean",
            "Time over which each mean is taken: the shortest of the configured window, 6 h, 24 h and 7 d with 10"
            " effective scores.",
            "s",
            Query(series("gaugeway_quality_window_seconds", *STREAM), stream),
            width=THIRD,
        ),
        lines(
            "Scores",
            "Scores per second by app and metric.",
            "ops",
            Query(rate(series("gaugeway_score_count", *STREAM), *STREAM), stream),
            width=THIRD,
        ),
    ]


def _labels() -> list[Built]:
    stream = "{{app}} {{metric}}"

    def corrected(end: str) -> str:
        return series(f"gaugeway_quality_corrected_{end}", *STREAM)

    return [
        lines(
            "Corrected mean",
            "The judge's mean corrected by human labels, with its 95 % interval. Needs labels: rate answers on the"
            " operator's page.",
            "score",
            Query(corrected("mean"), stream),
            Query(corrected("ci_low"), f"{stream} low"),
            Query(corrected("ci_high"), f"{stream} high"),
            top=1,
        ),
        lines(
            "Agreement with people",
            "Cohen's kappa between the judge and human labels on pass or fail: 1 perfect, 0 no better than chance.",
            "none",
            Query(series("gaugeway_judge_agreement_kappa", *STREAM), stream),
        ),
    ]
