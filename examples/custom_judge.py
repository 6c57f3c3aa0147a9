"""A custom judge instead of an LLM: `python -m examples.custom_judge`, from the project's directory."""

from __future__ import annotations

from pathlib import Path

from examples.rules import RuleJudge, WordVectors
from gaugeway import evaluate
from monitors.offline import dataset as reading

DATA = Path(__file__).parent / "data" / "finance.jsonl"

if __name__ == "__main__":
    samples, _ = reading.read(DATA)
    run = evaluate(
        samples,
        metrics=["faithfulness", "hallucination", "answer_relevancy", "context_recall"],
        judge=RuleJudge(),
        embeddings=WordVectors(),
    )
    print(run)
    for row in run.worst("faithfulness", 3):
        print(row.score("faithfulness"), row.sample.question)
