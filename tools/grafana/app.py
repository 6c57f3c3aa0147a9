"""App drill-down: score distributions, verdicts, capture and trace links of one app."""

from __future__ import annotations

from collections.abc import Mapping

from tools.grafana.board import MISSING, Board, Chosen
from tools.grafana.panels import (
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
    """The app drill-down dashboard."""
    return Board(
        uid="gaugeway-app",
        title="Gaugeway / App drill-down",
        description="Score distributions, verdicts and capture of one app, with links to traces.",
        variables=(
            Chosen("app", "gaugeway_score_count", single=True),
            Chosen("metric", "gaugeway_score_count"),
            Chosen("model", "gaugeway_score_count"),
        ),
        rows=(
            ("Scores", _scores()),
            ("Verdicts", _verdicts()),
            ("Retrieval and generation", _time()),
            ("Contexts and capture", _capture()),
        ),
        missing=MISSING["app"],
    )


def _scores() -> list[Built]:
    buckets = series("gaugeway_score_bucket", *SCORES)
    mean = lines(
        "$metric: mean and baseline",
        "Mean over the window with its 95 % confidence sequence, and the baseline or SLO of each rule.",
        "score",
        Query(series("gaugeway_quality_mean", *STREAM), "mean"),
        Query(series("gaugeway_quality_ci_low", *STREAM), "low"),
        Query(series("gaugeway_quality_ci_high", *STREAM), "high"),
        Query(series("gaugeway_quality_baseline", *STREAM), "baseline of {{rule}}"),
        top=1,
        repeat="metric",
    )
    total = rate(series("gaugeway_score_sum", *SCORES), "metric", "model")
    count = rate(series("gaugeway_score_count", *SCORES), "metric", "model")
    return [
        with_bands(mean, [""]),
        heat(
            "$metric: all scores",
            "Number of scores per tenth. Shows whether a mean in the middle hides two groups, one of them at 0."
            " The dots are exemplars that link to traces.",
            increase(buckets, "$__rate_interval", "le"),
            repeat="metric",
        ),
        lines(
            "10th percentile",
            "10th percentile of the scores, interpolated within tenths. The dots are exemplars: click one to open the"
            " trace of its exchange.",
            "score",
            Query(quantile(0.1, buckets, "metric"), "{{metric}}", exemplars=True),
            width=THIRD,
            top=1,
        ),
        lines(
            "Median",
            "50th percentile of the scores, interpolated within tenths.",
            "score",
            Query(quantile(0.5, buckets, "metric"), "{{metric}}", exemplars=True),
            width=THIRD,
            top=1,
        ),
        lines(
            "Mean by model",
            "Unweighted means of the scores by responding model: shows whether a drop is limited to one model.",
            "score",
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
            "Pass rate",
            "Share of the scores on the passing side of the metric's threshold.",
            "percentunit",
            Query(share(passed, judged), "{{metric}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Verdicts",
            "Evaluations by verdict: pass and fail have a score; error: the evaluation failed; skipped: the metric"
            " does not apply.",
            "percentunit",
            Query(rate(series("gaugeway_verdicts_total", *STREAM), "verdict"), "{{verdict}}"),
            width=THIRD,
            stacked="percent",
        ),
        lines(
            "Judging cost of this app",
            "USD per hour at the configured prices.",
            "currencyUSD",
            Query(f"{_PER_HOUR} * {cost}", "{{metric}}"),
            width=THIRD,
            stacked="normal",
        ),
    ]


def _time() -> list[Built]:
    def percentiles(name: str) -> list[Query]:
        histogram = series(name, "app")
        return [Query(quantile(q, histogram), f"p{100 * q:.0f}") for q in (0.5, 0.95)]

    return [
        lines(
            "Retrieval time",
            "How long the retriever's spans of an exchange take, overlaps counted once: median and 95th percentile.",
            "s",
            *percentiles("gaugeway_retrieval_duration_seconds_bucket"),
        ),
        lines(
            "Generation time",
            "How long the model takes, from the request head to the last byte of the response: median and 95th"
            " percentile. An app waits for both, one after the other.",
            "s",
            *percentiles("gaugeway_request_duration_seconds_bucket"),
        ),
    ]


def _share_of_captures(title: str, about: str, names: Mapping[str, str]) -> Built:
    """Return a share with its interval; `names`: the legend of each series behind `gaugeway_capture_`."""
    queries = [Query(series(f"gaugeway_capture_{name}", "app"), legend) for name, legend in names.items()]
    return with_bands(lines(title, about, "percentunit", *queries, top=1), [""])


def _capture() -> list[Built]:
    extractions = "gaugeway_context_extractions_total"
    return [
        _share_of_captures(
            "Captured",
            "Share of the answers with question and passages found, with its 95 % interval. Internal calls do not"
            " count.",
            {"ratio": "captured", "ci_low": "low", "ci_high": "high"},
        ),
        _share_of_captures(
            "Capture the judge agrees with",
            "Share of the exchanges audited in 30 days in which the judge marks the same question and passages as were"
            " captured, with its 95 % interval. Needs a judge; an app gets five audits a day.",
            {"audited_ratio": "agrees", "audited_low": "low", "audited_high": "high"},
        ),
        lines(
            "Found in answers",
            "Answers with question and passages (both), one of them, or neither. A falling share of `both` means that"
            " the prompt is no longer recognised.",
            "percentunit",
            Query(rate(series("gaugeway_answers_total", "app"), "found"), "{{found}}"),
            stacked="percent",
        ),
        lines(
            "Context extractors",
            "Captured exchanges by the extractor that found their contexts. A growing share of `none` means that the"
            " prompt is no longer recognised.",
            "percentunit",
            Query(rate(series(extractions, "app"), "extractor"), "{{extractor}}"),
            width=THIRD,
            stacked="percent",
        ),
        lines(
            "Without contexts",
            "Share of the captured exchanges without contexts.",
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
            "Captured exchanges by kind",
            "Only answers are judged; auxiliary calls, resubmissions and exchanges without an answer are not.",
            "ops",
            Query(rate(series("gaugeway_captured_total", "app"), "kind"), "{{kind}}"),
            width=THIRD,
            stacked="normal",
        ),
    ]
