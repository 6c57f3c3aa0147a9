"""Requests in many layouts, each written again with any of its passages: what the app itself would have sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

WORDS = ["harbour", "ferry", "lamp", "keeper", "tide", "winch", "cable", "anchor", "pier", "storm", "signal", "bell"]
WORDS += ["mast", "crane", "ticket", "deck"]
HEADINGS = ("Sources:", "## Context", "Excerpts from our handbook", "<context>", "Search results:")


class Doc(NamedTuple):
    """A document; `score` in [0, 1]."""

    text: str
    title: str
    name: str
    page: int
    score: float


class Parts(NamedTuple):
    """What the requests of a conversation have in common, whichever documents were retrieved."""

    question: str
    heading: str
    rule: str
    seed: int


Written = tuple[str, dict[str, Any]]
"""A route and a body."""


def docs_of(rng: Random, count: int) -> list[Doc]:
    """Make documents, some of several lines, some with digits and brackets of their own."""
    made = []
    for _ in range(count):
        lines = [sentence(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
        text = rng.choice([" ", " ", "\n", "\n\n"]).join(lines)
        title = " ".join(rng.sample(WORDS, rng.randint(1, 3))).capitalize() + rng.choice(["", "", " 2024", " (draft)"])
        name = "-".join(rng.sample(WORDS, 2)) + rng.choice([".md", ".pdf"])
        made.append(Doc(text, title, name, rng.randint(1, 90), round(rng.random(), 2)))
    return made


def sentence(rng: Random) -> str:
    mark = rng.choice(["", "", "", " [3]", " (see 2)", ' "as said"'])
    return f"The {' '.join(rng.sample(WORDS, 4))} takes {rng.randint(2, 900)} minutes{mark}."


# A record by its place, from 0, the number of records, and its document.
RECORDS: dict[str, Callable[[int, int, Doc], str]] = {
    "bare": lambda i, n, d: d.text,
    "bullets": lambda i, n, d: f"- {d.text}",
    "brackets": lambda i, n, d: f"[{i + 1}] {d.text}",
    "from zero": lambda i, n, d: f"[{i}] {d.text}",
    "dots": lambda i, n, d: f"{i + 1}. {d.text}",
    "words and numbers": lambda i, n, d: f"Document {i + 1}:\n{d.text}",
    "of a total": lambda i, n, d: f"Result {i + 1}/{n}\n{d.text}",
    "of a total, from zero": lambda i, n, d: f"({i} of {n}) {d.text}",
    "letters": lambda i, n, d: f"Passage {chr(65 + i)}: {d.text}",
    "roman": lambda i, n, d: f"{['i', 'ii', 'iii', 'iv', 'v', 'vi'][i]}) {d.text}",
    "ordinals": lambda i, n, d: f"{['First', 'Second', 'Third', 'Fourth', 'Fifth', 'Sixth'][i]} result: {d.text}",
    "circled": lambda i, n, d: f"{chr(0x2460 + i)} {d.text}",
    "backwards": lambda i, n, d: f"[{n - i}] {d.text}",
    "titles": lambda i, n, d: f"### {d.title}\n{d.text}",
    "titles and numbers": lambda i, n, d: f"{i + 1}. {d.title}\n{d.text}",
    "source before": lambda i, n, d: f"Source: {d.name}\nContent: {d.text}",
    "source behind": lambda i, n, d: f"{d.text}\nSource: {d.name}",
    "source behind in the line": lambda i, n, d: f"{d.text} (source: {d.name})",
    "dash behind": lambda i, n, d: f"{d.text} -- {d.name}",
    "both sides": lambda i, n, d: f"[{i + 1}] {d.title}\n{d.text}\nSource: {d.name}, page {d.page}",
    "number behind": lambda i, n, d: f"{d.text} [{i + 1}]",
    "pages": lambda i, n, d: f"{d.name}, p. {d.page}: {d.text}",
    "scores": lambda i, n, d: f"#{i + 1} | score={d.score} | {d.name} | {d.text}",
    "tags": lambda i, n, d: f"<document>{d.text}</document>",
    "tags with numbers": lambda i, n, d: f'<doc index="{i + 1}">\n{d.text}\n</doc>',
    "tags with ids": lambda i, n, d: f'<source id="{i}" name="{d.name}">{d.text}</source>',
    "tags inside": lambda i, n, d: f"<doc><title>{d.title}</title><body>{d.text}</body></doc>",
    "ends with numbers": lambda i, n, d: f"[DOC {i + 1}]\n{d.text}\n[END DOC {i + 1}]",
    "fences": lambda i, n, d: f"{d.name}\n```\n{d.text}\n```",
    "optional": lambda i, n, d: (f"Title: {d.title}\n" if d.page % 2 else "") + f"Content: {d.text}",
    "optional behind": lambda i, n, d: d.text + (f"\nPage {d.page}" if d.page % 2 else ""),
    "first is best": lambda i, n, d: f"{'* best match *' if i == 0 else '* match *'}\n{d.text}",
    "last is marked": lambda i, n, d: d.text + ("" if i < n - 1 else "\n(end of results)"),
    "rules above": lambda i, n, d: f"==== {d.name} ====\n{d.text}",
    "quoted": lambda i, n, d: f"“{d.text}” ({d.title})",
}
BETWEEN: dict[str, Callable[[Sequence[str]], str]] = {
    "line": "\n".join,
    "blank": "\n\n".join,
    "two blanks": "\n\n\n".join,
    "rule": "\n---\n".join,
    "rule and blanks": "\n\n-----\n\n".join,
    "word": "\n\nNEXT\n\n".join,
    "ended": lambda records: "".join(f"{record}\n***\n" for record in records),
    "and": lambda records: " and ".join(filter(None, ["; ".join(records[:-1]), records[-1]])),
}


def _names(docs: Sequence[Doc]) -> str:
    return ", ".join(doc.name for doc in docs)


PROMPTS: dict[str, Callable[[str, str, Parts, Sequence[Doc]], str]] = {
    "label": lambda block, q, p, docs: f"{p.rule}\n\n{p.heading}\n{block}\n\nQuestion: {q}",
    "no label": lambda block, q, p, docs: f"{p.rule}\n\n{block}\n\n{q}",
    "question first": lambda block, q, p, docs: f"Question: {q}\n\n{p.heading}\n\n{block}\n\n{p.rule}",
    "tags": lambda block, q, p, docs: f"{p.rule}\n<documents>\n{block}\n</documents>\n<question>{q}</question>",
    "count": lambda block, q, p, docs: (
        f"{p.rule} You get {len(docs)} results.\n\n{p.heading}\n{block}\n\nQuestion: {q}"
    ),
    "count in a tag": lambda block, q, p, docs: f'<results count="{len(docs)}">\n{block}\n</results>\n\n{q}',
    "names below": lambda block, q, p, docs: (
        f"{p.rule}\n\n{p.heading}\n{block}\n\nName only these files: {_names(docs)}.\n\nQuestion: {q}"
    ),
    "citations below": lambda block, q, p, docs: (
        f"{p.heading}\n{block}\n\nCite {', '.join(f'[{i + 1}]' for i in range(len(docs)))}.\n\nQuestion: {q}"
    ),
    "twice": lambda block, q, p, docs: f"{p.heading}\n{block}\n\nQuestion: {q}\n\nAgain:\n{block}",
}


def _chat(text: str, p: Parts) -> Written:
    return "chat_completions", {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": text}]}


def _after_system(text: str, p: Parts) -> Written:
    rule = {"role": "system", "content": "You help the passengers of a ferry."}
    messages = [rule, {"role": "user", "content": text}]
    return "chat_completions", {"model": "m", "messages": messages}


def _in_system(text: str, p: Parts) -> Written:
    messages = [{"role": "system", "content": text}, {"role": "user", "content": p.question}]
    return "chat_completions", {"model": "m", "messages": messages}


def _history(text: str, p: Parts) -> Written:
    said = [{"role": "user", "content": "Is the pier open?"}, {"role": "assistant", "content": "Yes [1]."}]
    return "chat_completions", {"model": "m", "messages": [*said, {"role": "user", "content": text}]}


def _repeated(text: str, p: Parts) -> Written:
    said = [{"role": "user", "content": text}, {"role": "assistant", "content": "What?"}]
    return "chat_completions", {"model": "m", "messages": [*said, {"role": "user", "content": text}]}


def _part(text: str, p: Parts) -> Written:
    return "chat_completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}


def _parts(text: str, p: Parts) -> Written:
    first, _, second = text.partition("\n\n")
    parts = [{"type": "text", "text": first}, {"type": "text", "text": second}]
    return "chat_completions", {"messages": [{"role": "user", "content": parts}]}


def _completion(text: str, p: Parts) -> Written:
    return "completions", {"model": "m", "prompt": text}


def _responses(text: str, p: Parts) -> Written:
    return "responses", {"model": "m", "instructions": "Answer briefly.", "input": text}


def _responses_items(text: str, p: Parts) -> Written:
    content = [{"type": "input_text", "text": text}]
    return "responses", {"model": "m", "input": [{"type": "message", "role": "user", "content": content}]}


def _anthropic(text: str, p: Parts) -> Written:
    return "messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}


def _anthropic_system(text: str, p: Parts) -> Written:
    system = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    return "messages", {"system": system, "max_tokens": 9, "messages": [{"role": "user", "content": p.question}]}


def _anthropic_two_blocks(text: str, p: Parts) -> Written:
    system = [{"type": "text", "text": "You are kind."}, {"type": "text", "text": text}]
    return "messages", {"system": system, "max_tokens": 9, "messages": [{"role": "user", "content": p.question}]}


PLACES = (
    *(_chat, _after_system, _in_system, _history, _repeated, _part, _parts, _completion),
    *(_responses, _responses_items, _anthropic, _anthropic_system, _anthropic_two_blocks),
)


def _json(indent: int | None, *, wrapped: bool) -> Callable[[Sequence[Doc]], str]:
    def block(docs: Sequence[Doc]) -> str:
        rows: Any = [{"rank": i + 1, "text": d.text, "source": d.name} for i, d in enumerate(docs)]
        return json.dumps({"total": len(docs), "results": rows} if wrapped else rows, indent=indent)

    return block


def _json_lines(docs: Sequence[Doc]) -> str:
    return "\n".join(json.dumps({"source": d.name, "text": d.text}) for d in docs)


def _table(docs: Sequence[Doc]) -> str:
    rows = "\n".join(f"| {i + 1} | {d.name} | {d.text} |" for i, d in enumerate(docs))
    return f"| # | Source | Excerpt |\n|---|---|---|\n{rows}"


def _joined(record: str, between: str) -> Callable[[Sequence[Doc]], str]:
    return lambda docs: BETWEEN[between]([RECORDS[record](i, len(docs), d) for i, d in enumerate(docs)])


BLOCKS: dict[str, Callable[[Sequence[Doc]], str]] = {
    **{f"{record}, {between}": _joined(record, between) for record in RECORDS for between in BETWEEN},
    "json": _json(None, wrapped=False),
    "json, indented": _json(2, wrapped=False),
    "json with a total": _json(None, wrapped=True),
    "json lines": _json_lines,
    "table": _table,
}


def write(
    block: str, prompt: str, place: Callable[[str, Parts], Written], parts: Parts, docs: Sequence[Doc]
) -> Written:
    """Write the request of an app with these layouts for the documents that it retrieved."""
    question = "" if place in (_in_system, _anthropic_system, _anthropic_two_blocks) else parts.question
    return place(PROMPTS[prompt](BLOCKS[block](docs), question, parts, docs), parts)


def parts_of(rng: Random) -> Parts:
    """Make the parts that stay."""
    question = f"When does the {rng.choice(WORDS)} of the {rng.choice(WORDS)} open in 2026?"
    rule = rng.choice(
        ["Answer from the sources.", "Use only what is given. Cite as [n].", "Be brief, at most 9 lines."]
    )
    return Parts(question, rng.choice(HEADINGS), rule, rng.randrange(10**6))
