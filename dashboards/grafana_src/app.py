"""App drill-down: one app's scores as they are, its verdicts, where its contexts come from, and the way to traces."""

from __future__ import annotations

from dashboards.grafana_src.board import Board, Chosen
from dashboards.grafana_src.panels import (
    THIRD,
    Built,
    Query,
    heat,
    increase,
    lines,
    quantile,
    rate,
    series,
    share,
    with_bands,
)

STREAM = ("app", "metric")
SCORES = (*STREAM, "model")
_PER_HOUR = 3600


def board() -> Board:
    """The dashboard to look closer."""
    return Board(
        uid="gaugeway-app",
        title="Gaugeway / App drill-down",
        description="One app's scores as they are, its verdicts, where its contexts come from, and the way to traces.",
        variables=(
            Chosen("app", "gaugeway_score_count", single=True),
            Chosen("metric", "gaugeway_score_count"),
            Chosen("model", "gaugeway_score_count"),
        ),
        rows=(("Scores", _scores()), ("Verdicts", _verdicts()), ("Contexts and capture", _capture())),
    )


def _scores() -> list[Built]:
    buckets = series("gaugeway_score_bucket", *SCORES)
    mean = lines(
        "$metric: mean and what is promised",
        "The mean over the window with its 95 % confidence sequence, and the mean that each rule promises.",
        "percentunit",
        Query(series("gaugeway_quality_mean", *STREAM), "mean"),
        Query(series("gaugeway_quality_ci_low", *STREAM), "low"),
        Query(series("gaugeway_quality_ci_high", *STREAM), "high"),
        Query(series("gaugeway_quality_baseline", *STREAM), "promised by {{rule}}"),
        top=1,
        repeat="metric",
    )
    total = rate(series("gaugeway_score_sum", *SCORES), "metric", "model")
    count = rate(series("gaugeway_score_count", *SCORES), "metric", "model")
    return [
        with_bands(mean, [""]),
        heat(
            "$metric: all scores",
            "How many scores fell into each tenth. Two camps, one at 0, are another story than a mean in the middle."
            " The dots are exemplars and lead to traces.",
            increase(buckets, "$__rate_interval", "le"),
            repeat="metric",
        ),
        lines(
            "The worst tenth",
            "10th percentile of the scores, interpolated within tenths. The dots are exemplars: a click opens the"
            " exchange's trace.",
            "percentunit",
            Query(quantile(0.1, buckets, "metric"), "{{metric}}", exemplars=True),
            width=THIRD,
            top=1,
        ),
        lines(
            "Median",
            "50th percentile of the scores, interpolated within tenths.",
            "percentunit",
            Query(quantile(0.5, buckets, "metric"), "{{metric}}", exemplars=True),
            width=THIRD,
            top=1,
        ),
        lines(
            "Mean by model",
            "Plain means of the scores by the model that answered: is it the model or the app? No weights here.",
            "percentunit",
            Query(f"{total} / {count}", "{{metric}} {{model}}"),
            width=THIRD,
            top=1,
        ),
    ]


def _verdicts() -> list[Built]:
    passed = rate(series("gaugeway_verdicts_total", *STREAM, verdict="pass"), "metric")
    judged = rate(series("gaugeway_verdicts_total", *STREAM, verdict="~pass|fail"), "metric")
    cost = rate(series("gaugeway_evaluation_cost_usd_total", *STREAM), "metric")
    return [
        lines(
            "Share that passes",
            "Scores on the right side of the metric's threshold.",
            "percentunit",
            Query(share(passed, judged), "{{metric}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Verdicts",
            "What became of the evaluations: pass and fail have a score, error means that it failed, skipped that the"
            " metric does not apply.",
            "percentunit",
            Query(rate(series("gaugeway_verdicts_total", *STREAM), "verdict"), "{{verdict}}"),
            width=THIRD,
            stacked="percent",
        ),
        lines(
            "Cost of judging this app",
            "USD an hour at the configured prices.",
            "currencyUSD",
            Query(f"{_PER_HOUR} * {cost}", "{{metric}}"),
            width=THIRD,
            stacked="normal",
        ),
    ]


def _capture() -> list[Built]:
    extractions = "gaugeway_context_extractions_total"
    captured = lines(
        "Captured",
        "Of the answers, the share in which question and passages were found, with its 95 % interval. Calls that answer"
        " no user do not count.",
        "percentunit",
        Query(series("gaugeway_capture_ratio", "app"), "captured"),
        Query(series("gaugeway_capture_ci_low", "app"), "low"),
        Query(series("gaugeway_capture_ci_high", "app"), "high"),
        top=1,
    )
    return [
        with_bands(captured, [""]),
        lines(
            "What was found in answers",
            "Question and passages (both), one of them, or nothing. More of the others than before: the prompt is no"
            " longer recognised.",
            "percentunit",
            Query(rate(series("gaugeway_answers_total", "app"), "found"), "{{found}}"),
            stacked="percent",
        ),
        lines(
            "What found the contexts",
            "Captured exchanges by the extractor that found their contexts. More `none` than before: the prompt is no"
            " longer recognised.",
            "percentunit",
            Query(rate(series(extractions, "app"), "extractor"), "{{extractor}}"),
            width=THIRD,
            stacked="percent",
        ),
        lines(
            "Without contexts",
            "Share of the captured exchanges in which no contexts were found.",
            "percentunit",
            Query(
                share(
                    rate(series(extractions, "app", extractor="none"), "app"), rate(series(extractions, "app"), "app")
                ),
                "{{app}}",
            ),
            width=THIRD,
            top=1,
        ),
        lines(
            "What was captured",
            "Answers are judged; auxiliary calls, resubmissions and exchanges without an answer are not.",
            "ops",
            Query(rate(series("gaugeway_captured_total", "app"), "kind"), "{{kind}}"),
            width=THIRD,
            stacked="normal",
        ),
    ]
