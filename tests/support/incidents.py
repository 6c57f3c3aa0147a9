"""Traffic with an incident: answers that get one source, after one release, turn bad."""

from __future__ import annotations

import time

from gaugeway.records import Context, Evaluation, Sample, Score

GOOD, BAD = "handbook.md", "faq.md"


async def incident(
    w, *, app="shop", good=200, since=120, evil="", minutes=120.0, metric="faithfulness", clusters=False
):
    """Store `good` good answers, then `since` of which every other one is bad, and let the engine look.

    The bad ones got the source `faq.md` and come from release 42. With `clusters`, four answers in a row are known to be
    of one session. Returns the alert that fires.
    """
    now, total = time.time(), good + since
    for index in range(total):
        bad = index >= good and index % 2 == 0
        started_at = now - 60.0 * minutes * (1 - index / total)
        subject = "a refund for order" if index % 3 else "the charger of laptop"
        sample = Sample(
            id=f"{'bad' if bad else 'good'}-{index}",
            started_at=started_at,
            app=app,
            model="m-1",
            prompt="p-1",
            question=f"How do I get {subject} {index}? {evil}".strip(),
            response=f"You get it within two years. {evil}".strip(),
            contexts=(Context(text="Returns within 30 days.", id=f"{BAD if bad else GOOD}{evil}"),),
            context_source="explicit",
            session=f"s-{index // 4}{evil}",
            cluster=f"s:{index // 4}" if clusters else None,
            tags={"release": ("42" if bad else "41") + evil},
            duration_s=1.5,
            retrieval_s=0.25,
        )
        claim = {"claim": f"within two years {evil}", "verdict": "contradicted", "contexts": [0], "quote": "30 days"}
        value = 0.2 if bad else (0.95 if index % 10 else 0.8)
        value = 1.0 - value if metric == "hallucination" else value
        outcome = Score(value, "1 claim", (claim,)) if bad else Score(value)
        await w.store.add(
            sample, [Evaluation(sample_id=sample.id, metric=metric, version="1", outcome=outcome, seconds=0.7)]
        )
    await w.look()
    return next(one for one in w.engine.alerts() if one.state == "firing" and not one.slice)
