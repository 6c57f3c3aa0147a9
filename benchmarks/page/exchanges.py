"""The views of exchanges: their pictures, and what they take over a store of 100,000.

python benchmarks/page/exchanges.py pictures
python benchmarks/page/exchanges.py times [--exchanges 100000]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.page.browser import chromium
from benchmarks.page.screenshots import shoot
from benchmarks.page.stand import CONFIG, make, standing
from gaugeway.records import (
    CaptureInfo,
    Context,
    Evaluation,
    Failed,
    PromptPart,
    Sample,
    Score,
    Skipped,
    Supplement,
    Usage,
)
from tests.support.pages import world

AGAIN = 9
CONTEXTS = (
    Context(
        text="Orders can be returned free of charge within 30 days of delivery. Unopened items are refunded in full; "
        "opened electronics are checked first, which takes up to five working days.",
        id="returns-2",
        score=0.91,
        source="handbook",
    ),
    Context(
        text="Refunds go to the card that was used for the payment. Gift cards are never paid out, and never expire.",
        id="refunds-1",
        score=0.84,
        source="handbook",
    ),
    Context(text="Our shops open at 9 and close at 18, on Saturdays at 16.", id="hours", score=0.52, source="website"),
)
RESPONSE = (
    "You can return your headphones free of charge within 30 days of delivery. As they were opened, we check them "
    "first, which takes up to five working days. Your gift card expires at the end of the year, so use it soon. "
    "We send a courier who collects the parcel at your door."
)
PROMPT = CaptureInfo(
    source="documents",
    marker="<documents>",
    confidence=1.0,
    parts=(
        PromptPart(
            role="system",
            kind="instructions",
            start=0,
            end=60,
            text="You answer customers of a shop. Answer briefly, from:\n<docs>",
        ),
        *(
            PromptPart(role="system", kind="passage", start=70 + 200 * place, end=260 + 200 * place, passage=place)
            for place in range(2)
        ),
        PromptPart(role="system", kind="instructions", start=660, end=668, text="\n</docs>"),
        PromptPart(role="user", kind="question", start=0, end=95, message=3),
    ),
)
CLAIMS = (
    ("They can be returned free of charge within 30 days.", "supported", 0, "within 30 days of delivery"),
    (
        "Opened headphones are checked first, up to five working days.",
        "supported",
        0,
        "checked first, which takes up to five working days",
    ),
    (
        "The gift card expires at the end of the year.",
        "contradicted",
        1,
        "Gift cards are never paid out, and never expire",
    ),
    ("A courier collects the parcel at the door.", "not_mentioned", None, ""),
)


async def add_exchange(made: Any) -> str:
    """Store an exchange that has everything a view can show; its id."""
    sample = Sample(
        id="5e0c1a9d4f7b4c52",
        started_at=time.time() - 420.0,
        app="support",
        model="chat-1",
        question="I opened the headphones I bought last week. Can I send them back, and what about my gift card?",
        contexts=CONTEXTS,
        context_source="documents",
        capture=PROMPT,
        response=RESPONSE,
        tags={"release": "42", "tenant": "north"},
        trace_id="7d1f0c9a6b5e4d3c2b1a09f8e7d6c5b4",
        prompt="9f3b21c0",
        rate=0.25,
        usage=Usage(input_tokens=912, output_tokens=88),
        duration_s=1.84,
    )
    evidence = tuple(
        {"claim": claim, "verdict": verdict, "contexts": [] if place is None else [place], "quote": quote}
        for claim, verdict, place, quote in CLAIMS
    )
    made_by: dict[str, Any] = {"sample_id": sample.id, "version": "3:1f2e", "rate": 0.25}
    judged: dict[str, Any] = {"judge": "judge-large", "cost_usd": 0.0021, "seconds": 1.3, **made_by}
    found = Score(0.5, "2 of 4 claims are supported", evidence)
    await made.store.add(
        sample,
        [
            Evaluation(metric="lexical_groundedness", outcome=Score(0.64, "3 of 4 sentences are grounded"), **made_by),
            Evaluation(metric="faithfulness", outcome=found, **judged),
            Evaluation(metric="answer_relevancy", outcome=Score(0.9, "4 of 4 claims are relevant"), **judged),
            Evaluation(metric="context_recall", outcome=Skipped("no_reference"), **made_by),
            Evaluation(metric="context_relevancy", outcome=Failed("timeout", "no answer within 60 s"), **judged),
        ],
    )
    said = {"rating": 0.0, "label": "faithfulness:fail", "comment": "Gift cards do not expire."}
    one = Supplement(id="1", received_at=time.time() - 60, source="feedback", exchange_id=sample.id, **said)
    await made.store.supplement([one])
    return sample.id


async def views(made: Any) -> dict[str, str]:
    """Name of a picture -> path of the page."""
    return {
        "exchange": f"/exchanges/{await add_exchange(made)}",
        "explore": "/explore?metric=faithfulness&order=lowest",
        "compare": "/compare?by=tag:release&a=41&b=42&app=support",
    }


async def pictures(exchanges: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        async with standing(Path(scratch), exchanges) as made:
            shown, base = await views(made), f"http://127.0.0.1:{made.port}"
            with chromium(Path(scratch)) as tab:
                await asyncio.to_thread(shoot, tab, base, shown)


SEARCHES = {
    "explore": "/explore",
    "explore, one app": "/explore?app=support",
    "explore, one app and metric": "/explore?app=support&metric=faithfulness",
    "explore, lowest first": "/explore?metric=faithfulness&order=lowest",
    "explore, lowest of an app": "/explore?metric=faithfulness&order=lowest&app=handbook",
    "explore, a tag": "/explore?tag=release%3D42",
    "explore, a tag nobody has": "/explore?tag=release%3D43",
    "explore, a score range": "/explore?least=0.1&most=0.3",
    "explore, a text": "/explore?text=return",
    "explore, a text nobody wrote": "/explore?text=zzzz",
    "explore, a source": "/explore?metric=faithfulness&source=returns",
    "explore, a source nobody has": "/explore?metric=faithfulness&source=zzzz",
    "explore, by source": "/explore?metric=faithfulness&group=source",
    "explore, by topic": "/explore?metric=faithfulness&group=topic",
    "explore, by prompt": "/explore?metric=faithfulness&group=prompt",
    "compare, remembered": "/compare?by=model&a=chat-1&b=chat-2",
}


async def times(exchanges: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        await make(Path(scratch) / "store.db", exchanges, time.time())
        async with world(Path(scratch), config=CONFIG) as made:
            paths = {"exchange": f"/exchanges/{await add_exchange(made)}", **SEARCHES}
            for name, path in paths.items():
                first, texts = await took(made, path)
                again = [(await took(made, path))[0] for _ in range(AGAIN)]
                partly = "  looked at a part of the time, and says so" if "Looked through" in texts else ""
                line = f"{name:30} first {1000 * first:5.0f} ms, then {1000 * statistics.median(again):5.0f} ms"
                print(f"{line} (slowest {1000 * max(again):.0f} ms){partly}")
            begin, lines = time.perf_counter(), 0
            async with made.client.stream("GET", "/explore/export?app=handbook") as answer:
                async for _ in answer.aiter_lines():
                    lines += 1
            print(f"{'export':30} {lines:,} exchanges in {time.perf_counter() - begin:.1f} s")


async def took(made: Any, path: str) -> tuple[float, str]:
    begin = time.perf_counter()
    answer = await made.client.get(path, headers={"accept": "text/html"})
    seconds = time.perf_counter() - begin
    assert answer.status_code == 200, answer.text
    return seconds, answer.text


def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("what", choices=["pictures", "times"])
    asking.add_argument("--exchanges", type=int)
    asked = asking.parse_args()
    if asked.what == "pictures":
        asyncio.run(pictures(asked.exchanges or 6000))
    else:
        asyncio.run(times(asked.exchanges or 100_000))


if __name__ == "__main__":
    main()
