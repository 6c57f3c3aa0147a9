"""Prompt layouts of RAG apps for the tests of prompt versions, filled with generated documents and questions.

Every layout has a rule that a release may change. `one_passage` says that a request without any passage beside it
shows where the record of the passage begins; the others need a request with several passages first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

NOUNS = [
    "refund",
    "invoice",
    "shelf",
    "ferry",
    "valve",
    "orchard",
    "boiler",
    "harbour",
    "meter",
    "parcel",
    "warranty",
    "carrier",
    "label",
    "account",
]
VERBS = ["returns", "covers", "needs", "replaces", "delays", "repairs", "carries", "ends", "opens", "restores"]
NAMES = ["flex", "basic", "winter", "north", "harbour", "premium", "legacy", "island", "express", "family"]
LEADS = ("How long does the", "When does a", "Who pays for the", "What happens if the", "Can I return a")


class Doc(NamedTuple):
    """A retrieved document: `name` is a file name, `title` words."""

    name: str
    title: str
    text: str
    score: float
    id: str


class Asked(NamedTuple):
    """What one request is made of."""

    docs: Sequence[Doc]
    question: str
    number: int
    rule: str


class Layout(NamedTuple):
    """A layout: `build` returns the messages of a request."""

    build: Callable[[Asked], list[dict[str, str]]]
    one_passage: bool = True


def sentence(rng: Random) -> str:
    words = [rng.choice(NAMES), rng.choice(NOUNS), rng.choice(VERBS), "the", rng.choice(NOUNS), "within"]
    return " ".join(["The", *words, str(rng.randint(2, 90)), "days", "of the", rng.choice(NOUNS)]) + "."


def documents(rng: Random, count: int = 60) -> list[Doc]:
    """Make an index; titles have one to four words, some with a number or punctuation."""
    made = []
    for number in range(count):
        words = rng.sample(NAMES + NOUNS, rng.randint(1, 4))
        title = " ".join(words).capitalize() + rng.choice(["", "", " 2024", " (draft)", ", part 2"])
        paragraphs = [" ".join(sentence(rng) for _ in range(rng.randint(2, 4))) for _ in range(rng.choice([1, 1, 2]))]
        name = f"{'-'.join(words)}{rng.choice(['', f'-{number}'])}.{rng.choice(['md', 'pdf', 'html'])}"
        made.append(Doc(name, title, "\n\n".join(paragraphs), rng.random(), f"{rng.getrandbits(64):016x}"))
    return made


def asked(rng: Random, index: Sequence[Doc], number: int, *, rule: str, passages: tuple[int, int] = (1, 5)) -> Asked:
    """Make the parts of a request with `passages[0]` to `passages[1]` documents; the first has at least two."""
    count = rng.randint(*passages) if number else max(2, passages[1])
    question = f"{rng.choice(LEADS)} {rng.choice(NAMES)} {rng.choice(NOUNS)} {rng.choice(VERBS)} {number}?"
    return Asked(rng.sample(index, count), question, number, rule)


def requests(
    layout: Layout, *, rule: str, count: int = 40, seed: int = 1
) -> Iterator[tuple[list[dict[str, str]], Asked]]:
    """Yield messages and what they are made of; equal but for `rule` for the same seed."""
    rng = Random(seed)
    index = documents(rng)
    for number in range(count):
        parts = asked(rng, index, number, rule=rule)
        yield layout.build(parts), parts


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def chat(system: str, text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, *user(text)]


def bracketed_names(a: Asked) -> list[dict[str, str]]:
    listed = "\n\n".join(f"[{n}] {d.name}\n{d.text}" for n, d in enumerate(a.docs, 1))
    return chat(
        f"You help the customers of a ferry line. {a.rule}\n\nPassages:\n\n{listed}\n\nCite as [n].", a.question
    )


def source_and_content(a: Asked) -> list[dict[str, str]]:
    listed = "\n\n".join(f"Source: {d.name}\nContent: {d.text}" for d in a.docs)
    return user(f"Answer from the sources. {a.rule}\n\n{listed}\n\nQuestion: {a.question}\nAnswer:")


def headings(a: Asked) -> list[dict[str, str]]:
    listed = "\n\n".join(f"### {d.title}\n{d.text}" for d in a.docs)
    return user(f"# Task\n{a.rule} Use the notes.\n\n# Notes\n\n{listed}\n\n# Question\n{a.question}\n")


def attributes(a: Asked) -> list[dict[str, str]]:
    listed = "\n".join(f'<doc name="{d.name}" score="{d.score:.3f}">\n{d.text}\n</doc>' for d in a.docs)
    return chat(f"Answer briefly. {a.rule}\n<docs>\n{listed}\n</docs>\nSay so if nothing fits.", a.question)


def tail_in_brackets(a: Asked) -> list[dict[str, str]]:
    listed = "\n\n".join(f"{d.text}\n(source: {d.name}, score {d.score:.2f})" for d in a.docs)
    return user(f"{a.rule}\n\nWhat we know:\n\n{listed}\n\nCustomer: {a.question}\nReply in two sentences.")


def dash_tail(a: Asked) -> list[dict[str, str]]:
    listed = "\n\n".join(f"{d.text}\n— {d.title}" for d in a.docs)
    return chat(f"Quote the handbook.\n{a.rule}", f"Handbook:\n\n{listed}\n\nThe customer asks: {a.question}")


def ruled_cards(a: Asked) -> list[dict[str, str]]:
    listed = "\n---\n".join(f"Title: {d.title}\nId: {d.id}\nRelevance: {d.score:.2f}\n\n{d.text}" for d in a.docs)
    return user(f"You are a clerk. {a.rule}\n---\n{listed}\n---\nUse the cards above.\nQuestion: {a.question}")


def plain_titles(a: Asked) -> list[dict[str, str]]:
    listed = "\n\n".join(f"{d.title}\n{d.text}" for d in a.docs)
    return chat(f"Use only the articles below. {a.rule}\n\nArticles:\n\n{listed}\n\nEnd of the articles.", a.question)


def inline_numbers(a: Asked) -> list[dict[str, str]]:
    listed = " ".join(f"[{n}] ({d.name}) {' '.join(d.text.split())}" for n, d in enumerate(a.docs, 1))
    return user(f"{a.rule} Evidence: {listed} Now answer this: {a.question}")


def optional_fields(a: Asked) -> list[dict[str, str]]:
    def card(d: Doc) -> str:
        author = f"Author: {d.name.split('-')[0]}\n" if d.score > 0.6 else ""
        page = f"Page: {int(d.score * 90)}\n" if d.score < 0.8 else ""
        return f"Document: {d.title}\n{author}{page}Text: {d.text}"

    return chat(f"Answer the employee. {a.rule}", "\n\n".join(map(card, a.docs)) + f"\n\nEmployee: {a.question}")


def german_excerpts(a: Asked) -> list[dict[str, str]]:
    listed = "\n\n".join(
        f"Auszug {n} aus „{d.title}“ (Abschnitt {n}.{n + 2}):\n{d.text}" for n, d in enumerate(a.docs, 1)
    )
    return user(f"Beantworte die Frage nur mit den Auszügen. {a.rule}\n\n{listed}\n\nFrage: {a.question}\nAntwort:")


def links_list(a: Asked) -> list[dict[str, str]]:
    listed = "\n".join(f"* [{d.title}](https://kb.example/{d.id}): {' '.join(d.text.split())}" for d in a.docs)
    return chat(f"# Rules\n* {a.rule}\n* Link what you use.\n\n# Knowledge\n{listed}\n\n# Style\n* Short.", a.question)


def dated(a: Asked) -> list[dict[str, str]]:
    day = ("Monday", "Tuesday", "Friday")[a.number % 3], ("March", "October", "May")[a.number % 3], a.number % 28 + 1
    when = f"{day[0]}, {day[1]} {day[2]}, 2026, {a.number % 12 + 1}:{a.number + 10} {('AM', 'PM')[a.number % 2]}"
    listed = "\n\n".join(f"{n}. {d.title}\n{d.text}" for n, d in enumerate(a.docs, 1))
    system = f"It is {when}. Session {a.docs[0].id[:6]}-a{a.number}f. {a.rule}\n\n{listed}\n\nDo not mention the list."
    return chat(system, a.question)


def history(a: Asked) -> list[dict[str, str]]:
    turns = "".join(f"User: {d.title}?\nAssistant: {d.text.split('.')[0]}.\n" for d in a.docs[: 1 + a.number % 3] * 2)
    listed = "\n\n".join(f"({d.name}) {d.text}" for d in a.docs)
    return user(
        f"{a.rule}\n\nConversation so far:\n{turns}\nSearch results:\n{listed}\n\nUser's question: {a.question}"
    )


def question_first(a: Asked) -> list[dict[str, str]]:
    listed = "\n".join(f"<<{d.title}>>\n{d.text}\n<<end>>" for d in a.docs)
    return user(f"The customer wrote: {a.question}\nHere is what the search returned.\n{listed}\n{a.rule} Reply now.")


def escaped_json(a: Asked) -> list[dict[str, str]]:
    listed = json.dumps([{"title": d.title, "score": round(d.score, 3), "text": d.text} for d in a.docs], indent=1)
    return chat(f"You answer from JSON. {a.rule}", f"Hits:\n{listed}\n\nAnswer the question: {a.question}")


def spaced_titles(a: Asked) -> list[dict[str, str]]:
    listed = "\n".join(f"[{n}] {d.title}\n\n{d.text}" for n, d in enumerate(a.docs, 1))
    return chat(f"{a.rule}\n\nHelp with the app.", f"Pages:\n{listed}\n\nWhat I want to know: {a.question}")


def quoted(a: Asked) -> list[dict[str, str]]:
    listed = "\n\n".join(
        f"{d.name}, page {n}:\n" + "\n".join(f"> {x}" for x in d.text.split("\n")) for n, d in enumerate(a.docs, 1)
    )
    return user(f"Read the quotes.\n{a.rule}\n\n{listed}\n\nMy question is: {a.question}")


LAYOUTS = {
    one.build.__name__: one
    for one in (
        Layout(bracketed_names),
        Layout(source_and_content),
        Layout(headings, one_passage=False),
        Layout(attributes),
        Layout(tail_in_brackets),
        Layout(dash_tail, one_passage=False),
        Layout(ruled_cards),
        Layout(plain_titles, one_passage=False),
        Layout(inline_numbers),
        Layout(optional_fields),
        Layout(german_excerpts, one_passage=False),
        Layout(links_list),
        Layout(dated, one_passage=False),
        Layout(history),
        Layout(question_first, one_passage=False),
        Layout(escaped_json),
        Layout(spaced_titles),
        Layout(quoted),
    )
}
