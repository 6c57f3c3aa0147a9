"""A small RAG app: BM25 over the handbook, LangChain's prompt, the `openai` client pointed at the gateway."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import Any, TypeVar

import msgspec
import numpy as np

from gaugeway.demo import model_text as texts

T = TypeVar("T")
APP, MODEL = "handbook", "handbook-1"
PROMPT = (
    "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the "
    "question. If you don't know the answer, just say that you don't know. Use three sentences maximum and keep the "
    "answer concise.\nQuestion: {question} \nContext: {context} \nAnswer:"
)
SHIFT = 11
"""Rows by which the broken rebuild shifts the text column; adjacent handbook entries are about the same planet."""

_K1, _B = 1.2, 0.75


class Document(msgspec.Struct, frozen=True):
    """One passage of the handbook."""

    id: str
    title: str
    text: str


class Question(msgspec.Struct, frozen=True):
    """A question and the id of the document that answers it."""

    question: str
    document: str


class Answer(msgspec.Struct, frozen=True):
    """The app's answer to one question."""

    question: str
    text: str
    passages: tuple[Document, ...]
    streamed: bool


def handbook() -> list[Document]:
    """Read the shipped documents."""
    return _lines("handbook.jsonl", Document)


def questions() -> list[Question]:
    """Read the shipped questions."""
    return _lines("questions.jsonl", Question)


class Index:
    """BM25 over title and text. The vectors and the texts are two columns, as in a vector database."""

    def __init__(self, documents: Sequence[Document]) -> None:
        bags = [Counter(texts.content_words(f"{document.title} {document.text}")) for document in documents]
        self._vocabulary = {word: column for column, word in enumerate(sorted(set().union(*bags)))}
        counts = np.zeros((len(bags), len(self._vocabulary)))
        for row, bag in enumerate(bags):
            for word, count in bag.items():
                counts[row, self._vocabulary[word]] = count
        found_in = (counts > 0).sum(axis=0)
        rarity = np.log(1.0 + (len(bags) - found_in + 0.5) / (found_in + 0.5))
        length = counts.sum(axis=1, keepdims=True)
        norm = _K1 * (1.0 - _B + _B * length / length.mean())
        self._vectors = rarity * counts * (_K1 + 1.0) / (counts + norm)
        self._texts = list(documents)

    def search(self, question: str, k: int = 3) -> list[Document]:
        """Return the `k` passages nearest to the question, best first."""
        columns = [self._vocabulary[word] for word in set(texts.question_words(question)) if word in self._vocabulary]
        ranking = np.argsort(-self._vectors[:, columns].sum(axis=1), kind="stable")
        return [self._texts[row] for row in ranking[:k]]

    def rebuild_wrongly(self) -> None:
        """Shift the texts by several rows, as a rebuild that sorts one column only would: a realistic bug."""
        self._texts = self._texts[SHIFT:] + self._texts[:SHIFT]


class RagApp:
    """Retrieves, asks the model, answers; every other answer is streamed."""

    def __init__(self, index: Index, base_url: str) -> None:
        import openai  # noqa: PLC0415 - half a second that only `gaugeway demo` should pay

        self.index = index
        self._turns = itertools.count()
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key="demo",
            default_headers={"x-gaugeway-app": APP},
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        )

    async def ask(self, question: str) -> Answer:
        """Answer one question. Raises openai.OpenAIError."""
        passages = tuple(self.index.search(question))
        prompt = PROMPT.format(question=question, context="\n\n".join(document.text for document in passages))
        messages: Any = [{"role": "user", "content": prompt}]
        streamed = next(self._turns) % 2 == 1
        if streamed:
            stream = await self._client.chat.completions.create(model=MODEL, messages=messages, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        else:
            completion = await self._client.chat.completions.create(model=MODEL, messages=messages)
            text = completion.choices[0].message.content or ""
        return Answer(question, text, passages, streamed)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()


def _lines(name: str, kind: type[T]) -> list[T]:
    text = resources.files("gaugeway.demo").joinpath(name).read_text("utf-8")
    return [msgspec.json.decode(line, type=kind) for line in text.splitlines()]
