"""Generates prompts of RAG apps with what should be captured: the data that the reader's weights are fitted on.

A layout is drawn once (where things stand, how they are labelled, how passages are framed) and rendered with different
questions and passages. Nothing is taken from a real application; labels and sentences are this file's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tools.prompt_frames import SIGNS, WORDS, Passage, frame, passage


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """One request: its messages, and what should be captured; `contexts` empty when nothing was retrieved.

    A message's content is a text, or a list of the texts of its parts.
    """

    messages: list[dict[str, Any]]
    question: str
    contexts: list[str]
    family: str


@dataclass(kw_only=True)
class Layout:
    """How an app writes its prompts. `render` makes a request of a question and passages."""

    family: str
    language: str
    render: Callable[[str, list[Passage]], list[dict[str, Any]]]
    odd: float
    sentences: int
    gaps: bool
    """Whether passages have blank lines inside, which look like the end of a passage where those part them."""


SIZES = (2, 4, 4, 8, 14, 30)
"""Most sentences of an app's passages behind their first one."""


def pick(draw: random.Random, table: dict[str, str], language: str) -> str:
    """Draw one of a language's entries; now and then an English one."""
    chosen = table["en"] if draw.random() < 0.15 else table[language]
    return draw.choice(chosen)


def label(said: str, form: str) -> str:
    """Write a label in one of the forms."""
    return form.format(l=said, L=said.upper())


def label_form(draw: random.Random) -> str:
    """Draw how labels are written; now and then with signs."""
    if draw.random() < 0.85:
        return str(draw.choice(WORDS["labels"]))
    sign = draw.choice(SIGNS) * draw.randint(1, 4)
    return draw.choice(
        (f"{sign} {{l}}", f"{sign} {{L}} {sign}", "{L}>", f"{sign} {{l}}:", "<!-- {l} -->", "{L}", "/* {l} */")
    )


def decoy(draw: random.Random, language: str) -> str:
    """Draw a section that looks like records and is part of the prompt: examples of citations, of output, of fields."""
    unit, form = draw.choice(WORDS["units"]), draw.choice(WORDS["labels"])
    named = label(
        draw.choice(("Examples", "References", "Valid citations", "Output format", "Columns", "Tools", "例")),
        form,
    )
    count = draw.randint(2, 5)
    style = draw.choice(
        ("[{n}] {u} Title {w}", "- ({i}{n}, {i}{m})", "- {u}_{n}: string", "{n}. {w} {u}", "* [{n}] {w}", "| {w} | {n} |",
         "- {w}: what the {u} is about", "{w}:\n  {u}: <{u} here>", "Q: {w}?\nA: {w}.", "User: {w}\nAssistant: [{n}] {w}",
         "You have access to the {u} of the {w}.", "{u} {n} is called when a {w} is needed.", "{w}, {u}, {w}")
    )  # fmt: skip
    nouns = WORDS["nouns"][language]
    rows = [style.format(n=n, m=n + 1, u=unit, i=unit[0].lower(), w=draw.choice(nouns)) for n in range(1, count + 1)]
    return f"{named}\n" + "\n".join(rows)


_ORDERS = ("icq", "icq", "icq", "qci", "icoq", "icoq", "iqc", "icqo", "cq", "ico", "cqo", "qc")
"""Of instructions (i), context (c), question (q) and other instructions (o)."""


def layout(draw: random.Random) -> Layout:
    """Draw a layout."""
    language = draw.choices(list(WORDS["nouns"]), [12, 2, 1.5, 1.5, 1.5, 2, 1])[0]
    name, write = frame(draw)
    terse = draw.random() < 0.3
    parts = _parts(draw, language, name, write, ("cq", "qc", "icq", "icq", "iqc") if terse else _ORDERS)
    where = draw.choices(("user", "system", "both", "before"), [5, 4, 2, 0.7])[0]
    orders = _instructions(draw, language)
    asks = ""
    if where in ("system", "before") and draw.random() < 0.15:
        asks = pick(draw, WORDS["question"], language) + ": "
    if draw.random() < 0.15:
        orders += "\n\n" + decoy(draw, language)
    earlier = draw.random() < 0.2
    parted, first = draw.random() < 0.04, draw.random() < 0.5

    def render(question: str, found: list[Passage]) -> list[dict[str, Any]]:
        block = parts(question, found, where not in ("system", "before"))
        messages: list[dict[str, Any]] = []
        if parted and len(found) > 1:
            said = [*([orders] if first else []), *(one.text for one in found), question]
            return [*([] if first else [{"role": "system", "content": orders}]), {"role": "user", "content": said}]
        if where == "system":
            messages = [{"role": "system", "content": block}]
            if earlier:
                messages += _earlier(language)
            return [*messages, {"role": "user", "content": asks + question}]
        if where == "before":
            said = [{"role": "system", "content": orders}, *(_earlier(language) if earlier else [])]
            return [*said, {"role": "user", "content": block}, {"role": "user", "content": asks + question}]
        if where == "both":
            messages = [{"role": "system", "content": orders}]
        return [
            *messages,
            *(_earlier(language) if earlier and where == "both" else []),
            {"role": "user", "content": block},
        ]

    return Layout(
        family=name,
        language=language,
        render=render,
        odd=draw.choice((0.0, 0.0, 0.3) if terse else (0.0, 0.2, 0.5, 0.7)),
        sentences=draw.choice((0, *SIZES) if terse else SIZES),
        gaps=name != "blank" or draw.random() < 0.3,
    )


def _instructions(draw: random.Random, language: str) -> str:
    """Draw orders, now and then in several parts with labels, rules and examples between them."""
    if draw.random() < 0.8:
        return _orders(draw, language)
    form, parts = draw.choice(WORDS["labels"]), [_orders(draw, language)]
    for _ in range(draw.randint(2, 5)):
        part = draw.choice((_orders, _orders, decoy))(draw, language)
        parts.append(label(pick(draw, WORDS["other"], language), form) + "\n" + part)
        if draw.random() < 0.2:
            parts.append("-" * draw.randint(3, 30))
    return "\n\n".join(parts)


def _orders_around(draw: random.Random, language: str) -> tuple[str, str]:
    """Draw the orders before and behind the passages, now and then with a decoy in one of them."""
    before, behind = _instructions(draw, language), _orders(draw, language)
    if draw.random() < 0.2:
        before, behind = draw.choice(
            ((before + "\n\n" + decoy(draw, language), behind), (before, behind + "\n\n" + decoy(draw, language)))
        )
    return before, behind


def _earlier(language: str) -> list[dict[str, Any]]:
    asked = WORDS["questions"][language][0].format(a=WORDS["nouns"][language][0], b="", y=2020)
    said = WORDS["sentences"][language][0].format(a=WORDS["nouns"][language][0], b="", n=3, m=4, y=2020)
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]


def _orders(draw: random.Random, language: str) -> str:
    said = [pick(draw, WORDS["orders"], language) for _ in range(draw.randint(1, 5))]
    said = list(dict.fromkeys(said))
    style = draw.choice(("line", "line", "list", "numbers", "lines"))
    if style == "list":
        return "\n".join(f"- {one}" for one in said)
    if style == "numbers":
        return "\n".join(f"{n}. {one}" for n, one in enumerate(said, 1))
    return ("\n" if style == "lines" else "" if language in ("zh", "ja") else " ").join(said)


def _opener(draw: random.Random, frame_name: str) -> str:
    """Draw what announces the passages; plain ones rather have something that does."""
    opener = draw.choices(
        ("label", "tag", "sentence", "ruled", "fence", "none", "stated"), [9, 5, 5, 2.5, 1.5, 2.5, 2]
    )[0]
    return "label" if opener == "none" and frame_name == "blank" and draw.random() < 0.5 else opener


def _around(opener: str, labels: tuple[str, str], tag: str, announced: tuple[str, str], quotes: str) -> tuple[str, str]:
    """Return what stands before and behind the passages: labels, a tag, or an announcing sentence and a rule."""
    (named, end), (introduced, rule) = labels, announced
    return {
        "label": (named, "\n" + end if end else ""),
        "tag": (f"<{tag}>\n", f"\n</{tag}>"),
        "ruled": (f"{introduced}\n{rule}\n", f"\n{rule}"),
        "fence": (f"{named.rstrip()}\n{quotes}\n", f"\n{quotes}"),
        "quoted": (f'{named.rstrip()} "', '"'),
        "stated": (f"{introduced.rstrip(':：')}.\n\n", ""),
        "sentence": (f"{introduced}\n", ""),
        "none": ("", ""),
    }[opener]


def _asking(asked: str, named: str, tag: str, sentence: str, said: str) -> str:
    """Write the question: behind its label, in a tag, plain, at the end of a sentence, or behind a sign."""
    asking = {"label": named + said, "tag": f"<{tag}>{said}</{tag}>", "plain": said, "sentence": sentence + said}
    return asking.get(asked, f"{asked} {said}")


def _parts(
    draw: random.Random,
    language: str,
    name: str,
    write: Callable[[list[Passage]], str],
    orders: Sequence[str],
) -> Callable[[str, list[Passage], bool], str]:
    """Draw the order and the labels of a prompt's parts."""
    form = label_form(draw)
    context, question = pick(draw, WORDS["context"], language), pick(draw, WORDS["question"], language)
    tag, asked_tag = draw.choice(WORDS["tags"]), draw.choice(WORDS["question_tags"])
    opener = _opener(draw, name)
    asked = draw.choices(("label", "tag", "plain", "sentence", draw.choice(SIGNS)), [9, 2, 2, 1, 0.5])[0]
    same_line = draw.random() < 0.6 and form.endswith((":", "：", ":**", ">"))
    block_line = opener == "label" and form.endswith((":", "：")) and draw.random() < 0.3
    order = draw.choice(orders)
    if order[0] == "q" and draw.random() < 0.4:
        asked = "plain"
    before, behind = _orders_around(draw, language)
    other = pick(draw, WORDS["other"], language)
    answer = pick(draw, WORDS["answer"], language) if draw.random() < 0.5 else ""
    ordered = (
        draw.choice((" ", " ", "\n")) + draw.choice(WORDS["orders_behind"][language]) if draw.random() < 0.12 else ""
    )
    other_labelled, introduced = draw.random() < 0.5, pick(draw, WORDS["introducing"], language)
    rule = draw.choice(("-" * 21, "=" * 10, "---", "#" * 8, "*" * 5, "-" * 60))
    gap = draw.choice(("\n\n", "\n\n", "\n\n", "\n"))
    indent = draw.choice(("", "", "", "", "    "))
    first_only = draw.random() < 0.6
    closing = draw.random() < 0.25

    sentence = f"{pick(random.Random(form), WORDS['orders'], 'en')} {question}: "
    named, end = label(context, form), label(f"End of {context}", form) if closing and form[0] in "=[-<#" else ""
    quotes = draw.choice(("```", '"""', "'''"))
    quoted = opener == "label" and name == "blank" and form[-1] in ":：" and draw.random() < 0.08
    labels = (named + (" " if block_line else "\n"), end)
    around = _around("quoted" if quoted else opener, labels, tag, (introduced, rule), quotes)

    def render(said: str, found: list[Passage], own: bool) -> str:  # noqa: FBT001 - where the question goes
        written = {
            "i": before,
            "c": write(found).join(around),
            "q": _asking(asked, label(question, form) + (" " if same_line else "\n"), asked_tag, sentence, said)
            + (ordered if said[-1:] in "?？" else "")
            if own
            else "",
            "o": (label(other, form) + "\n" if other_labelled else "") + behind,
        }
        letters = order if "q" in order or not own else order + "q"
        texts = [written[letter] for letter in letters if written[letter]]
        if own and answer and letters[-1] == "q" and asked == "label":
            texts.append(label(answer, form))
        text = gap.join(texts)
        # A template may be indented in the code and filled in with texts that are not.
        plain = written["c"] if first_only else ""
        return "\n".join(indent + line if line and line not in plain else line for line in text.split("\n"))

    return render


def request(draw: random.Random, one: Layout, *, fewest: int = 1, most: int = 10) -> Rendered:
    """Render a layout with a new question and new passages."""
    count = draw.choice([n for n in (1, 1, 2, 3, 3, 4, 4, 5, 6, 10) if fewest <= n <= most])
    found = [passage(draw, one.language, odd=one.odd, gaps=one.gaps, most=one.sentences) for _ in range(count)]
    nouns = WORDS["nouns"][one.language]
    asked = draw.choice(WORDS["questions"][one.language])
    a = next((noun for noun in nouns if noun in found[0].text), nouns[0])
    said = asked.format(a=a, b=draw.choice(nouns), y=draw.randint(1990, 2026))
    if draw.random() < 0.12:  # as people type
        said = draw.choice((f"{a}?", f"{a} {draw.choice(nouns)}", said.lower().rstrip("?？"), f"{a}"))
    elif draw.random() < 0.1:
        said = f"{said} {draw.choice(WORDS['asides'][one.language])}"
    elif draw.random() < 0.15:  # with what happened before, or with something pasted
        facts = [draw.choice(WORDS["own"][one.language]) for _ in range(draw.randint(1, 4))]
        before = " ".join(facts).format(a=a, b=draw.choice(nouns), n=draw.randint(2, 90))
        pasted = "\n".join(
            f"{draw.choice(('12:04 ', '- ', 'E', '> '))}{draw.choice(nouns)} {n}" for n in range(draw.randint(2, 5))
        )
        said = draw.choice(
            (
                f"{before} {said}",
                f"{before}\n{said}",
                f"{said} {before}",
                f"{before}\n\n{said}",
                f"{said}\n\n{pasted}",
                f"{said}\n{pasted}",
            )
        )
    return Rendered(
        messages=one.render(said, found), question=said, contexts=[one.text for one in found], family=one.family
    )


def _of_ones_own(draw: random.Random, language: str) -> str:
    """Draw a task with its own background, in the form in which passages come too."""
    nouns, form = WORDS["nouns"][language], draw.choice(WORDS["labels"])
    said = [draw.choice(WORDS["own"][language]) for _ in range(draw.randint(1, 4))]
    text = " ".join(dict.fromkeys(said)).format(a=draw.choice(nouns), b=draw.choice(nouns), n=draw.randint(2, 90))
    context, task, want = (
        pick(draw, WORDS["context"], language),
        pick(draw, WORDS["other"], language),
        draw.choice(WORDS["wanted"]),
    )
    if draw.random() < 0.4:
        tag = draw.choice((*WORDS["tags"], "context", "context", "background"))
        return f"<{tag}>\n{text}\n</{tag}>\n<task>\n{want}\n</task>"
    return f"{label(context, form)}\n{text}\n\n{label(task, form)}\n{want}"


def _equipment(draw: random.Random, language: str, own: list[Passage], write: Callable[[list[Passage]], str]) -> str:
    """Draw what a system prompt says about an agent's tools, rules and examples, in the forms in which passages come."""
    nouns = WORDS["nouns"][language]
    if draw.random() < 0.5:
        named = label(draw.choice(WORDS["equipment"]), draw.choice(WORDS["labels"]))
        rows = [f"{draw.choice(('- ', '* ', '', '### '))}{draw.choice(nouns)}: {one.text}" for one in own]
        return f"{named}\n" + draw.choice((write(own), "\n".join(rows)))
    tag, inner = draw.choice(WORDS["equipment_tags"])
    index = draw.choice((' name="{w}"', "", ' id="{n}"', ' source="{w}.md"'))
    form = draw.choice(("{p}", "<name>{t}</name><description>{p}</description>", "User: {t}?\nYou: {p}"))
    gap = draw.choice(("\n", ""))
    rows = [
        f"<{inner}{index.format(w=draw.choice(nouns).lower(), n=n)}>{gap}{form.format(p=one.text, t=one.title)}{gap}</{inner}>"
        for n, one in enumerate(own, 1)
    ]
    return "\n".join((f"<{tag}>", *rows, f"</{tag}>"))


def _markup(draw: random.Random, language: str) -> str:
    """Draw a task on a piece of markup, data or a program."""
    nouns = WORDS["nouns"][language]
    tag, inner = draw.choice(
        (
            ("items", "item"),
            ("ul", "li"),
            ("documents", "document"),
            ("users", "user"),
            ("div", "p"),
            ("sources", "source"),
            ("context", "passage"),
        )
    )
    index = draw.random() < 0.4
    rows = [
        f"<{inner}{f' id={n!r}' * index}>{draw.choice(('red', 'old', 'one'))} {draw.choice(nouns)}</{inner}>"
        for n in map(str, range(1, draw.randint(2, 5)))
    ]
    body = draw.choice(("\n", "")).join((f"<{tag}>", *rows, f"</{tag}>"))
    fenced = f"```xml\n{body}\n```" if draw.random() < 0.4 else body
    return draw.choice((f"{fenced}\n{draw.choice(WORDS['wanted'])}", f"{draw.choice(WORDS['wanted'])}\n\n{fenced}"))


def ordinary(draw: random.Random) -> Rendered:
    """Draw a request in which nothing was retrieved: a task on the user's own text, a chat, a list, code."""
    language = draw.choice(list(WORDS["nouns"]))
    size = draw.choice(SIZES)
    own = [passage(draw, language, odd=0.5, most=size) for _ in range(draw.randint(1, 4))]
    _, write = frame(draw)
    text = draw.choice((own[0].text, "\n\n".join(one.text for one in own), write(own)))
    task = draw.choice(WORDS["tasks"])
    form = draw.choice(WORDS["labels"])
    kind = draw.choice(
        (
            *("task", "task", "orders", "chat", "behind", "labelled", "decoy", "decoy", "own", "own", "markup"),
            *("equipment", "equipment", "labelled", "behind", "own"),
        )
    )
    said = {
        "task": f"{task}\n\n{text}",
        "orders": f"{_orders(draw, language)}\n\n{label(pick(draw, WORDS['other'], language), form)}\n{_orders(draw, language)}",
        "chat": draw.choice(WORDS["questions"][language]).format(
            a=draw.choice(WORDS["nouns"][language]), b="x", y=1999
        ),
        "behind": f"{text}\n\n{task}",
        "own": _of_ones_own(draw, language),
        "markup": _markup(draw, language),
        "equipment": draw.choice(WORDS["questions"][language]).format(
            a=draw.choice(WORDS["nouns"][language]), b="", y=1999
        ),
        "decoy": f"{_orders(draw, language)}\n\n{decoy(draw, language)}\n\n{draw.choice((own[0].title, task))}",
        "labelled": f"{task}\n{label(draw.choice(('Text', 'Input', 'Article', 'Review', 'Code', 'Email')), form)}\n{text}",
    }[kind]
    messages = [{"role": "user", "content": said}]
    if kind == "equipment":
        system = f"{_orders(draw, language)}\n\n{_equipment(draw, language, own, write)}"
        system += f"\n\n{_orders(draw, language)}" if draw.random() < 0.4 else ""
        messages.insert(0, {"role": "system", "content": system})
    elif draw.random() < 0.5:
        extra = "\n\n" + decoy(draw, language) if draw.random() < 0.3 else ""
        messages.insert(0, {"role": "system", "content": _orders(draw, language) + extra})
    return Rendered(messages=messages, question=said, contexts=[], family=f"ordinary:{kind}")
