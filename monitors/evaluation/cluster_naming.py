"""Names of clusters: the judge gives each cluster one, in a few words, once; the name is kept in the state store.

Whoever shows a report asks for the names that are known, and leaves the other clusters to the leader, which asks the
judge in the background. A cluster is known again by its keywords. The examples are untrusted texts, so a name is only
taken if it is a short line of plain words, one of which the examples share; otherwise the cluster keeps its keywords.
"""

from __future__ import annotations

import asyncio
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gaugeway.storage.stores import StateStore, Store
from gaugeway.text.topics import STEM, terms_of
from monitors.analysis.answer_clusters import AnswerCluster, Kind
from monitors.analysis.retrieval.source_reading import failed_claims
from monitors.evaluation.judge_marks import PERMANENT, marked
from monitors.judges import Judge, JudgeError
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import ClusterName

CLUSTER_NAME = "cluster_name"
"""The prompt's task, and the metric name under which the judge's cost is shown."""
STATE = "cluster_names"
"""The name of the state."""
NAME_EVERY_S = 10.0
MAX_NAMES = 500
"""Names that are kept; of more, the oldest are forgotten."""
MAX_WAITING = 100
MAX_NAMED_PER_TICK = 5
NAMED_PER_DAY = 100
"""Most clusters of all apps that the judge names in 24 hours: a bound on their cost."""
TIMES_ASKED = 3
FRESH_S = 60.0
SAME = 0.5
"""Share of the keywords of two clusters together that both have, from which on they are the same cluster."""
LONGEST_NAME, MOST_WORDS = 60, 8
_LONGEST_EXAMPLE = 300
_PUNCTUATION = frozenset(" -'\u2019,&/%()€$£+")
_DAY_S = 86_400.0


class KnownName(Struct, frozen=True):
    """The name of a cluster; "" if the judge gave none that could be used."""

    app: str
    kind: str
    keywords: tuple[str, ...]
    name: str
    at: float


class _Waiting(Struct):
    app: str
    kind: str
    keywords: tuple[str, ...]
    examples: tuple[str, ...]
    attempts: int = 0


@dataclass(eq=False)
class ClusterNames:
    """Names the clusters of reports; only the leader calls `tick`.

    `allowed` says whether the judge may be called
    now (available, with budget left). `clock` gives Unix time.
    """

    store: Store
    state_store: StateStore
    judge: Judge
    _: KW_ONLY
    allowed: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._known: tuple[KnownName, ...] = ()
        self._read_at = -FRESH_S
        self._waiting: list[_Waiting] = []

    async def named(self, app: str, kind: Kind, clusters: Sequence[AnswerCluster]) -> tuple[AnswerCluster, ...]:
        """Return clusters with the names that are known; the others are left to `tick`."""
        if not clusters:
            return (*clusters,)
        if self.clock() - self._read_at >= FRESH_S:
            await self._read()
        return tuple(self._named(app, kind, cluster) for cluster in clusters)

    def _named(self, app: str, kind: Kind, cluster: AnswerCluster) -> AnswerCluster:
        if (found := _most_alike(self._known, app, kind, cluster.keywords)) is not None:
            return replace(cluster, name=found.name, is_named=True) if found.name else cluster
        waits = any(_alike(waiting, app, kind, cluster.keywords) >= SAME for waiting in self._waiting)
        if cluster.keywords and not waits and len(self._waiting) < MAX_WAITING:
            examples = tuple(example.id for example in cluster.examples)
            self._waiting.append(_Waiting(app, kind, cluster.keywords, examples))
        return cluster

    async def tick(self) -> None:
        """Have the judge name clusters that wait. Raises what the store raises."""
        if not self._waiting or not self.allowed():
            return
        await self._read()
        now = self.clock()
        self._waiting = [
            waiting
            for waiting in self._waiting
            if _most_alike(self._known, waiting.app, waiting.kind, waiting.keywords) is None
        ]
        left = NAMED_PER_DAY - sum(known.at > now - _DAY_S for known in self._known)
        due = self._waiting[: max(0, min(MAX_NAMED_PER_TICK, left))]
        names = await asyncio.gather(*(self._ask(self.judge, waiting) for waiting in due))
        given = list(self._known)
        for waiting, name in zip(due, names, strict=True):
            if name is None:
                continue
            taken = {known.name.casefold() for known in given if (known.app, known.kind) == (waiting.app, waiting.kind)}
            kept = "" if name.casefold() in taken else name
            given.append(KnownName(waiting.app, waiting.kind, waiting.keywords, kept, now))
            self._waiting.remove(waiting)
        if len(given) > len(self._known):
            self._known = tuple(given[-MAX_NAMES:])
            await self.state_store.save({STATE: msgspec.json.encode(self._known)})

    async def _read(self) -> None:
        saved = (await self.state_store.load()).get(STATE)
        self._known = () if saved is None else msgspec.json.decode(saved, type=tuple[KnownName, ...])
        self._read_at = self.clock()

    async def _ask(self, judge: Judge, waiting: _Waiting) -> str | None:
        """Return a name, "" for none that can be used, or None if the judge is to be asked again."""
        waiting.attempts += 1
        examples = [text for sample_id in waiting.examples if (text := await self._example(sample_id))]
        data = [Datum("words", ", ".join(waiting.keywords))]
        data += [Datum("example", text, id=number) for number, text in enumerate(examples)]
        try:
            answer = await marked(judge, CLUSTER_NAME, waiting.app, data, ClusterName)
        except JudgeError as error:
            return "" if error.kind in PERMANENT or waiting.attempts >= TIMES_ASKED else None
        return usable_name(answer.name, examples)

    async def _example(self, sample_id: str) -> str:
        """Return question and failed claims of an exchange as stored: redacted."""
        if (stored := await self.store.sample(sample_id)) is None:
            return ""
        question = " ".join((stored[0].question or "")[: 2 * _LONGEST_EXAMPLE].split())[:_LONGEST_EXAMPLE]
        claims = failed_claims(stored[1])
        return f"{question}\nFailed: {claims}" if claims else question


def usable_name(name: str, examples: Sequence[str]) -> str:
    """Return a judge's name for a cluster; "" if it is no short line of plain words, or not about the examples.

    It shares a word with two of the examples, or with the only one: a single example cannot choose the name.

    >>> usable_name("Refund deadlines.", ["until when can I get a refund?", "refund deadline"])
    'Refund deadlines'
    >>> usable_name("<b>refund</b>", ["refund"] * 2), usable_name("Anything else", ["refund"] * 2)
    ('', '')
    """
    name = name.strip().strip(".\"'“”").strip()
    plain = all(
        character in _PUNCTUATION or unicodedata.category(character)[0] in "LMN" for character in name
    )  # no line breaks, no signs of markup or addresses, no marks of direction
    if not plain or not 0 < len(name) <= LONGEST_NAME or len(name.split()) > MOST_WORDS:
        return ""
    words = {term[:STEM] for term in terms_of(name)}
    shared = Counter(stem for example in examples for stem in words & {term[:STEM] for term in terms_of(example)})
    return name if max(shared.values(), default=0) >= min(2, max(1, len(examples))) else ""


def _most_alike(known: Sequence[KnownName], app: str, kind: str, keywords: Sequence[str]) -> KnownName | None:
    """Return the name of the cluster that these keywords are of; the latest of those that are equally alike."""
    found = max(reversed(known), key=lambda name: _alike(name, app, kind, keywords), default=None)
    return found if found is not None and _alike(found, app, kind, keywords) >= SAME else None


def _alike(known: KnownName | _Waiting, app: str, kind: str, keywords: Sequence[str]) -> float:
    """Return the share of the keywords of two clusters together that both have; 0 in different apps or kinds."""
    if (known.app, known.kind) != (app, kind):
        return 0.0
    one, other = ({word[:STEM] for word in words} for words in (known.keywords, keywords))
    return len(one & other) / max(1, len(one | other))
