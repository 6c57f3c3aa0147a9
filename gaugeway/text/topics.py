"""Topics of questions without a model: hashed TF-IDF and spherical k-means, deterministic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import regex
from msgspec import Struct
from numpy.typing import NDArray

from gaugeway.data_files import table
from gaugeway.text.normalising import nfkc

Array: TypeAlias = NDArray[np.float64]
Terms: TypeAlias = Mapping[str, int]

UNLIKE = "topic:unlike before"
"""The topic of questions unlike any before."""
NAMELESS = "topic:others"
"""A topic without typical words."""
MAX_FITTED = 3000
_BUCKETS = 1 << 14
_DIMENSIONS, _OVERSAMPLED = 32, 8
_POWER_STEPS, _STEPS, _STARTS = 3, 30, 8
_PER_TOPIC = 12
STEM, _LONGEST, _MAX_TERMS = 6, 2000, 200
_COMMON, _RARE = 0.5, 2
_UNLIKE, _ALIKE = 0.02, 0.5
_SAME_SUBJECT = 0.1
"""Mean cosine of questions about one subject, beside 0 to 0.08 of questions about different ones."""
_WORDS, _LEAST_WORD, _LEAST_SHARE = 3, 3, 0.05
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_STOP_WORDS = frozenset(" ".join(table("gaugeway.text", "topics.toml")["stop_words"].values()).split())
"""Stop words of questions in languages that use spaces."""
_TOKEN = regex.compile(rf"(?P<unspaced>[{_UNSPACED}\p{{Mn}}]+)|[\p{{L}}\p{{M}}--[{_UNSPACED}]]{{2,}}", regex.V1)


def topics(
    questions_before: Mapping[str, str], questions_since: Mapping[str, str], *, k: int = 8, seed: int = 0
) -> Mapping[str, str]:
    """Assign each question of both sides a topic found in those before: sample id -> "topic:" and its typical words.

    Words are cut to six letters, scripts without spaces to character pairs; stop words ("how", "please") and terms in
    more than half of the questions are ignored. TF-IDF vectors are reduced to 32 dimensions
    (latent semantic analysis), so that short questions with few common words can match, and clustered by angle.
    Questions less like their topic than all but 2 % of those before (and with a cosine below one half) are `UNLIKE`,
    as are those without a known word. Returns an empty dict for fewer than 24 questions before; at most 3,000 of them
    are fitted.

    References: I. S. Dhillon, D. S. Modha (2001), Concept decompositions for large sparse text data using clustering;
    N. Halko, P. G. Martinsson, J. A. Tropp (2011), Finding structure with randomness.

    >>> before = {f"a{i}": f"how do I return order {i} and get a refund" for i in range(30)}
    >>> before |= {f"b{i}": f"which adapter charges laptop model {i}" for i in range(30)}
    >>> found = topics(before, {"c": "refund for a returned order"}, k=2)
    >>> found["c"] == found["a0"] != found["b0"]
    True
    """
    found = fit_topics(questions_before, k=k, seed=seed)
    return {} if found is None else {**found.own, **found.of(questions_since)}


def fit_topics(questions: Mapping[str, str], *, k: int = 8, seed: int = 0) -> TopicModel | None:
    """Find topics in questions, as `topics` does; None for fewer than 24 of them."""
    if (found := _fitted(questions, k, seed)) is None:
        return None
    labels = _labels(list(found.terms.values()), found.nearest, len(found.centres))
    own = {
        key: labels[topic] if alike >= found.least else UNLIKE
        for key, topic, alike in zip(found.terms, found.nearest.tolist(), found.likeness, strict=True)
    }
    return TopicModel(own=own, labels=labels, space=found.space, centres=found.centres, least=found.least)


class TopicModel(Struct, frozen=True, kw_only=True):
    """Topics found in questions: `own` are the topics of these, by id, `labels` those of the centres."""

    own: Mapping[str, str]
    labels: Sequence[str]
    space: _Space
    centres: Array
    least: float

    def of(self, questions: Mapping[str, str]) -> Mapping[str, str]:
        """Return the topic of each question by id: the nearest one, or `UNLIKE`."""
        if not questions:
            return {}
        terms = {key: terms_of(questions[key]) for key in sorted(questions)}
        nearest, likeness = _nearest(self.space.of(list(terms.values())), self.centres)
        return {
            key: self.labels[topic] if alike >= self.least else UNLIKE
            for key, topic, alike in zip(terms, nearest.tolist(), likeness, strict=True)
        }


def narrow_and_broad_topics(
    questions: Mapping[str, str], *, k: int = 8, seed: int = 0
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the topics of questions as `topics` does, and at most `k` broad ones, one for each subject.

    Narrow topics are as many as there is room for, so that those of one subject are told apart too. They are merged
    into broad ones by group-average linkage, until questions of no two of them have a mean cosine of 0.1. Questions in
    no topic are `UNLIKE`; a broad topic without typical words, such as the only one, is `NAMELESS`.

    Reference: R. R. Sokal, C. D. Michener (1958), A statistical method for evaluating systematic relationships.

    >>> some = {f"a{i}": f"how do I return order {i} and get a refund" for i in range(30)}
    >>> some |= {f"b{i}": f"which adapter charges laptop model {i}" for i in range(30)}
    >>> narrow, broad = narrow_and_broad_topics(some)
    >>> broad["a0"] != broad["b0"], len(set(broad.values()))
    (True, 2)
    """
    if (found := _fitted(questions, k, seed)) is None:
        return {}, {}
    documents = list(found.terms.values())
    merged = _merged(found.vectors, found.nearest, len(found.centres))[found.nearest]

    def named(topic: NDArray[np.intp]) -> Mapping[str, str]:
        labels = [NAMELESS if label.startswith(f"{NAMELESS} (") else label for label in _labels(documents, topic, k)]
        rows = zip(found.terms, topic.tolist(), found.likeness, strict=True)
        return {key: labels[at] if alike >= found.least else UNLIKE for key, at, alike in rows}

    return named(found.nearest), named(merged)


def most_alike(
    question: str, others: Mapping[str, str], *, most: int = 6, least: float = 0.4
) -> list[tuple[str, float]]:
    """Return the ids of the questions most like one, with the cosine of their TF-IDF vectors, the most alike first.

    The terms are those of `topics`; questions of the same terms have a cosine of 1. Those below `least` are left out.

    >>> others = {"a": "refund for my order", "b": "charger for the laptop", "c": "Refund for the order?"}
    >>> most_alike("a refund of an order, please", others)
    [('a', 1.0), ('c', 1.0)]
    >>> most_alike("I bought headphones last week", {"a": "How long does one rotation of Venus last?"})
    []
    """
    counted = {key: _stemmed(text) for key, text in sorted(others.items())}
    own = _stemmed(question)
    documents = Counter(stem for terms in (own, *counted.values()) for stem in terms)
    size = len(counted) + 1
    idf = {stem: math.log((size + 1) / n) for stem, n in documents.items()}

    def vector(terms: Mapping[str, int]) -> Mapping[str, float]:
        weights = {stem: (1.0 + math.log(n)) * idf[stem] for stem, n in terms.items()}
        length = math.sqrt(math.fsum(weight**2 for weight in weights.values()))
        return {stem: weight / length for stem, weight in weights.items()} if length else {}

    mine = vector(own)
    found = []
    for key, terms in counted.items():
        cosine = math.fsum(weight * mine[stem] for stem, weight in vector(terms).items() if stem in mine)
        if cosine >= least:
            found.append((key, min(1.0, round(cosine, 6))))
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:most]


def _stemmed(question: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for term, n in terms_of(question).items():
        counts[term[:STEM]] += n
    return counts


class _Fitted(NamedTuple):
    """Questions as terms and unit vectors, with the nearest centre; those less like it than `least` are in no topic."""

    terms: Mapping[str, Terms]
    space: _Space
    vectors: Array
    centres: Array
    nearest: NDArray[np.intp]
    likeness: Array
    least: float


def _fitted(questions: Mapping[str, str], k: int, seed: int) -> _Fitted | None:
    """Find at most `k` topics of questions; None with too few of them for two."""
    terms = {key: terms_of(questions[key]) for key in sorted(questions)}
    fitted = [terms[key] for key in _spread(list(terms))]
    if min(k, len(fitted) // _PER_TOPIC) < 2:  # noqa: PLR2004 - one topic is none
        return None
    space = _Space(fitted, seed)
    vectors = space.of(list(terms.values()))
    learnt = space.of(fitted)
    centres = _clustered(learnt[_known(learnt)], min(k, len(fitted) // _PER_TOPIC), seed)
    if not centres.size:
        return None
    nearest, likeness = _nearest(vectors, centres)
    least = min(_ALIKE, float(np.quantile(likeness[_known(vectors)], _UNLIKE)))
    return _Fitted(terms, space, vectors, centres, nearest, likeness, least)


def _merged(vectors: Array, nearest: NDArray[np.intp], k: int) -> NDArray[np.intp]:
    """Return the broad topic of each of `k` topics."""
    broad = np.arange(k)
    sums = np.zeros((k, vectors.shape[1]))
    np.add.at(sums, nearest, vectors)
    sizes = np.bincount(nearest[_known(vectors)], minlength=k).astype(np.float64)
    while True:
        cosines = (sums @ sums.T) / np.maximum(np.outer(sizes, sizes), 1.0)
        np.fill_diagonal(cosines, -math.inf)
        one, other = np.unravel_index(cosines.argmax(), cosines.shape)
        if not cosines[one, other] >= _SAME_SUBJECT:
            return broad
        sums[one] += sums[other]
        sizes[one] += sizes[other]
        sums[other], sizes[other] = 0.0, 0.0
        broad[broad == other] = one


class _Space:
    """TF-IDF of hashed terms, projected on the leading singular vectors."""

    def __init__(self, fitted: Sequence[Terms], seed: int) -> None:
        counts = Counter(bucket for terms in fitted for bucket in {_bucket(term) for term in terms})
        most = max(_COMMON * len(fitted), _RARE)
        kept = sorted(bucket for bucket, n in counts.items() if _RARE <= n <= most)
        self._column = {bucket: column for column, bucket in enumerate(kept)}
        self._idf = np.array([math.log(len(fitted) / counts[bucket]) for bucket in kept])
        self._axes = np.eye(len(kept)) if len(kept) <= _DIMENSIONS else _axes(self._weighted(fitted), seed)

    def of(self, documents: Sequence[Terms]) -> Array:
        """Return unit vectors; zero for a document without a known term."""
        blocks = [
            _unit(self._weighted(documents[start : start + MAX_FITTED]) @ self._axes)
            for start in range(0, len(documents), MAX_FITTED)
        ]
        return np.concatenate(blocks) if blocks else np.zeros((0, self._axes.shape[1]))

    def _weighted(self, documents: Sequence[Terms]) -> Array:
        matrix = np.zeros((len(documents), len(self._idf)), dtype=np.float32)
        for row, terms in enumerate(documents):
            for term, n in terms.items():
                if (column := self._column.get(_bucket(term))) is not None:
                    matrix[row, column] += (1.0 + math.log(n)) * self._idf[column]
        return _unit(matrix)


def terms_of(question: str) -> Terms:
    """Count the terms of a question."""
    text = nfkc(question[:_LONGEST]).casefold()
    found: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if match["unspaced"] is None:
            found += [] if token in _STOP_WORDS else [token]
        else:
            found += [letter + other for letter, other in pairwise(token)] or [token]
        if len(found) >= _MAX_TERMS:
            break
    return Counter(found)


def _bucket(term: str) -> int:
    return crc32(term[:STEM].encode("utf-8", "replace")) % _BUCKETS


def _spread(keys: Sequence[str]) -> Sequence[str]:
    """Return at most `MAX_FITTED` keys, evenly spaced."""
    step = max(1, math.ceil(len(keys) / MAX_FITTED))
    return keys[::step]


def _axes(matrix: Array, seed: int) -> Array:
    """Return the leading right singular vectors, by randomised range finding."""
    rng = np.random.default_rng(seed)
    basis = matrix.T @ rng.standard_normal((matrix.shape[0], _DIMENSIONS + _OVERSAMPLED), dtype=np.float32)
    for _ in range(_POWER_STEPS):
        basis = matrix.T @ (matrix @ np.linalg.qr(basis)[0])
    basis = np.linalg.qr(basis)[0]
    _, _, axes = np.linalg.svd(matrix @ basis, full_matrices=False)
    return np.asarray(basis @ axes[:_DIMENSIONS].T, dtype=np.float64)


def _clustered(vectors: Array, k: int, seed: int) -> Array:
    """Return the unit centres of the best of several runs of spherical k-means with k-means++ starts."""
    best, centres = -math.inf, np.zeros((0, vectors.shape[1]))
    if len(vectors) < k:
        return centres
    for start in range(_STARTS):
        candidate = _begun(vectors, k, np.random.default_rng([seed, start]))
        for _ in range(_STEPS):
            nearest, _ = _nearest(vectors, candidate)
            sums = np.zeros_like(candidate)
            np.add.at(sums, nearest, vectors)
            moved = np.where(np.linalg.norm(sums, axis=1, keepdims=True) > 0.0, _unit(sums), candidate)
            if np.allclose(moved, candidate, atol=1e-6):
                break
            candidate = moved
        if (total := float(_nearest(vectors, candidate)[1].sum())) > best:
            best, centres = total, candidate
    return centres


def _begun(vectors: Array, k: int, rng: np.random.Generator) -> Array:
    chosen = [int(rng.integers(len(vectors)))]
    distance = np.full(len(vectors), np.inf)
    for _ in range(k - 1):
        distance = np.minimum(distance, np.maximum(0.0, 1.0 - vectors @ vectors[chosen[-1]]))
        if (total := distance.sum()) <= 0.0:
            break
        chosen.append(int(rng.choice(len(vectors), p=distance / total)))
    return vectors[chosen]


def _nearest(vectors: Array, centres: Array) -> tuple[NDArray[np.intp], Array]:
    likeness = vectors @ centres.T
    nearest = likeness.argmax(axis=1)
    return nearest, likeness[np.arange(len(vectors)), nearest]


def _known(vectors: Array) -> NDArray[np.bool_]:
    known: NDArray[np.bool_] = (vectors != 0.0).any(axis=1)
    return known


def _unit(vectors: NDArray[np.floating[Any]]) -> Array:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Array = vectors.astype(np.float64) / np.where(length > 0.0, length, 1.0)
    return unit


def _labels(documents: Sequence[Terms], nearest: NDArray[np.intp], k: int) -> list[str]:
    """Return a label per topic from its typical words; rare words may be names and are left out."""
    forms = Counter(term for terms in documents for term in terms)
    everywhere = _stems(documents)
    labels: list[str] = []
    for topic in range(k):
        inside = [terms for terms, at in zip(documents, nearest.tolist(), strict=True) if at == topic]
        counts = _stems(inside)
        least = max(_LEAST_WORD, _LEAST_SHARE * len(inside))
        telling = {
            stem: n * math.log(n / len(inside) / (everywhere[stem] / len(documents)))
            for stem, n in counts.items()
            if n >= least
        }
        stems = sorted((stem for stem in telling if telling[stem] > 0.0), key=lambda stem: (-telling[stem], stem))
        words = [frequent_form(stem, forms) for stem in stems[:_WORDS]]
        label = f"topic:{', '.join(words)}" if words else NAMELESS
        labels.append(label if label not in labels else f"{label} ({topic})")
    return labels


def _stems(documents: Iterable[Terms]) -> Counter[str]:
    """Count the documents with each stem."""
    return Counter(stem for terms in documents for stem in {term[:STEM] for term in terms})


def frequent_form(stem: str, forms: Mapping[str, int]) -> str:
    """Return the most frequent word with this stem; the stem itself where none is known."""
    return max((form for form in forms if form[:STEM] == stem), key=lambda form: (forms[form], form), default=stem)
