"""Requests of an app with a prompt of its own: what stays the same, passages that come again, questions that do not."""

from __future__ import annotations

import random

_THINGS = (
    "kettle",
    "lamp",
    "bicycle",
    "tent",
    "stove",
    "saw",
    "drill",
    "router",
    "camera",
    "scale",
    "printer",
    "kayak",
)
_SAYS = (
    "The {thing} is returned within {n} days if its box is unopened.",
    "Every {thing} carries a warranty of {n} months from delivery.",
    "Spare parts of the {thing} are kept for {n} years at the Ghent depot.",
    "The {thing} must not be used below minus {n} degrees.",
)
PASSAGES = [say.format(thing=thing, n=7 + 3 * index) for index, thing in enumerate(_THINGS) for say in _SAYS]
_ASKED = (
    "How long do I have to send the {thing} back, order {n}?",
    "Is my {thing} number {n} still under warranty?",
    "Where do I get a part for {thing} {n}?",
    "Can the {thing} be left outside in week {n}?",
)
OPENING = "Du bist der Helfer von Gerätehaus Nord und hältst dich an die Fundstücke.\n\nFundstücke:\n"
BETWEEN = "\n+++\n"
CLOSING = "\n\nDer Kunde möchte wissen: "
END = "\nAntworte knapp."


def asked(number: int) -> tuple[str, list[str]]:
    """Return the question and the passages of a request."""
    draw = random.Random(number)
    question = _ASKED[number % len(_ASKED)].format(thing=draw.choice(_THINGS), n=1000 + number)
    return question, draw.sample(PASSAGES, draw.randint(3, 5))


def prompt(number: int, *, opening: str = OPENING) -> str:
    """Return the user's turn of a request."""
    question, passages = asked(number)
    return f"{opening}{BETWEEN.join(passages)}{CLOSING}{question}{END}"
