"""How well question and passages of recorded traffic are found: cold, warm, by request number, and with a judge.

    python benchmarks/extraction/recorded.py FILE.jsonl.gz... [--requests 40] [--judge 0.1] [--injected] [--show]

A line of a file is an object with `app`, `family`, `kind` ("rag", "aux": answers no user, "neg": nothing retrieved),
`path`, `request`, maybe `response`, and what should be found: `question`, maybe `question_accept`, `contexts`. The apps
take turns, in this process, without a server. "cold" is the first request of an app, "warm" the last third of an app
with 10 requests or more; of the family "real" every request counts. With `--judge` a scripted judge marks what the
learner asks for: it knows the truth and errs in that share of its marks. With `--injected` it obeys the passages
instead, which tell it to mark the app's instructions as the question and themselves as the only passage.

"joined": all text of the passages, otherwise divided. "metadata": as many passages, with more text. "question": another
question. "none": no passages. "skipped": taken for an auxiliary call. "missed": an auxiliary call taken for an answer.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import random
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from gateway.capture.factory import capture_of  # noqa: E402
from gateway.capture.output_tools import with_answer_by_tool  # noqa: E402
from gateway.config import Capture as Settings  # noqa: E402
from gateway.http import sse  # noqa: E402
from gaugeway.exchange import Exchange, Request  # noqa: E402
from gaugeway.prompts import response_text  # noqa: E402 - the tree is not installed everywhere
from gaugeway.prompts.learning.judge_marks import Marked  # noqa: E402

ROUTES = {"chat/completions": "chat_completions", "responses": "responses", "messages": "messages"}
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "It is as they say."}, "finish_reason": "stop"}]}
OUTPUT = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is as they say."}]}]
COLD, WARM_FROM = 0, 10


def squeezed(text):
    return " ".join((text or "").split())


@dataclass
class Judge:
    """Marks requests as their rows say; `errs` is the share of wrong marks, `obeys` passages that give orders."""

    errs: float
    obeys: bool
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    marked: dict[tuple[str, str], list[Marked]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)

    def mark(self, row: dict[str, Any], template) -> None:
        text = template.literals[0]
        question, passages = row["question"] or "", [one for one in row["contexts"] if one in text]
        if self.obeys:
            question, passages = text[:60].strip(), passages[:1]
        elif self.rng.random() < self.errs:
            question, passages = self._mistaken(text, question, passages)
        self.asked[row["app"]] += 1
        marks = self.marked.setdefault((template.app, template.kind), [])
        marks.append(
            Marked(template.app, template.kind, text, answered=True, question=question, passages=tuple(passages))
        )

    def _mistaken(self, text: str, question: str, passages: list[str]) -> tuple[str, list[str]]:
        """Mark as weak judges do: with the title, without the first or the last passage, the question's line wrong."""
        how = self.rng.randrange(4)
        if how == 0 and passages:
            at = text.find(passages[0])
            return question, [text[max(at - 20, 0) : at + len(passages[0])], *passages[1:]]
        if how == 1:
            return question, passages[1:]
        if how == 2:
            return question, passages[:-1]
        return text[-80:].strip(), passages


def exchange(row):
    """Return the exchange of a row, with its recorded answer or one that rests on nothing."""
    path = row["path"].strip("/").removeprefix("v1/")
    route = ROUTES.get(path, "completions")
    raw = row.get("response") or row.get("response_raw")
    if isinstance(raw, str):
        body = sse.fold(route, raw.encode(), ()) if raw.lstrip().startswith(("data:", "event:")) else json.loads(raw)
    else:
        body = raw or ({"status": "completed", "output": OUTPUT} if route == "responses" else ANSWER)
        if not raw and route == "completions":
            body = {"choices": [{"text": "It is as they say.", "finish_reason": "stop"}]}
    request = Request(route=route, headers={}, body=row["request"])
    return Exchange(
        id=f"{row['app']}-{row['turn']}",
        started_at=1_000_000.0 + row["turn"],
        duration_s=1.0,
        first_chunk_s=None,
        ending="complete",
        stream=False,
        model="m",
        app=row["app"],
        request=request,
        response=with_answer_by_tool(request, response_text.read(route, body, 200)),
    )


def verdict(row, sample):
    """Return how the sample compares with the row."""
    if row["kind"] != "rag":
        right = sample.skip_reason in ("auxiliary", "tool_call") if row["kind"] == "aux" else not sample.contexts
        return "exact" if right else "missed" if row["kind"] == "aux" else "wrong"
    found, expected = [squeezed(one.text) for one in sample.contexts], [squeezed(one) for one in row["contexts"]]
    accepted = {squeezed(one) for one in (row["question"], *(row.get("question_accept") or ())) if one}
    asked = not accepted or squeezed(sample.question) in accepted
    if sample.skip_reason == "auxiliary" or not found:
        return "skipped" if sample.skip_reason == "auxiliary" else "none"
    if found == expected:
        return "exact" if asked else "question"
    rest = joined = " ".join(found)
    for text in expected:
        rest = rest.replace(text, " ", 1)
    if all(text in joined for text in expected) and not any(map(str.isalnum, rest)):
        return "joined" if asked else "question"
    longer = len(found) == len(expected) and all(map(str.__contains__, found, expected))
    return "metadata" if longer else "wrong"


def rows_of(files, most):
    """Return the rows of the files, the apps in turn."""
    rows, turns = [], Counter()
    for name in files:
        with gzip.open(name, "rt") as lines:
            for row in map(json.loads, lines):
                row["turn"] = turns[row["app"]]
                turns[row["app"]] += 1
                rows.append(row)
    return sorted((row for row in rows if row["turn"] < most), key=lambda row: row["turn"])


def replayed(rows, judge):
    """Add `got` and `seen` to each row."""
    events = []
    capture = capture_of(Settings(ask_judge=judge is not None), "key", events.append)
    for row in rows:
        sample = capture.make(exchange(row))
        row["got"] = verdict(row, sample)
        row["seen"] = sample
        asked = [event.template for event in events if event.kind == "asked"]
        events.clear()
        if judge is not None and asked:
            for template in asked:
                judge.mark(row, template)
            learner = capture.learned.learner
            learner.load(learner.templates(), [one for marks in judge.marked.values() for one in marks])


def counted(name, rows):
    found = Counter(row["got"] for row in rows)
    if total := found.total():
        shares = (f"{kind} {n} ({100 * n / total:.1f} %)" for kind, n in found.most_common())
        print(f"| {name} | {total} | {', '.join(shares)} |")


def curve(rows):
    """Print the share of exact captures by request number."""
    by_turn = defaultdict(list)
    for row in rows:
        by_turn[row["turn"]].append(row["got"] == "exact")
    print("\nexact by request: " + " ".join(f"{turn + 1}:{100 * sum(v) / len(v):.0f}" for turn, v in by_turn.items()))


def shown(rows, size):
    for row in rows:
        if row["got"] != "exact" and (row["family"] == "real" or row["turn"] in (COLD, size[row["app"]] - 1)):
            seen = row["seen"]
            print(f"  {row['kind']} {row['app']} {row['turn']} {row['got']} {seen.context_source} {seen.skip_reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--judge", type=float, help="share of the judge's marks that are wrong")
    parser.add_argument("--injected", action="store_true")
    parser.add_argument("--show", action="store_true")
    said = parser.parse_args()
    judge = Judge(said.judge or 0.0, said.injected) if said.injected or said.judge is not None else None
    rows = rows_of(said.files, said.requests)
    begin = time.process_time()
    replayed(rows, judge)
    took = time.process_time() - begin
    print(f"Python {platform.python_version()}, {platform.machine()}, {1_000 * took / len(rows):.1f} ms a request\n")
    size = Counter(row["app"] for row in rows if row["kind"] == "rag")
    layouts = [row for row in rows if row["family"] != "real"]
    passages = [row for row in layouts if row["kind"] == "rag"]
    print("| traffic | n | found |\n|---|---:|---|")
    counted("layouts, cold", [row for row in passages if row["turn"] == COLD])
    warm = [row for row in passages if size[row["app"]] >= WARM_FROM and row["turn"] >= size[row["app"]] * 2 // 3]
    counted("layouts, warm", warm)
    for kind in ("aux", "neg"):
        counted(f"layouts, {kind}", [row for row in layouts if row["kind"] == kind])
    for kind in ("rag", "aux", "neg"):
        counted(f"real, {kind}", [row for row in rows if row["family"] == "real" and row["kind"] == kind])
    if passages:
        curve(passages)
    if judge is not None:
        most = max(judge.asked.values(), default=0)
        print(f"judge: {judge.asked.total()} marks of {len(judge.asked)} apps, most {most}")
    if said.show:
        shown(rows, size)


if __name__ == "__main__":
    main()
