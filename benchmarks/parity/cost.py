"""Calls, tokens and time of the four core metrics for the same samples: fused, separate, ragas and deepeval.

python benchmarks/parity/cost.py [--samples 50] [--passages 5] [--delay 0.3] [--concurrency 16] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import installs
import run
import stub

HERE = Path(__file__).resolve().parent
FOUR = ["faithfulness", "answer_relevancy", "context_relevancy", "hallucination"]


@dataclass
class Contender:
    """One row of the table."""

    name: str
    peer: str | None
    task: dict[str, Any] = field(default_factory=dict)


CONTENDERS = (
    Contender("Gaugeway, fused", None, {"mode": "fused", "questions": False, "metrics": FOUR}),
    Contender("Gaugeway, separate", None, {"mode": "separate", "questions": False, "metrics": FOUR}),
    Contender("Gaugeway, fused, relevancy by questions", None, {"mode": "fused", "questions": True, "metrics": FOUR}),
    Contender("ragas (no hallucination)", "ragas", {"metrics": FOUR[:3]}),
    Contender("deepeval", "deepeval", {"metrics": FOUR, "reasons": True}),
    Contender("deepeval, without reasons", "deepeval", {"metrics": FOUR, "reasons": False}),
)

SUBJECTS = ("index fund", "savings bond", "credit card", "mortgage", "pension plan", "money market account", "ETF")
FACTS = (
    "charges a yearly fee of {a} percent of the balance, taken in twelve equal parts",
    "may be closed without a penalty after {a} months, if thirty days' notice is given in writing",
    "is insured up to {b} dollars for each depositor and institution",
    "was first offered in {c} and has been changed twice since then",
    "pays interest on the last working day of each quarter, at a rate of {a} percent a year",
    "asks for a minimum deposit of {b} dollars, which may come from another account of the same owner",
    "cannot be held jointly by more than {a} people, nor by a company",
    "reports its holdings to the tax office by the end of January of the following year",
)


def case(number: int, places: int) -> dict[str, Any]:
    """A sample about a product called T000 ..., and what there is to say of it."""
    product = f"T{number:03}"

    def fact(which: int) -> str:
        subject = SUBJECTS[(number + which) % len(SUBJECTS)]
        text = FACTS[(number * 3 + which) % len(FACTS)]
        return f"The {subject} {product} {text.format(a=2 + which, b=1000 * (which + 1), c=1970 + number + which)}."

    passages = [" ".join(fact(4 * place + which) for which in range(4)) for place in range(places)]
    said = [0, 1, 4, 5, 9]
    verdicts = [
        "supported",
        "supported",
        "contradicted" if number % 5 == 0 else "supported",
        "supported",
        "not_mentioned",
    ]
    relevance = ["relevant", "relevant", "borderline", "relevant", "irrelevant"]
    claims = [
        {
            "claim": fact(which),
            "verdict": word,
            "contexts": [] if word == "not_mentioned" else [which // 4],
            "relevance": r,
        }
        for which, word, r in zip(said, verdicts, relevance, strict=True)
    ]
    statements = [[(fact(4 * place + which), which < 2) for which in range(4)] for place in range(places)]
    sample = {
        "question": f"What does it cost to hold {product}, and when can I get out of it again?",
        "response": " ".join(one["claim"] for one in claims),
        "reference": "",
        "contexts": passages,
    }
    script = {
        "claims": claims,
        "statements": statements,
        "ratings": [(2, 1)],
        "questions": [f"What is the {word} of {product}?" for word in ("cost", "term", "risk")],
    }
    return {"peer": "", "metric": "", "sample": sample, "script": script}


def measure(one: Contender, url: str, samples: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """One contender in a process of its own."""
    task = one.task | {"url": url, "samples": samples, "concurrency": concurrency}
    stub.counts(url)
    if one.peer is None:
        done = subprocess.run(
            [sys.executable, str(HERE / "ours.py")],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=run.TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{one.name}: {done.stderr[-2000:]}")
        found = json.loads(done.stdout.strip().splitlines()[-1])
    else:
        found = run.in_peer(one.peer, task)
    return found | stub.counts(url)


def table(results: dict[str, dict[str, Any]], count: int, title: str) -> str:
    """Markdown: a row a contender, per sample but for the time."""
    lines = [
        f"**{title}**",
        "",
        "| | calls | input tokens | output tokens | embedding requests | seconds | most requests at once |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in results.items():
        each = [one[key] / count for key in ("calls", "input_tokens", "output_tokens", "embeddings")]
        cells = " | ".join([f"{each[0]:.2f}", f"{each[1]:,.0f}", f"{each[2]:,.0f}", f"{each[3]:.0f}"])
        unknown = f" ({one['unknown']} failed)" if one["unknown"] else ""
        lines.append(f"| {name}{unknown} | {cells} | {one['seconds']:.2f} | {one['busiest']} |")
    return "\n".join(lines)


def means(results: dict[str, dict[str, Any]]) -> str:
    """The mean of each metric: the same verdicts were understood."""
    lines = ["", "Mean scores: " + ", ".join(FOUR), ""]
    for name, one in results.items():
        columns = zip(*one["values"], strict=True)
        lines.append(f"- {name}: " + ", ".join(f"{sum(values) / len(values):.4f}" for values in columns))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--delay", type=float, default=0.3)
    parser.add_argument("--passages", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    wanted = parser.parse_args()
    cases = {f"T{number:03}": case(number, wanted.passages) for number in range(wanted.samples)}
    samples = [one["sample"] for one in cases.values()]
    texts = []
    for slots, title in (
        (10_000, f"{wanted.concurrency} samples at once"),
        (wanted.concurrency, f"{wanted.concurrency} samples and {wanted.concurrency} requests at once"),
    ):
        with stub.serving(cases, delay_s=wanted.delay, slots=slots) as url:
            results = {one.name: measure(one, url, samples, wanted.concurrency) for one in CONTENDERS}
        texts.append(table(results, len(samples), title))
    versions = f"ragas {installs.version('ragas', 'ragas')}, deepeval {installs.version('deepeval', 'deepeval')}"
    what = f"{len(samples)} samples with {wanted.passages} passages, a judge that takes {wanted.delay} s"
    head = f"{what}; characters / 4 as tokens. {versions}."
    text = "\n\n".join([head, *texts, means(results)])
    print(text)
    wanted.out.mkdir(parents=True, exist_ok=True)
    (wanted.out / "cost.md").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
