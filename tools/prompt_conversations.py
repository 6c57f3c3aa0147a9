"""Earlier turns of a conversation as apps write them into a prompt's text, drawn at random."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from tools.prompt_frames import WORDS

_SPEAKERS = (
    *(("User", "Assistant"), ("Human", "AI"), ("user", "assistant"), ("Q", "A"), ("USER", "ASSISTANT")),
    *(("Customer", "Agent"), ("Me", "You"), ("用户", "助手"), ("Nutzer", "Assistent"), ("Usuario", "Asistente")),
)
_FORMS = ("{s}: {t}", "{s}: {t}", "{s}: {t}", "**{s}**: {t}", "- {s}: {t}", "[{s}] {t}", "<{s}>{t}</{s}>", "{s}:\n{t}")
_EMPTY = ("", "None", "(empty)", "No previous messages.", "[]")
_TAGS = ("history", "chat_history", "conversation", "previous_messages", "dialogue", "hs")
MOST_TURNS = 6


def conversation(draw: random.Random, language: str, labelled: Callable[[str], str]) -> Callable[[random.Random], str]:
    """Draw how an app writes earlier turns; the result writes those of one request. `labelled` writes a label."""
    table = WORDS["history"]
    named = labelled(draw.choice(table["en"] if draw.random() < 0.15 else table[language]))
    tag = draw.choice(_TAGS)
    around = draw.choice(((f"{named}\n", ""), (f"{named}\n", ""), (f"<{tag}>\n", f"\n</{tag}>")))
    speakers, form, empty = draw.choice(_SPEAKERS), draw.choice(_FORMS), draw.choice(_EMPTY)
    fewest, gap, as_json = draw.choice((0, 0, 1, 1, 2)), draw.choice(("\n", "\n", "\n\n")), draw.random() < 0.1

    def write(request: random.Random) -> str:
        turns = [_turn(request, language) for _ in range(request.randint(fewest, request.choice((2, MOST_TURNS))))]
        said = [(speaker, text) for turn in turns for speaker, text in zip(speakers, turn, strict=True)]
        if as_json:
            body = json.dumps([{"role": one.lower(), "content": text} for one, text in said], ensure_ascii=False)
        else:
            body = gap.join(form.format(s=one, t=text) for one, text in said) or empty
        return body.join(around)

    return write


def _turn(draw: random.Random, language: str) -> tuple[str, str]:
    """Draw a question and its answer."""
    nouns = WORDS["nouns"][language]
    a, b = draw.sample(nouns, 2)
    asked = draw.choice(WORDS["questions"][language]).format(a=a, b=b, y=draw.randint(1990, 2026))
    facts = [
        draw.choice(WORDS["sentences"][language]).format(
            a=a, b=b, n=draw.randint(2, 99), m=draw.randint(2, 99), y=draw.randint(1950, 2026)
        )
        for _ in range(draw.randint(1, 3))
    ]
    greeting = draw.random() < 0.1
    return ("hello", "Hi!") if greeting else (asked, ("" if language in ("zh", "ja") else " ").join(facts))
