"""Frames of retrieved passages, drawn at random: numbers, labels, tags, headings, lists, rules, JSON; and passages."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS: dict[str, Any] = json.loads(Path(__file__).with_name("prompt_words.json").read_text("utf-8"))
"""Nouns, sentences, labels and tags in seven languages."""


_OF_A_PARAGRAPH = 6


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A retrieved text and what an app may write beside it."""

    text: str
    title: str
    facts: dict[str, str]


def passage(draw: random.Random, language: str, *, odd: float, gaps: bool = True, most: int = 4) -> Passage:
    """Draw a passage; with probability `odd` it has a list, a title, code or a table in it.

    With `gaps` also headings and paragraphs, which look like passages of their own where blank lines separate them.
    `most`: sentences behind the first one.
    """
    nouns = WORDS["nouns"][language]
    a, b = draw.sample(nouns, 2)

    def sentence() -> str:
        said = draw.choice(WORDS["sentences"][language])
        return str(said).format(a=a, b=b, n=draw.randint(2, 99), m=draw.randint(2, 99), y=draw.randint(1950, 2026))

    joint = "" if language in ("zh", "ja") else " "
    first = sentence()
    while ":" in first[:14] or "：" in first[:14]:  # as a label would be
        first = sentence()
    said = [first, *(sentence() for _ in range(draw.randint(0, most)))]
    text = joint.join(said[:_OF_A_PARAGRAPH])
    if draw.random() < odd:
        text = draw.choice(_ODD if gaps else _ODD[2:])(text, sentence, draw, a)
    gap = draw.choice(("\n", "\n\n", joint or "\n")) if gaps else draw.choice(("\n", joint or "\n"))
    for at in range(_OF_A_PARAGRAPH, len(said), _OF_A_PARAGRAPH):
        more = joint.join(said[at : at + _OF_A_PARAGRAPH])
        if draw.random() < odd / 3:
            more = draw.choice(_ODD if gaps else _ODD[2:])(more, sentence, draw, b)
        text += gap + more
    title = draw.choice((a, f"{a} {draw.randint(1, 40)}", f"{a} & {b}", f"{a.capitalize()} ({b})"))
    file = f"{a.lower()}-{draw.randint(1, 90)}.{draw.choice(('md', 'pdf', 'txt', 'html'))}"
    facts = {
        "Source": draw.choice((file, f"docs/{file}", f"https://city.example/{a.lower()}/{draw.randint(1, 99)}")),
        "File": file,
        "Path": f"kb/{file}",
        "Document": file,
        "URL": f"https://city.example/{file}",
        "Page": str(draw.randint(1, 400)),
        "Score": f"{draw.random():.{draw.randint(2, 4)}f}",
        "Relevance": f"{draw.randint(40, 99)}%",
        "Similarity": f"{draw.random():.3f}",
        "Author": draw.choice(("M. Okafor", "J. Lind", "S. Haas", "Team Facility")),
        "Date": f"20{draw.randint(10, 26)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
        "Updated": f"20{draw.randint(10, 26)}-0{draw.randint(1, 9)}-{draw.randint(10, 28)}T08:00:00Z",
        "Id": f"{draw.randrange(16**8):08x}",
        "Tags": ", ".join(draw.sample(nouns, 2)),
        "Language": language,
        "Version": f"{draw.randint(1, 4)}.{draw.randint(0, 9)}",
        "Rank": str(draw.randint(1, 20)),
    }
    return Passage(text=text, title=title, facts={key: facts.get(key, title) for key in WORDS["keys"]})


def _with_list(text: str, sentence: Callable[[], str], draw: random.Random, name: str) -> str:
    bullet = draw.choice(("- ", "* ", "1. ", "• "))
    items = [sentence() for _ in range(draw.randint(2, 4))]
    lines = [f"{n}. {one}" if bullet == "1. " else bullet + one for n, one in enumerate(items, 1)]
    return text + draw.choice(("\n", "\n\n")) + "\n".join(lines)


def _with_heading(text: str, sentence: Callable[[], str], draw: random.Random, name: str) -> str:
    return f"{'#' * draw.randint(1, 3)} {name}\n{draw.choice(('', chr(10)))}{text}\n\n## {name} 2\n{sentence()}"


def _with_blank(text: str, sentence: Callable[[], str], draw: random.Random, name: str) -> str:
    return "\n\n".join([text, *(sentence() for _ in range(draw.randint(1, 3)))])


def _with_code(text: str, sentence: Callable[[], str], draw: random.Random, name: str) -> str:
    return f"{text}\n\n```\nset {name}={draw.randint(1, 99)}\nrun --all\n```\n{sentence()}"


def _with_table(text: str, sentence: Callable[[], str], draw: random.Random, name: str) -> str:
    return (
        f"{text}\n\n| {name} | price |\n|---|---|\n| small | {draw.randint(1, 99)} |\n| large | {draw.randint(1, 99)} |"
    )


def _with_title(text: str, sentence: Callable[[], str], draw: random.Random, name: str) -> str:
    return f"{name.capitalize()}{draw.choice(('', f' {draw.randint(2, 30)}'))}\n\n{text}"


def _with_steps(text: str, sentence: Callable[[], str], draw: random.Random, name: str) -> str:
    steps = "\n".join(f"{n}. {sentence()}" for n in range(1, draw.randint(4, 7)))
    return f"{name.capitalize()}:\n{steps}" + draw.choice(("", f"\n{sentence()}"))


_ODD = (_with_heading, _with_blank, _with_list, _with_code, _with_table, _with_title, _with_steps)


def _facts(draw: random.Random, most: int = 4) -> list[str]:
    return draw.sample(WORDS["keys"], draw.randint(1, most))


def frame(draw: random.Random) -> tuple[str, Callable[[list[Passage]], str]]:
    """Draw how passages are written one behind the other; returns the kind and the renderer."""
    name = draw.choices(list(_FRAMES), [weight for weight, _ in _FRAMES.values()])[0]
    return name, _FRAMES[name][1](draw)


def _numbered(draw: random.Random) -> Callable[[list[Passage]], str]:
    unit, first = draw.choice(WORDS["units"]), draw.choice((0, 1, 1, 1))
    unit = draw.choice((unit, unit.upper(), unit.lower()))
    mark = draw.choice(
        ("[{n}]", "[{n}]:", "({n})", "{n}.", "{n})", "[{u} {n}]", "{u} {n}:", "## {u} {n}", "### {u} {n}:", "**{u} {n}**",
         "**{u} {n}:**", "<{u} {n}>", "--- {u} {n} ---", "=== {u} {n} ===", "[{u}{n}]", "[{i}{n}]", "{u} #{n}", "【{n}】",
         "[{u} #{n}]", "<<{u} {n}>>", "{u}[{n}]", "[^{n}]", "- {u} {n}:", "# {n}", "「{u}{n}」")
    )  # fmt: skip
    about = draw.choice(
        (
            "",
            "",
            "",
            "",
            "",
            "",
            " {t}",
            " ({s})",
            " {s}:",
            " - {t}",
            " | {s} | {v}",
            " ({k1}: {f1}, {k2}: {f2})",
            " {t} ({s})",
            ": {t}",
        )
    )
    k1, k2 = draw.sample(WORDS["keys"], 2)
    joint = draw.choice(("\n", "\n", "\n", " ", " "))
    if joint == " " and mark[-1] not in ")].:】>*":
        joint = "\n"
    if joint == " " and about and about[-1] not in "):":
        about = ""
    lines = _lines(draw) if joint == "\n" and draw.random() < 0.25 else None
    stray = draw.random() < 0.12
    end = draw.choice(("", "", "", "", "[END {n}]", "---", "Score: {v}", "({s})", "Source: {s}"))
    gap = draw.choice(("\n\n", "\n\n", "\n", "\n\n\n"))

    def render(found: list[Passage]) -> str:
        out = []
        for n, one in enumerate(found, first):
            values = {
                "n": int(one.facts["Page"]) if stray else n,
                "u": unit,
                "i": unit[0].upper(),
                "t": one.title,
                "s": one.facts["Source"],
                "k1": k1,
                "k2": k2,
            }
            values |= {"v": one.facts["Score"], "f1": one.facts[k1], "f2": one.facts[k2]}
            text = (mark + about).format(**values) + joint + (lines(one) if lines else one.text)
            out.append(text + (("\n" + end).format(**values) if end else ""))
        return gap.join(out)

    return render


def _lines(draw: random.Random) -> Callable[[Passage], str]:
    keys, body = _facts(draw), draw.choice((*WORDS["bodies"], "", ""))
    style = draw.choice(("{k}: {v}", "{k}: {v}", "**{k}:** {v}", "- {k}: {v}", "{k} = {v}", "[{k}] {v}"))
    lower, behind = draw.random() < 0.3, draw.random() < 0.25
    gap = draw.choice(("\n", "\n", "\n\n")) if not body else "\n"
    inner = draw.choice((" ", "\n"))

    def render(one: Passage) -> str:
        lines = [style.format(k=key.lower() if lower else key, v=one.facts[key]) for key in keys]
        name = body.lower() if lower else body
        text = (style.format(k=name, v="").rstrip() + inner if name else "") + one.text
        return text + "\n" + "\n".join(lines) if behind and body else "\n".join(lines) + gap + text

    return render


SIGNS = "@#$%&*+=~^|/\\<>§¶•◆▶→»■●★☆✦📄🔹📌❖"
"""Signs that apps put before records, and before the question."""
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii")
_MIRROR = str.maketrans("<>/\\»", "><\\/«")


def _signed(draw: random.Random) -> Callable[[list[Passage]], str]:
    """Draw records behind signs of any kind, letters, Roman numbers or scores."""
    sign = draw.choice(SIGNS) * draw.choice((1, 1, 2, 2, 3, 4, 5))
    mirrored, unit = sign.translate(_MIRROR)[::-1], draw.choice(WORDS["units"])
    named = draw.choice(("{i}", "{s}", "{t}", "{u} {n}", "{u} {n} ({s})", "{s} | {v}", "{u}", "{t} / {v}", "{d} {t}"))
    ways = (
        (sign + " " + named + "\n", "", 3), (sign + " " + named + " " + mirrored + "\n", "", 3),
        (sign + " " + named + " " + sign + " ", "", 1), (sign + " ", "", 1.5), (sign + "\n", "", 1),
        (sign + " " + named + "\n", "\n" + mirrored, 1.5), (unit.lower() + "#{i} ", "", 0.7), ("({r}) ", "", 1.5),
        ("{l}. ", "", 1), ("{l}) ", "", 0.7), ("({l}) ", "", 0.7), ("{v}  ", "", 1), ("[{v}] ", "", 1), ("{v}: ", "", 0.5),
        ("<!-- " + named + " -->\n", "", 1), ("[[" + named + "]]\n", "", 1),
        ("----- BEGIN {s} -----\n", "\n----- END {s} -----", 1.5), ("[" + named + "]\n", "\n[/]", 0.5),
        ("<" + unit[:1].lower() + "{n}>", "</" + unit[:1].lower() + "{n}>", 1), ("{s} :: ", "", 1), ("", " [{s}]", 1),
        ("", "\n— {t}, {s}", 1), ("“", "”\n({s}, p. {p})", 1), ("", "\nsource: {s}\nscore: {v}\n" + sign[0] * 2, 1),
        ("{d} {t}: ", "", 0.5), ("From: {a}\nDate: {d}\nSubject: {t}\n\n", "", 1),
    )  # fmt: skip
    before, behind, _ = draw.choices(ways, [weight for *_, weight in ways])[0]
    gap = draw.choice(("\n", "\n", "\n\n"))
    gap = "\n\n" if not before.strip() else gap

    def render(found: list[Passage]) -> str:
        rows = []
        for n, one in enumerate(found, 1):
            facts = one.facts
            values: dict[str, Any] = {
                "n": n,
                "l": chr(64 + n),
                "r": _ROMAN[(n - 1) % len(_ROMAN)],
                "t": one.title,
                "u": unit,
            }
            values |= {"s": facts["Source"], "v": facts["Score"], "d": facts["Date"], "p": facts["Page"]}
            values |= {"a": facts["Author"], "i": facts["Id"][:5]}
            rows.append(before.format(**values) + one.text + behind.format(**values))
        return gap.join(rows)

    return render


def _keyed(draw: random.Random) -> Callable[[list[Passage]], str]:
    """Draw records that begin with a key by which the prompt cites them, and often a list of the keys."""
    unit, size = draw.choice(WORDS["units"]), draw.choice((3, 4, 6, 8))
    before = draw.choice(("", f"{unit[0].lower()}-", f"{unit.lower()}-", f"{unit[:2].lower()}_", ""))
    mark = draw.choice(("{k}: ", "{k}: ", "[{k}] ", "({k}) ", "[{k}]: ", "{u} [{k}]:\n", "**{k}**: ", "{u} {k}:\n"))
    end = draw.choice(("", "\nFrom {t}, {s}, {y}", "\n({s}, p. {p})", "\nSource: {s}", "\n{u} of {s}"))
    gap = draw.choice(("\n\n", "\n\n", "\n"))
    listed = draw.choice(("", "", "Valid keys: {}", "Keys: {}", "Allowed citations: {}", "Use only {}."))

    def render(found: list[Passage]) -> str:
        keys = [f"{before}{draw.randint(0, 9)}{draw.randrange(16**size):0{size}x}" for _ in found]
        keys = [key if any(map(str.isalpha, key)) else f"{key}f" for key in keys]
        rows = [
            mark.format(k=key, u=unit)
            + one.text
            + end.format(t=one.title, s=one.facts["File"], y=one.facts["Date"][:4], p=one.facts["Page"], u=unit)
            for key, one in zip(keys, found, strict=True)
        ]
        return gap.join(rows) + ("\n\n" + listed.format(", ".join(keys)) if listed else "")

    return render


def _labelled(draw: random.Random) -> Callable[[list[Passage]], str]:
    lines, gap = _lines(draw), draw.choice(("\n\n", "\n\n", "\n---\n", "\n\n---\n\n", "\n"))
    return lambda found: gap.join(lines(one) for one in found)


def _tagged(draw: random.Random) -> Callable[[list[Passage]], str]:
    tag, keys = draw.choice(WORDS["item_tags"]), _facts(draw, 3) if draw.random() < 0.45 else []
    index, inner = draw.choice(("", "", "index", "id")), draw.choice(WORDS["inner_tags"])
    nested, own = draw.random() < 0.35, draw.choice(("\n", "\n", "", "\n  "))
    gap = draw.choice(("\n", "\n", "\n\n", ""))
    title = draw.random() < 0.15

    def render(found: list[Passage]) -> str:
        out = []
        for n, one in enumerate(found, 1):
            facts = {key.lower(): one.facts[key] for key in keys}
            if nested:
                lines = [f"<{key}>{value}</{key}>" for key, value in facts.items()]
                body = own.join([*lines, f"<{inner}>{one.text}</{inner}>"])
                head = f' {index}="{n}"' if index else ""
            else:
                head = (f' {index}="{n}"' if index else "") + "".join(f' {k}="{v}"' for k, v in facts.items())
                body = (f"{one.title}\n" if title else "") + one.text
            out.append(f"<{tag}{head}>{own}{body}{own.rstrip(' ')}</{tag}>")
        return gap.join(out)

    return render


def _headed(draw: random.Random) -> Callable[[list[Passage]], str]:
    mark = draw.choice(
        ("## {t}", "### {t}", "#### {t}", "**{t}**", "[{s}]", "=== {s} ===", "[{w}: {t}]", "--- {s} ---", "File: {s}", "# {s}",
         "【{t}】", "{w}: {t}", "[{w}] {t}", "« {t} »", "> {s}", "From {s}:", "({s})", "{s}:",
         "<b>{w} from {s}: </b>", "<br><b>{t}</b>", "[{c} - {c}]", "({c})", "{w} from {s}:", "# {t}\n## File: {s}",
         "{w}: {t}\n{w}2: {s}")
    )  # fmt: skip
    word, gap = draw.choice(WORDS["units"]), draw.choice(("\n\n", "\n\n", "\n"))
    joint = draw.choice(("\n", "\n", "\n", " ")) if mark[-1] in ">]):】" else "\n"
    return lambda found: gap.join(
        mark.format(t=one.title, s=one.facts["Source"], w=word, c=f"00:{one.facts['Page']}") + joint + one.text
        for one in found
    )


def _listed(draw: random.Random) -> Callable[[list[Passage]], str]:
    bullet, about = (
        draw.choice(("- ", "* ", "• ", "> ")),
        draw.choice(("", "", "{t}: ", "[{s}] ", "({s}) ", "**{t}**: ")),
    )
    end = draw.choice(("", "", " ({s})", " [{s}]", " (source: {s})"))
    return lambda found: "\n".join(
        bullet
        + about.format(t=one.title, s=one.facts["Source"])
        + " ".join(one.text.split())
        + end.format(s=one.facts["Source"])
        for one in found
    )


def _ruled(draw: random.Random) -> Callable[[list[Passage]], str]:
    rule = draw.choice(
        ("---", "-----", "=====", "***", "###", "~~~~", "+++", "----------------", "* * *", "<sep>", "§")
    )
    gap = draw.choice((f"\n{rule}\n", f"\n\n{rule}\n\n"))
    return lambda found: gap.join(one.text for one in found)


def _blank(draw: random.Random) -> Callable[[list[Passage]], str]:
    gap = draw.choice(("\n\n", "\n\n", "\n\n", "\n\n\n", "\n"))
    return lambda found: gap.join(one.text for one in found)


def _json(draw: random.Random) -> Callable[[list[Passage]], str]:
    keys, body = _facts(draw, 3), draw.choice(("content", "text", "passage", "snippet", "body", "page_content"))
    indent, inside = draw.choice((None, None, 2)), draw.random() < 0.3
    printed, lines, fence = draw.random() < 0.2, draw.random() < 0.25, draw.random() < 0.25
    beside = draw.choice(WORDS["units"]) if draw.random() < 0.25 else ""
    nouns = [one for one in WORDS["nouns"]["en"] if draw.random() < 0.5][:6]

    def written(rows: list[dict[str, Any]]) -> str:
        if lines:
            said = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        else:
            said = repr(rows) if printed else json.dumps(rows, ensure_ascii=False, indent=indent)
        return f"```json\n{said}\n```" if fence else said

    def render(found: list[Passage]) -> str:
        rows: list[dict[str, Any]] = []
        for one in found:
            facts = {key.lower(): one.facts[key] for key in keys}
            rows.append({body: one.text, "metadata": facts} if inside else {**facts, body: one.text})
        if not beside or not nouns:
            return written(rows)
        others = [{"entity": noun, "description": f"{noun} and {found[0].title}"} for noun in nouns]
        return f"Entities:\n\n{written(others)}\n\n{beside}:\n\n{written(rows)}"

    return render


def _fenced(draw: random.Random) -> Callable[[list[Passage]], str]:
    about = draw.choice(("", "{s}", "{s} (lines {n}-{m})", "text {s}"))
    gap, fence = draw.choice(("\n", "\n\n")), draw.choice(("```", "```", "````", "~~~"))

    def render(found: list[Passage]) -> str:
        facts = [{"s": one.facts["Source"], "n": one.facts["Page"], "m": one.facts["Page"] + "0"} for one in found]
        bodies = [one.text.replace("```", "~~~") if fence == "```" else one.text for one in found]
        return gap.join(
            f"{fence}{about.format(**said)}\n{body}\n{fence}" for said, body in zip(facts, bodies, strict=True)
        )

    return render


_FRAMES: dict[str, tuple[float, Callable[[random.Random], Callable[[list[Passage]], str]]]] = {
    "numbered": (10, _numbered),
    "labelled": (5, _labelled),
    "keyed": (2.5, _keyed),
    "tagged": (6, _tagged),
    "headed": (5, _headed),
    "listed": (2, _listed),
    "ruled": (3, _ruled),
    "blank": (20, _blank),
    "json": (1.5, _json),
    "fenced": (0.8, _fenced),
    "signed": (7, _signed),
}
