"""What makes two questions the same: everything the judge sees, but for the fence's code, which is new every time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from monitors.judges import Prompt

_CODE = re.compile(r"<data-([0-9]{9})\b")


def fingerprint(prompt: Prompt, *more: str) -> bytes:
    r"""A hash of `prompt` and of `more` (the judge, the type of the answer).

    The fence's code is the one the system text names; the texts are cut where it stands. As it occurs in none of the
    fenced texts, no text can pretend to be a fence and so be taken for another question.

    >>> def ask(code, text):
    ...     return Prompt(task="t", version="1", system=f"<data-{code} ...>", user=f"<data-{code}>{text}</data-{code}>")
    >>> fingerprint(ask("012345678", "a")) == fingerprint(ask("987654321", "a"))
    True
    >>> fingerprint(ask("012345678", "a")) == fingerprint(ask("987654321", "b"))
    False
    """
    found = _CODE.search(prompt.system)
    cut = found[1] if found else "\0" * 9
    return digest(
        [*more, prompt.task, prompt.version],
        prompt.system.split(cut),
        prompt.user.split(cut),
    )


def digest(*lists: Iterable[str]) -> bytes:
    """A hash of lists of texts: neither texts nor lists run into each other."""
    hashed = blake2b(digest_size=20)
    for texts in lists:
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            hashed.update(b"%d:" % len(data) + data)
        hashed.update(b";")
    return hashed.digest()
