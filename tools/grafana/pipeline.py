"""Evaluation pipeline: queue lag, losses, evaluations, judge health and judging cost."""

from __future__ import annotations

from tools.grafana import backpressure as pressure
from tools.grafana import successor
from tools.grafana.board import MISSING, Board, Chosen
from tools.grafana.panels import (
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
        description="Queue lag, losses, evaluations, judge health and judging cost.",
        variables=(Chosen("app", "gaugeway_verdicts_total"), Chosen("metric", "gaugeway_verdicts_total")),
        rows=(
            ("Now", _now()),
            ("Queue", _queue()),
            ("Back-pressure", pressure.row()),
            ("Evaluations", _evaluations()),
            ("Judge", _judge()),
            ("Cost", _cost()),
            ("Trust in the judge", _trust()),
            ("Conversations", _conversations()),
            ("Supplements", _supplements()),
        ),
        missing=MISSING["pipeline"],
    )


def _now() -> list[Built]:
    hour = f"sum(increase({series('gaugeway_judge_cost_usd_total')}[1h]))"
    return [
        figure(
            "Waiting",
            "Samples waiting or being evaluated.",
            "short",
            f"sum({series('gaugeway_queue_depth')})",
            [(None, GREEN), (1000, YELLOW), (10000, RED)],
        ),
        figure(
            "Lag",
            "Age of the oldest unevaluated sample.",
            "s",
            f"max({series('gaugeway_queue_oldest_seconds')})",
            [(None, GREEN), (300, YELLOW), (900, RED)],
        ),
        figure(
            "Dead letters",
            "Samples abandoned after too many attempts.",
            "short",
            f"sum({series('gaugeway_queue_dead_letters')})",
            [(None, GREEN), (1, RED)],
        ),
        figure(
            "Judge",
            "Circuit open: the judge keeps failing and is not called.",
            "none",
            f"max({series('gaugeway_judge_blind', role='~judge|small')})",
            [(None, GREEN), (1, RED)],
            names={"0": "OK", "1": "circuit open"},
        ),
        figure("Judging cost, last hour", "USD at the configured prices.", "currencyUSD", hour, [(None, GREEN)]),
        figure(
            "Spent today",
            "Judging cost of the current UTC day, as counted by the budget. 0 without a budget.",
            "currencyUSD",
            f"sum({series('gaugeway_judge_budget_spent_usd')})",
            [(None, GREEN)],
        ),
    ]


def _queue() -> list[Built]:
    return [
        lines(
            "Waiting samples",
            "Samples waiting or being evaluated. If it grows all day, evaluation cannot keep up with the rates.",
            "short",
            Query(series("gaugeway_queue_depth"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Evaluation lag",
            "Age of the oldest unevaluated sample. Quality alerts are delayed by as much.",
            "s",
            Query(series("gaugeway_queue_oldest_seconds"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Exchanges by outcome",
            "Outcomes of all exchanges; `overflow` and `error` are lost.",
            "ops",
            Query(rate(series("gaugeway_exchanges_total", "app"), "outcome"), "{{outcome}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Dead letters",
            "Samples abandoned after too many attempts; they stay in the queue's file.",
            "short",
            Query(series("gaugeway_queue_dead_letters"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Late scores",
            "Scores that arrived after their bucket was closed: they count in means, not in alerts.",
            "ops",
            Query(rate(series("gaugeway_late_scores_total"), "instance"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Failed operations",
            "Failed operations of the evaluation plane (store, queue, export, alerts); they are retried.",
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
            "Evaluations that were scored, skipped or failed.",
            "ops",
            Query(rate(series(name, "metric"), "outcome"), "{{outcome}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Skip reasons",
            "Why a metric did not apply. Many `no_contexts`: describe the prompt or send the contexts explicitly.",
            "ops",
            Query(rate(series(name, "metric", outcome="skipped"), "reason"), "{{reason}}"),
            width=THIRD,
        ),
        lines(
            "Failure reasons",
            "Why an applicable metric has no score.",
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
            "Notifications",
            "Delivery attempts by notifier and result. Failed ones are retried.",
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
            "Responses",
            "Judge requests with a response.",
            "ops",
            Query(rate(series("gaugeway_judge_requests_total"), model), "{{judge_model}}"),
            width=THIRD,
        ),
        lines(
            "Response time",
            "Judge response time, median and 95th percentile.",
            "s",
            Query(quantile(0.5, duration, model), "{{judge_model}} p50"),
            Query(quantile(0.95, duration, model), "{{judge_model}} p95"),
            width=THIRD,
        ),
        lines(
            "Error rate",
            "Share of judge requests without a usable response. Requests not sent while the circuit is open (`blind`)"
            " count as errors.",
            "percentunit",
            Query(f"{errors} / {asked}", "{{judge_model}}"),
            width=THIRD,
        ),
        lines(
            "Errors by kind",
            "Judge requests without a usable response, by kind.",
            "ops",
            Query(rate(series("gaugeway_judge_errors_total"), model, "error"), "{{judge_model}} {{error}}"),
            width=THIRD,
        ),
        lines(
            "Unusable responses",
            "Responses received but not usable, by reason.",
            "ops",
            Query(rate(series("gaugeway_judge_unusable_total"), model, "reason"), "{{judge_model}} {{reason}}"),
            width=THIRD,
        ),
        states(
            "Circuit state",
            "Open while a judge keeps failing and is not called; no alert on judged metrics fires or resolves then.",
            {"0": ("closed", GREEN), "1": ("open", RED)},
            Query(series("gaugeway_judge_blind"), "{{judge_model}}"),
            width=THIRD,
        ),
    ]


def _cost() -> list[Built]:
    return [
        lines(
            "Cost by judge",
            "USD per hour at the configured prices.",
            "currencyUSD",
            Query(f"{_PER_HOUR} * {rate(series('gaugeway_judge_cost_usd_total'), 'judge_model')}", "{{judge_model}}"),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Cost by app",
            "USD per hour, by the app whose exchanges were judged.",
            "currencyUSD",
            Query(
                f"{_PER_HOUR} * {rate(series('gaugeway_evaluation_cost_usd_total', 'app', 'metric'), 'app')}", "{{app}}"
            ),
            width=THIRD,
            stacked="normal",
        ),
        lines(
            "Cost by metric",
            "USD per hour, by metric.",
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
            "Judge tokens per second",
            "Input and output tokens of the judges.",
            "short",
            Query(rate(series("gaugeway_judge_tokens_total"), "judge_model", "type"), "{{judge_model}} {{type}}"),
            width=THIRD,
        ),
        lines(
            "Judge cache hit rate",
            "Share of judge calls answered from the cache.",
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
            "USD per hour that cached responses would have cost.",
            "currencyUSD",
            Query(
                f"{_PER_HOUR} * {rate(series('gaugeway_judge_cache_saved_usd_total'), 'judge_model')}",
                "{{judge_model}}",
            ),
            width=THIRD,
        ),
        lines(
            "Budget: spent today",
            "USD spent in the current UTC day, as counted by the budget. 0 without a budget.",
            "currencyUSD",
            Query(series("gaugeway_judge_budget_spent_usd"), "{{instance}}"),
            width=THIRD,
        ),
        lines(
            "Budget: rate factor",
            "Factor by which the budget reduces the rates of judged metrics; 1: not reduced, or no budget is set.",
            "percentunit",
            Query(series("gaugeway_judge_budget_factor"), "{{instance}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Embedding cost",
            "USD per hour at the configured price.",
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
            "Small judges: outcomes",
            "sure: the small judge's verdict was used; unsure and failed: the large judge was called.",
            "ops",
            Query(rate(series("gaugeway_judge_tier_total"), "tier", "outcome"), "{{tier}} {{outcome}}"),
            width=THIRD,
        ),
        lines(
            "Small judges: agreement",
            "Mean agreement with the large judge on the calls that both answer.",
            "percentunit",
            Query(f"{agreement} / {compared}", "{{tier}} sure: {{sure}}"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Anchors: deviating share",
            "Share of the anchors scored differently than expected, and the lower bound of its 95 % interval. A bound"
            " above 10 % means that the judge has changed.",
            "percentunit",
            Query(series("gaugeway_judge_drift_ratio", "metric"), "{{metric}}"),
            Query(series("gaugeway_judge_drift_low", "metric"), "{{metric}} at least"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Anchors: shift",
            "Mean of score minus expected score on the anchors: size and direction of the shift.",
            "none",
            Query(series("gaugeway_judge_drift_shift", "metric"), "{{metric}}"),
            width=THIRD,
        ),
        lines(
            "Embeddings",
            "Embedding requests with a response, and errors.",
            "ops",
            Query(rate(series("gaugeway_embedding_requests_total"), "model"), "{{model}} answered"),
            Query(rate(series("gaugeway_embedding_errors_total"), "model", "error"), "{{model}} {{error}}"),
            width=THIRD,
        ),
        lines(
            "Embedding cache hit rate",
            "Share of the texts whose vector was cached.",
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
        *successor.panels(),
    ]


def _conversations() -> list[Built]:
    links = "gaugeway_conversation_links_total"
    counted = "response_id|tool_call|text|trace|session|first"  # "late" ones are counted twice
    lost = "missing|ambiguous|weak"
    return [
        lines(
            "Exchanges by how they were joined",
            "response_id, tool_call, text and trace continue a known exchange; session: named by the app; first: begins"
            " a conversation.",
            "ops",
            Query(rate(series(links), "result"), "{{result}}"),
            stacked="normal",
        ),
        lines(
            "Exchanges not joined",
            "Share of the exchanges that show earlier answers but fit no known exchange, several, or one by a short"
            " text alone. Name the session if it is high.",
            "percentunit",
            Query(
                share(rate(series(links, result=f"~{lost}")), rate(series(links, result=f"~{counted}|{lost}"))),
                "not joined",
            ),
            top=1,
        ),
    ]


def _supplements() -> list[Built]:
    return [
        lines(
            "Contexts, feedback and spans",
            "Supplements by source: joined to their exchange, waiting for it, or abandoned.",
            "ops",
            Query(rate(series("gaugeway_supplements_total"), "source", "result"), "{{source}} {{result}}"),
        ),
        lines(
            "Spans of apps",
            "Spans received: of retrievers by convention, of tools and agents by operation.",
            "ops",
            Query(rate(series("gaugeway_retrieval_spans_total"), "convention"), "{{convention}}"),
            Query(rate(series("gaugeway_agent_spans_total"), "operation"), "{{operation}}"),
        ),
    ]
