"""Panels about the judge's end: when its model is shut down, and how the next one differs from it."""

from __future__ import annotations

from tools.grafana.panels import THIRD, Built, Query, lines, series


def panels() -> list[Built]:
    """The panels, for a row of the pipeline's dashboard."""
    labels = ("metric",)
    named = "{{judge_model}} {{metric}}"
    return [
        lines(
            "Time until the judge is shut down",
            "What is left until the shutdown date that the judge's endpoint announces in its list of models, for each"
            " judge, small judge and next judge. Replace the model before it reaches 0.",
            "s",
            Query(f"{series('gaugeway_judge_shutdown_timestamp_seconds')} - time()", "{{judge_model}}"),
            width=THIRD,
        ),
        lines(
            "Next judge: agreement",
            "Share of the anchors on which `judge.next_model` agrees with the present judge, with its 95 % interval.",
            "percentunit",
            Query(series("gaugeway_judge_next_agreement_ratio", *labels), named),
            Query(series("gaugeway_judge_next_agreement_low", *labels), f"{named} low"),
            Query(series("gaugeway_judge_next_agreement_high", *labels), f"{named} high"),
            width=THIRD,
            top=1,
        ),
        lines(
            "Next judge: shift",
            "Mean score of the next judge minus that of the present one on the anchors: by so much the means move after"
            " the switch.",
            "none",
            Query(series("gaugeway_judge_next_shift", *labels), named),
            width=THIRD,
        ),
    ]
