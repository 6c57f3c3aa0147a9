"""Traffic of apps with prompts of their own: passages, questions, and what is neither, other in each request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from gaugeway.exchange import Request

_PLACES = [
    "harbour",
    "mill",
    "quarry",
    "orchard",
    "station",
    "depot",
    "chapel",
    "library",
    "bakery",
    "workshop",
    "ferry",
    "tower",
    "market",
    "brewery",
]
_PEOPLE = [
    "Amara",
    "Bjorn",
    "Chidi",
    "Dagny",
    "Emre",
    "Farid",
    "Greta",
    "Hamza",
    "Ines",
    "Jonas",
    "Keiko",
    "Lucia",
    "Milan",
    "Noor",
    "Otto",
    "Priya",
    "Quinn",
    "Rosa",
]
_DID = [
    "{who} opened the {place} to visitors on the {n}th of each month",
    "the {place} closes at {n} in winter, and {who} keeps the key",
    "repairs at the {place} cost {n} crowns and were paid by {who}",
    "{who} counts {n} boats from the {place} before breakfast",
    "no more than {n} guests fit into the {place} at once",
    "the roof of the {place} was replaced after {n} years",
    "tickets for the {place} are sold by {who} from window {n}",
]
_ASKED = [
    "When does the {place} close?",
    "Who keeps the key of the {place}?",
    "How many guests fit into the {place}?",
    "Is the {place} open in winter, and what does it cost?",
    "What did {who} repair?",
    "Tell me about the tickets of the {place}",
    "could {who} sell me a ticket for the {place}?",
]
_ZH_DID = [
    "{place}每月{n}日开放。由{who}负责。",
    "{who}保管{place}的钥匙。冬季{n}点关门。",
    "{place}最多容纳{n}人。请提前预约。",
]
_ZH_ASKED = ["{place}什么时候开放？", "谁保管{place}的钥匙？", "{place}能容纳多少人？", "{who}负责什么？"]
_ZH_PLACES = ["港口", "磨坊", "采石场", "果园", "车站", "仓库", "教堂", "图书馆", "面包店", "渡口"]
_ZH_PEOPLE = ["王芳", "李伟", "张敏", "刘洋", "陈静", "杨帆", "赵磊", "周婷"]


@dataclass
class World:
    """What an app's retriever has: `size` passages, or new ones each time. `shape` is how a passage is written."""

    random: Random
    size: int = 60
    shape: str = "line"
    language: str = "en"
    passages: list[str] = field(default_factory=list)

    def passage(self) -> str:
        while len(self.passages) < min(self.size, 1_000):
            self.passages.append(self._new())
        return self.random.choice(self.passages) if self.size <= 1_000 else self._new()

    def some(self, least: int, most: int) -> list[str]:
        count, found = self.random.randint(least, most), []
        while len(found) < count:
            if (one := self.passage()) not in found:
                found.append(one)
        return found

    def unseen(self, least: int, most: int) -> list[str]:
        """Texts that nobody retrieved: none of them comes again."""
        return [self._new() for _ in range(self.random.randint(least, most))]

    def question(self) -> str:
        asked = self.random.choice(_ZH_ASKED if self.language == "zh" else _ASKED)
        return self._filled(asked)

    def name(self) -> str:
        return f"{self.random.choice(_PLACES)}-{self.random.choice(_PEOPLE).lower()}.{self.random.choice(['pdf', 'md', 'html'])}"

    def _filled(self, text: str) -> str:
        zh = self.language == "zh"
        return text.format(
            who=self.random.choice(_ZH_PEOPLE if zh else _PEOPLE),
            place=self.random.choice(_ZH_PLACES if zh else _PLACES),
            n=self.random.randint(2, 900),
        )

    def _sentence(self) -> str:
        if self.language == "zh":
            return self._filled(self.random.choice(_ZH_DID))
        said = self._filled(self.random.choice(_DID))
        return said[0].upper() + said[1:] + "."

    def _new(self) -> str:
        joint = "" if self.language == "zh" else " "
        text = joint.join(self._sentence() for _ in range(self.random.randint(1, 4)))
        if self.shape == "lines":
            return "\n".join(self._sentence() for _ in range(self.random.randint(1, 4)))
        if self.shape == "paragraphs" and self.random.random() < 0.5:
            return f"{text}\n\n{self._sentence()}"
        if self.shape == "faq":
            return f"Question: {self.question()}\nAnswer: {text}"
        return text


@dataclass(frozen=True)
class Sent:
    """A request, and what its prompt was made of."""

    request: Request
    question: str | None
    contexts: list[str]


def chat(*turns: tuple[str, Any]) -> Request:
    messages = [{"role": role, "content": content} for role, content in turns]
    return Request(route="chat_completions", headers={}, body={"model": "m", "messages": messages}, explicit=None)


Maker = Callable[[World], Sent]
LAYOUTS: dict[str, tuple[Maker, dict[str, Any]]] = {}
OTHERS: dict[str, Maker] = {}


def layout(**world: Any) -> Callable[[Maker], Maker]:
    def add(maker: Maker) -> Maker:
        LAYOUTS[maker.__name__] = maker, world
        return maker

    return add


def other(maker: Maker) -> Maker:
    OTHERS[maker.__name__] = maker
    return maker


def traffic(name: str, seed: int, **more: Any) -> Iterator[Sent]:
    maker, world = LAYOUTS[name] if name in LAYOUTS else (OTHERS[name], {})
    state = World(Random(f"{name}{seed}"), **{**world, **more})
    while True:
        yield maker(state)


@layout()
def plain(w: World) -> Sent:
    p, q = w.some(1, 5), w.question()
    text = "\n\n".join(p)
    return Sent(
        chat(("user", f"Only what stands below is true.\n\nWhat we know:\n{text}\n\nVisitor asks: {q}\nReply:")), q, p
    )


@layout(size=10_000)
def plain_large(w: World) -> Sent:
    p, q = w.some(2, 5), w.question()
    text = "\n\n".join(p)
    return Sent(chat(("user", f"Use the context.\n\nContext:\n{text}\n\nQuestion: {q}\nAnswer:")), q, p)


@layout(shape="lines")
def fixed_rules(w: World) -> Sent:
    p, q = w.some(4, 4), w.question()
    text = "\n~~~~\n".join(p)
    return Sent(
        chat(
            (
                "system",
                f"You are the guide of our town.\n\nNotes of the archive\n~~~~\n{text}\n~~~~\nNever invent dates.",
            ),
            ("user", q),
        ),
        q,
        p,
    )


@layout(shape="paragraphs")
def numbered_paragraphs(w: World) -> Sent:
    p, q = w.some(1, 6), w.question()
    text = "\n\n".join(f"Extract {n}:\n{one}" for n, one in enumerate(p, 1))
    return Sent(
        chat(
            (
                "user",
                f"Read these extracts from the town archive.\n\n{text}\n\nNow help this visitor: {q}\nKeep it short.",
            )
        ),
        q,
        p,
    )


@layout(size=10_000, shape="paragraphs")
def numbered_large(w: World) -> Sent:
    p, q = w.some(1, 6), w.question()
    text = "\n".join(f"({n}) {one}" for n, one in enumerate(p, 1))
    return Sent(
        chat(
            ("system", "Answer from the extracts and cite them like (1)."),
            ("user", f"Extracts:\n{text}\n\nThe visitor's request:\n{q}"),
        ),
        q,
        p,
    )


@layout()
def records(w: World) -> Sent:
    p, q = w.some(2, 4), w.question()
    text = "\n\n".join(f"File: {w.name()}\nRelevance: 0.{w.random.randint(10, 99)}\nText: {one}" for one in p)
    return Sent(
        chat(
            ("system", f"You work at the tourist office.\n### Archive\n{text}\n### End of archive\nBe friendly."),
            ("user", q),
        ),
        q,
        p,
    )


@layout()
def trailing_source(w: World) -> Sent:
    p, q = w.some(1, 4), w.question()
    text = "\n\n".join(f"{one}\n(from: {w.name()})" for one in p)
    return Sent(chat(("user", f"Visitor: {q}\n\nThe archive says this:\n\n{text}\n\nAnswer in one paragraph.")), q, p)


@layout(shape="lines")
def tags(w: World) -> Sent:
    p, q = w.some(1, 5), w.question()
    text = "\n".join(f'<note file="{w.name()}">\n{one}\n</note>' for one in p)
    return Sent(chat(("system", f"Rely on the notes.\n<archive>\n{text}\n</archive>"), ("user", q)), q, p)


@layout()
def json_records(w: World) -> Sent:
    p, q = w.some(1, 5), w.question()
    text = json.dumps([{"file": w.name(), "content": one} for one in p], ensure_ascii=False)
    return Sent(chat(("user", f"Archive hits as JSON: {text}\n\nVisitor: {q}")), q, p)


@layout()
def json_indented(w: World) -> Sent:
    p, q = w.some(2, 5), w.question()
    text = json.dumps({"hits": [{"text": one, "score": w.random.random()} for one in p]}, indent=2)
    return Sent(chat(("system", f"Hits:\n{text}\nAnswer from the hits."), ("user", q)), q, p)


@layout()
def one_line(w: World) -> Sent:
    p, q = w.some(3, 3), w.question()
    return Sent(chat(("user", f'Answer "{q}" using the text {" || ".join(p)}')), q, p)


@layout(language="zh")
def chinese(w: World) -> Sent:
    p, q = w.some(1, 5), w.question()
    text = "\n".join(p)
    return Sent(
        chat(("user", f"请只根据下面的档案回答游客。\n档案内容：\n{text}\n游客的问题：{q}\n请用中文回答。")), q, p
    )


@layout(shape="lines")
def dated(w: World) -> Sent:
    p, q = w.some(1, 4), w.question()
    r = w.random
    text = "\n---\n".join(p)
    day = f"{r.randint(1, 28)} {r.choice(['May', 'June', 'July'])} 2026"
    return Sent(
        chat(
            (
                "system",
                f"Today is {day}. You talk to {r.choice(_PEOPLE)}, who is {r.randint(18, 80)}.\n\nBACKGROUND\n{text}\n\nSTYLE\nwarm",
            ),
            ("user", q),
        ),
        q,
        p,
    )


@layout()
def with_history(w: World) -> Sent:
    p, q = w.some(1, 4), w.question()
    said = "\n".join(
        f"Visitor: {w.question()}\nGuide: I {w.random.choice(['see', 'do not know', 'will ask'])}."
        for _ in range(w.random.randint(0, 3))
    )
    text = "\n\n".join(p)
    return Sent(
        chat(
            (
                "user",
                f"You are a guide.\n\nConversation so far:\n{said}\n\nArchive:\n{text}\n\nLatest message: {q}\nGuide:",
            )
        ),
        q,
        p,
    )


@layout()
def few_shot(w: World) -> Sent:
    p, q = w.some(2, 4), w.question()
    example = "Archive: The well is dry. The pump is new.\nVisitor: Is the well dry?\nGuide: Yes, it is."
    text = "\n".join(p)
    return Sent(chat(("user", f"Follow the example.\n\n{example}\n\nArchive: {text}\nVisitor: {q}\nGuide:")), q, p)


@layout(shape="faq")
def faq(w: World) -> Sent:
    p, q = w.some(2, 4), w.question()
    text = "\n\n".join(p)
    return Sent(
        chat(
            ("system", "You are the help desk."),
            ("user", f"Entries from our help centre:\n\n{text}\n\nQuestion: {q}\nAnswer:"),
        ),
        q,
        p,
    )


@layout()
def parts(w: World) -> Sent:
    p, q = w.some(1, 4), w.question()
    content = [{"type": "text", "text": one} for one in (*p, f"Using the texts above: {q}")]
    return Sent(chat(("user", content)), q, p)


@layout()
def bare_end(w: World) -> Sent:
    p, q = w.some(2, 5), w.question()
    if not q.endswith("?"):
        q += "?"
    text = "\n\n".join(f"## {w.name()}\n{one}" for one in p)
    return Sent(chat(("system", "Help visitors with the archive."), ("user", f"# Archive\n\n{text}\n\n{q}")), q, p)


@layout(size=25)
def german(w: World) -> Sent:
    p, q = w.some(1, 4), w.question()
    text = "\n\n".join(p)
    return Sent(
        chat(
            (
                "user",
                f"Beantworte die Anfrage nur mit den Unterlagen.\n\nUnterlagen »\n{text}\n« Ende der Unterlagen\n\nAnfrage: {q}",
            )
        ),
        q,
        p,
    )


@layout()
def python_list(w: World) -> Sent:
    p, q = w.some(1, 4), w.question()
    return Sent(chat(("user", f"Archive: {p!r}\nVisitor: {q}")), q, p)


@layout(shape="lines")
def separator_words(w: World) -> Sent:
    p, q = w.some(1, 5), w.question()
    text = "\n<<< next note >>>\n".join(p)
    return Sent(
        chat(("system", f"Notes follow.\n{text}\nThat is all that is known."), ("user", f"Visitor writes: {q}")), q, p
    )


@other
def small_talk(w: World) -> Sent:
    return Sent(chat(("system", "You are a friendly guide."), ("user", w.question())), None, [])


@other
def translation(w: World) -> Sent:
    text = "\n\n".join(w.unseen(1, 4))
    return Sent(
        chat(("user", f"Translate the text into {w.random.choice(['French', 'Turkish', 'Polish'])}.\n\nText:\n{text}")),
        None,
        [],
    )


@other
def summary(w: World) -> Sent:
    text = "\n\n".join(w.unseen(2, 6))
    tone = w.random.choice(["children", "the mayor", "tourists", "journalists", "investors", "the council", "students"])
    return Sent(
        chat(("user", f"Summarise for {tone}:\n\n{text}\n\nWrite {w.random.randint(2, 9)} sentences.")), None, []
    )


@other
def review(w: World) -> Sent:
    r = w.random
    code = "\n\n".join(
        f"def {r.choice(_PLACES)}_{r.choice(_PLACES)}(x):\n    y = x + {r.randint(1, 99)}\n    return y"
        for _ in range(r.randint(1, 4))
    )
    return Sent(
        chat(
            ("system", "You review code."),
            (
                "user",
                f"Review this change.\nFile: {r.choice(_PLACES)}.py\n```python\n{code}\n```\nFocus on {r.choice(_PLACES)} and safety.",
            ),
        ),
        None,
        [],
    )


@other
def agent(w: World) -> Sent:
    r = w.random
    tools = [
        f"- {place}_{verb}: {verb}s the {place} for the user." for place in _PLACES[:6] for verb in ("open", "list")
    ]
    chosen = "\n".join(r.sample(tools, r.randint(3, 7)))
    return Sent(
        chat(
            (
                "system",
                f"You can use these tools:\n{chosen}\n\nWorking directory: /home/{r.choice(_PEOPLE).lower()}\nAct step by step.",
            ),
            ("user", w.question()),
        ),
        None,
        [],
    )


@other
def memory(w: World) -> Sent:
    """A list that grows, always from its beginning."""
    if not w.passages:  # the user
        w.some(20, 20)
    known = "\n".join(f"- {one}" for one in w.passages[: w.random.randint(2, 20)])
    return Sent(
        chat(
            ("system", f"You are a companion.\n\nWhat you remember of the user:\n{known}\n\nBe kind."),
            ("user", w.question()),
        ),
        None,
        [],
    )


@other
def classification(w: World) -> Sent:
    (mail,) = w.unseen(1, 1)
    return Sent(
        chat(
            ("system", "Say which department a message is for: sales, support, press."),
            ("user", f"Message from {w.random.choice(_PEOPLE)}:\n{mail}\n\nDepartment:"),
        ),
        None,
        [],
    )


@other
def email_reply(w: World) -> Sent:
    mail = "\n\n".join(w.unseen(1, 3))
    return Sent(
        chat(
            (
                "user",
                f"Write a reply.\n\nTheir mail:\n{mail}\n\nWhat I want to say: {w.random.choice(['yes', 'no thanks', 'next week is fine', 'please send the bill again', 'we accept the offer'])}",
            )
        ),
        None,
        [],
    )


@other
def history_prompt(w: World) -> Sent:
    if not w.passages or w.random.random() < 0.2:
        w.passages = []
    w.passages.append(f"Human: {w.question()}\nAI: {w.unseen(1, 1)[0]}")
    talk = "\n".join(w.passages[-6:])
    return Sent(
        chat(("user", f"The following is a talk between a human and an AI.\n\n{talk}\nHuman: {w.question()}\nAI:")),
        None,
        [],
    )
