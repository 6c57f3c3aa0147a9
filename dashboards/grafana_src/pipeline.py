"""Evaluation pipeline: does it keep up, what does it lose, does the judge see, and what does judging cost."""

from __future__ import annotations

from dashboards.grafana_src import backpressure as pressure
from dashboards.grafana_src.board import Board, Chosen
from dashboards.grafana_src.panels import (
    GREEN,
    RED,
    THIRD,
    YELLOW,
    Built,
    Query,
    figure,
    lines,
    quantile,
    rate,
    series,
    share,
    states,
)

_PER_HOUR = 3600


def board() -> Board:
    """The dashboard of the evaluation plane."""
    return Board(
        uid="gaugeway-pipeline",
        title="Gaugeway / Evaluation pipeline",
        description="Does it keep up, what does it lose, does the judge see, and what does judging cost.",
        variables=(Chosen("app", "gaugeway_verdicts_total"), Chosen("metric", "gaugeway_verdicts_total")),
        rows=(
            ("Now", _now()),
            ("Queue", _queue()),
            ("Back-pressure", pressure.row()),
            ("Evaluations", _evaluations()),
            ("Judge", _judge()),
            ("Cost", _cost()),
            ("Trust in the judge", _trust()),
            ("Beside the traffic", _beside()),
        ),
    )


def _now() -> list[Built]:
    hour = f"sum(increase({series('gaugeway_judge_cost_usd_total')}[1h]))"
    return [
        figure(
            "Waiting",
            "Samples that wait or are being evaluated.",
            "short",
            f"sum({series('gaugeway_queue_depth')})",
            [(None, GREEN), (1000, YELLOW), (10000, RED)],
        ),
        figure(
            "Lag",
            "Age of the oldest sample that has not been evaluated.",
            "s",
            f"max({series('gaugeway_queue_oldest_seconds')})",
            [(None, GREEN), (300, YELLOW), (900, RED)],
        ),
        figure(
            "Set aside",
            "Samples given up after too many attempts.",
            "short",
            f"sum({series('gaugeway_queue_dead_letters')})",
            [(None, GREEN), (1, RED)],
        ),
        figure(
            "Judge",
            "Blind while a judge fails and is not asked.",
            "none",
            f"max({series('gaugeway_judge_blind')})",
            [(None, GREEN), (1, RED)],
            names={"0": "sees", "1": "blind"},
        ),
        figure("Judging, last hour", "USD at the configured prices.", "currencyUSD", hour, [(None, GREEN)]),
        figure(
            "Spent today",
            "What the process has spent on judging in this UTC day, as its budget counts it. 0 without a budget.",
            "currencyUSD",
            f"sum({series('gaugeway_judge_budget_spent_usd')})",
            [(None, GREEN)],
        ),
    ]


def _queue() -> list[Built]:
    return [
        lines(
            "Waiting samples",
            "Samples that wait or are being evaluated. Growing all day: the judge cannot keep up with the rates.",
            "short",
            Query(series("gaugeway_queue_depth"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Lag of the evaluation",
            "Age of the oldest sample that has not been evaluated. Alarms wait for it.",
            "s",
            Query(series("gaugeway_queue_oldest_seconds"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Captured and lost",
            "Exchanges by outcome; `overflow` and `error` never reach the queue.",
            "ops",
            Query(rate(series("gaugeway_exchanges_total", "app"), "outcome"), "{{outcome}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Samples set aside",
            "Samples given up after too many attempts; they stay in the queue's file.",
            "short",
            Query(series("gaugeway_queue_dead_letters"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Late scores",
            "Scores that came after their bucket was closed: they count in the means, not in the alarms.",
            "ops",
            Query(rate(series("gaugeway_late_scores_total"), "instance"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Failed operations",
            "Operations of the evaluation plane that failed and are repeated: store, queue, export, alerts.",
            "ops",
            Query(rate(series("gaugeway_worker_errors_total"), "operation"), "{{operation}}"),
            width=THIRD,
        ),
    ]


def _evaluations() -> list[Built]:
    name = "gaugeway_evaluations_total"
    return [
        lines(
            "Evaluations by outcome",
            "Evaluations that gave a score, did not apply, or failed.",
            "ops",
            Query(rate(series(name, "metric"), "outcome"), "{{outcome}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Why skipped",
            "Reasons for which a metric did not apply. Many `no_contexts`: tell Gaugeway where the contexts are.",
            "ops",
            Query(rate(series(name, "metric", outcome="skipped"), "reason"), "{{reason}}"),
            width=THIRD,
        ),
        lines(
            "Why failed",
            "Reasons for which there is no score though there should be one.",
            "ops",
            Query(rate(series(name, "metric", outcome="failed"), "metric", "reason"), "{{metric}} {{reason}}"),
            width=THIRD,
        ),
        lines(
            "Verdicts by app",
            "Evaluations by app.",
            "ops",
            Query(rate(series("gaugeway_verdicts_total", "app", "metric"), "app"), "{{app}}"),
        ),
        lines(
            "Alerts told",
            "Attempts to tell an alert, by notifier. Failed ones are repeated.",
            "ops",
            Query(rate(series("gaugeway_notifications_total"), "notifier", "result"), "{{notifier}} {{result}}"),
        ),
    ]


def _judge() -> list[Built]:
    model = "judge_model"
    errors = rate(series("gaugeway_judge_errors_total"), model)
    asked = f"({rate(series('gaugeway_judge_requests_total'), model)} + {errors})"
    duration = series("gaugeway_judge_duration_seconds_bucket")
    return [
        lines(
            "Answers",
            "Requests that a judge answered.",
            "ops",
            Query(rate(series("gaugeway_judge_requests_total"), model), "{{judge_model}}"),
            width=THIRD,
        ),
        lines(
            "Duration of an answer",
            "How long a judge takes for one answer, median and 95th percentile.",
            "s",
            Query(quantile(0.5, duration, model), "{{judge_model}} p50"),
            Query(quantile(0.95, duration, model), "{{judge_model}} p95"),
            width=THIRD,
        ),
        lines(
            "Share of errors",
            "Requests without a usable answer, of all that were made. `blind` ones were not made, but count.",
            "percentunit",
            Query(f"{errors} / {asked}", "{{judge_model}}"),
            width=THIRD,
        ),
        lines(
            "Errors by kind",
            "Requests without a usable answer, by kind.",
            "ops",
            Query(rate(series("gaugeway_judge_errors_total"), model, "error"), "{{judge_model}} {{error}}"),
            width=THIRD,
        ),
        lines(
            "Unusable answers",
            "Answers that came and could not be used, by what was wrong with them.",
            "ops",
            Query(rate(series("gaugeway_judge_unusable_total"), model, "reason"), "{{judge_model}} {{reason}}"),
            width=THIRD,
        ),
        states(
            "Does it see?",
            "Blind while a judge fails and is not asked; meanwhile no alarm on judged metrics is raised or ended.",
            {"0": ("sees", GREEN), "1": ("blind", RED)},
            Query(series("gaugeway_judge_blind"), "{{judge_model}}"),
            width=THIRD,
        ),
    ]


def _cost() -> list[Built]:
    return [
        lines(
            "Cost by judge",
            "USD an hour at the configured prices.",
            "currencyUSD",
            Query(f"{_PER_HOUR} * {rate(series('gaugeway_judge_cost_usd_total'), 'judge_model')}", "{{judge_model}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Cost by app",
            "USD an hour, by the app whose exchanges were judged.",
            "currencyUSD",
            Query(
                f"{_PER_HOUR} * {rate(series('gaugeway_evaluation_cost_usd_total', 'app', 'metric'), 'app')}", "{{app}}"
            ),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Cost by metric",
            "USD an hour, by metric.",
            "currencyUSD",
            Query(
                f"{_PER_HOUR} * {rate(series('gaugeway_evaluation_cost_usd_total', 'app', 'metric'), 'metric')}",
                "{{metric}}",
            ),
            width=THIRD,
            stacked="normal",
        ),
        *_saving(),
    ]


def _saving() -> list[Built]:
    lookups = "gaugeway_judge_cache_lookups_total"
    return [
        lines(
            "Tokens of the judge",
            "Tokens that judges read and wrote.",
            "ops",
            Query(rate(series("gaugeway_judge_tokens_total"), "judge_model", "type"), "{{judge_model}} {{type}}"),
            width=THIRD,
        ),
        lines(
            "Answers from the cache",
            "Share of the questions whose answer was paid for before.",
            "percentunit",
            Query(
                share(rate(series(lookups, result="hit"), "judge_model"), rate(series(lookups), "judge_model")),
                "{{judge_model}}",
            ),
            width=THIRD,
            top=1,
        ),
        lines(
            "Saved by the cache",
            "USD an hour that cached answers would have cost.",
            "currencyUSD",
            Query(
                f"{_PER_HOUR} * {rate(series('gaugeway_judge_cache_saved_usd_total'), 'judge_model')}",
                "{{judge_model}}",
            ),
            width=THIRD,
        ),
        lines(
            "Budget: spent today",
            "USD of this UTC day, as the budget counts them. 0 without a budget.",
            "currencyUSD",
            Query(series("gaugeway_judge_budget_spent_usd"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Budget: rates kept",
            "By which factor the budget lowers the rates of judged metrics; 1 is all of them. 0 and no spending: there"
            " is no budget.",
            "percentunit",
            Query(series("gaugeway_judge_budget_factor"), "{{instance}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Cost of embeddings",
            "USD an hour at the configured price.",
            "currencyUSD",
            Query(f"{_PER_HOUR} * {rate(series('gaugeway_embedding_cost_usd_total'), 'model')}", "{{model}}"),
            width=THIRD,
        ),
    ]


def _trust() -> list[Built]:
    agreement = rate(series("gaugeway_judge_agreement_sum"), "tier", "sure")
    compared = rate(series("gaugeway_judge_agreement_count"), "tier", "sure")
    return [
        lines(
            "Small judges: what became of questions",
            "sure: the smaller judge's answer was taken; unsure and failed: the large one was asked.",
            "ops",
            Query(rate(series("gaugeway_judge_tier_total"), "tier", "outcome"), "{{tier}} {{outcome}}"),
            width=THIRD,
        ),
        lines(
            "Small judges: agreement",
            "Mean agreement with the large judge, on the share of questions that both are asked.",
            "percentunit",
            Query(f"{agreement} / {compared}", "{{tier}} sure: {{sure}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Anchors: share judged otherwise",
            "Share of the anchors that the judge scores otherwise than expected, and the lower end of its 95 %"
            " interval. Above 10 % at the lower end: the judge has changed.",
            "percentunit",
            Query(series("gaugeway_judge_drift_ratio", "metric"), "{{metric}}"),
            Query(series("gaugeway_judge_drift_low", "metric"), "{{metric}} at least"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Anchors: shift",
            "Mean of score minus expectation on the anchors: how far and in which direction the scale has moved.",
            "none",
            Query(series("gaugeway_judge_drift_shift", "metric"), "{{metric}}"),
            width=THIRD,
        ),
        lines(
            "Embeddings",
            "Requests for embeddings that were answered, and those that were not answered usably.",
            "ops",
            Query(rate(series("gaugeway_embedding_requests_total"), "model"), "{{model}} answered"),
            Query(rate(series("gaugeway_embedding_errors_total"), "model", "error"), "{{model}} {{error}}"),
            width=THIRD,
        ),
        lines(
            "Embeddings from the cache",
            "Share of the texts whose vector was there already.",
            "percentunit",
            Query(
                share(
                    rate(series("gaugeway_embedding_lookups_total", result="hit"), "model"),
                    rate(series("gaugeway_embedding_lookups_total"), "model"),
                ),
                "{{model}}",
            ),
            width=THIRD,
            top=1,
        ),
    ]


def _beside() -> list[Built]:
    return [
        lines(
            "Contexts, feedback and spans",
            "What was said about exchanges beside them: joined, waiting for its exchange, or given up.",
            "ops",
            Query(rate(series("gaugeway_supplements_total"), "source", "result"), "{{source}} {{result}}"),
        ),
        lines(
            "Retriever spans",
            "Retriever spans received, by the convention they follow.",
            "ops",
            Query(rate(series("gaugeway_retrieval_spans_total"), "convention"), "{{convention}}"),
        ),
    ]
