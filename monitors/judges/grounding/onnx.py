"""Verifiers on this machine (extra `local`): a classifier of pairs or of tokens that onnxruntime runs in a thread."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gaugeway.settings.shared import Price
from monitors.judges import Judge, JudgeError, Observer, Prompt
from monitors.judges.cost import FREE, Meter
from monitors.judges.grounding.documents import digest
from monitors.judges.grounding.http import label_of_support
from monitors.judges.grounding.lettucedetect import Spans, context_of
from monitors.judges.grounding.pairs import PairSupports

T = TypeVar("T")
MAX_LENGTH = 8_192
"""Tokens of one text or pair, whatever the model could read."""
MAX_CONFIG_BYTES = 1024 * 1024
_FILES = ("model.onnx", "tokenizer.json", "config.json")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_UNNAMED = (["label_0", "label_1"], ["0", "1"])
_POSITIONS_BEFORE_THE_FIRST = {"roberta": 2, "xlm-roberta": 2, "camembert": 2}
"""Models whose `max_position_embeddings` counts positions that no token can have."""


class ModelConfig(msgspec.Struct):
    """The part of a model's `config.json` that is used."""

    architectures: list[str] = msgspec.field(default_factory=list)
    model_type: str = ""
    id2label: dict[str, str] = msgspec.field(default_factory=dict)
    max_position_embeddings: Annotated[int, msgspec.Meta(ge=16)] | None = None

    @property
    def of_tokens(self) -> bool:
        """Whether the model labels tokens rather than pairs."""
        return any(architecture.endswith("ForTokenClassification") for architecture in self.architectures)

    @property
    def max_length(self) -> int:
        """Tokens that the model can read."""
        positions = self.max_position_embeddings or 512
        return min(positions - _POSITIONS_BEFORE_THE_FIRST.get(self.model_type, 0), MAX_LENGTH)

    def labels(self) -> list[str]:
        """Return the labels in order. Raises ValueError."""
        try:
            found = {int(index): label for index, label in self.id2label.items()}
        except ValueError:
            raise ValueError("path: the id2label of config.json is not a numbered list of labels") from None
        if set(found) != set(range(len(found))):
            raise ValueError("path: the id2label of config.json is not a numbered list of labels")
        return [found[index] for index in range(len(found))]


def read_config(path: str) -> ModelConfig:
    """Read a model's directory, without loading the model. Raises ValueError that begins with the key."""
    folder = Path(path)
    if missing := [name for name in _FILES if not (folder / name).is_file()]:
        advice = "nothing is downloaded: export the model to this directory"
        raise ValueError(f"path: {path} contains no {', '.join(missing)}; {advice}")
    if importlib.util.find_spec("onnxruntime") is None or importlib.util.find_spec("tokenizers") is None:
        raise ValueError("kind: models on this machine need onnxruntime and tokenizers: pip install 'gaugeway[local]'")
    if (folder / "config.json").stat().st_size > MAX_CONFIG_BYTES:
        raise ValueError(f"path: {folder / 'config.json'}: is larger than 1 MiB")
    try:
        return msgspec.json.decode((folder / "config.json").read_bytes(), type=ModelConfig)
    except msgspec.ValidationError as error:
        raise ValueError(f"path: {folder / 'config.json'}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = "it ends too early" if "truncated" in str(error) else str(error)
        raise ValueError(f"path: {folder / 'config.json'} is not valid JSON ({why})") from None
    except (OSError, RecursionError) as error:
        raise ValueError(f"path: {folder / 'config.json'}: {error}") from None


def supported_index(labels: Sequence[str], wanted: str | None, *, of_tokens: bool) -> int:
    """Return the index of the label that means supported. Raises ValueError.

    Without a name: a usual name; of two labels the one beside a usual name for the opposite; of pairs the only label.
    Unnamed labels of tokens are LettuceDetect's: LABEL_0 is supported.

    >>> supported_index(["contradiction", "neutral", "entailment"], None, of_tokens=False)
    2
    >>> supported_index(["hallucinated", "supported"], None, of_tokens=True)
    1
    >>> supported_index(["LABEL_0", "LABEL_1"], None, of_tokens=True)
    0
    """
    if wanted is not None:
        if wanted not in labels:
            raise ValueError(f"label: no label {wanted!r}; the model has {', '.join(labels[:20]) or 'no labels'}")
        return labels.index(wanted)
    if of_tokens and [label.lower() for label in labels] in _UNNAMED:
        return 0
    if (index := label_of_support(labels, only=not of_tokens)) is None:
        raise ValueError(f"label: which of {', '.join(labels[:20]) or 'no labels'} means supported?")
    return index


class LocalPairs:
    """Writes pairs for a model on this machine."""

    def __init__(self, version: str) -> None:
        self.version = version

    def write(self, pairs: Sequence[tuple[str, str]]) -> bytes:
        """Return the pairs as JSON."""
        return msgspec.json.encode(pairs)


class _Material(msgspec.Struct):
    contexts: list[str]
    question: str
    answer: str


class LocalModel(Judge):
    """A model in `path`: `model.onnx`, `tokenizer.json` and `config.json`, as `optimum-cli export onnx` writes them.

    A classifier of pairs answers `PairSupports` to a JSON list of (document, claim), a classifier of tokens `Spans` to
    {"contexts", "question", "answer"}. Texts are not truncated: longer ones raise JudgeError("context_overflow"). The
    model is loaded with the first call, once, and computes one batch at a time with `threads` threads. Raises
    ValueError.
    """

    def __init__(
        self,
        path: str,
        *,
        label: str | None = None,
        name: str | None = None,
        threads: int = 1,
        price: Price = FREE,
        observer: Observer | None = None,
    ) -> None:
        self._folder = Path(path)
        self._config = read_config(path)
        labels = self._config.labels()
        self._supported = supported_index(labels, label, of_tokens=self._config.of_tokens)
        self._labels = len(labels)
        self._name = name or self._folder.resolve().name
        self._threads = threads
        self._observer = observer or Observer()
        self._meter = Meter(self._name, price, self._observer)
        self._turn = asyncio.Lock()
        self._loaded: tuple[Any, Any] | None = None
        self._problem = ""
        size = (self._folder / _FILES[0]).stat().st_size
        self.version = digest("onnx 1", str(self._supported), str(size), *labels, *self._config.architectures)

    @property
    def model(self) -> str:
        return self._name

    @property
    def identity(self) -> str:
        return f"onnx {self._folder.resolve()} {self.version}"

    @property
    def of_tokens(self) -> bool:
        """Whether the model labels tokens rather than pairs."""
        return self._config.of_tokens

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        started = time.perf_counter()
        try:
            async with self._turn:
                answer, tokens = await asyncio.to_thread(self._spans if self.of_tokens else self._supports, prompt.user)
        except JudgeError as error:
            self._observer.failed(self._name, error.kind)
            raise
        self._meter.count(time.perf_counter() - started, tokens)
        if not isinstance(answer, answer_type):
            raise TypeError(f"{self._folder} answers with {type(answer).__name__}, not {answer_type.__name__}")
        return answer

    def _supports(self, user: str) -> tuple[PairSupports, int]:
        logits, encodings = self._run(msgspec.json.decode(user, type=list[tuple[str, str]]), rank=2)
        chances = _chances(logits)[:, self._supported]
        return PairSupports(supports=[float(chance) for chance in chances]), _count(encodings)

    def _spans(self, user: str) -> tuple[Spans, int]:
        given = msgspec.json.decode(user, type=_Material)
        logits, encodings = self._run([(context_of(given.question, given.contexts), given.answer)], rank=3)
        unsupported = 1.0 - _chances(logits)[0, :, self._supported]
        (encoding,) = encodings
        spans = [
            (start, end, float(min(1.0, max(0.0, chance))))
            for sequence, (start, end), chance in zip(encoding.sequence_ids, encoding.offsets, unsupported, strict=True)
            if sequence == 1 and start < end
        ]
        return Spans(spans=spans), _count(encodings)

    def _run(self, pairs: Sequence[tuple[str, str]], *, rank: int) -> tuple[NDArray[np.float64], list[Any]]:
        """Return the logits for some pairs, and their encodings."""
        tokenizer, session = self._load()
        encodings = tokenizer.encode_batch(list(pairs))
        if (longest := max(len(encoding.ids) for encoding in encodings)) > self._config.max_length:
            raise JudgeError("context_overflow", f"{longest} tokens, and the model reads {self._config.max_length}")
        columns = {
            "input_ids": [encoding.ids for encoding in encodings],
            "attention_mask": [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        wanted = {argument.name for argument in session.get_inputs()}
        try:
            fed = {name: np.array(rows, dtype=np.int64) for name, rows in columns.items() if name in wanted}
            logits = np.asarray(session.run(None, fed)[0], dtype=np.float64)
        except Exception as error:  # noqa: BLE001 - the runtime raises classes of its own for each kind of failure
            raise JudgeError("server_error", f"{type(error).__name__}: {error!s:.300}") from None
        rows = (len(pairs), longest, self._labels) if rank == 3 else (len(pairs), self._labels)  # noqa: PLR2004
        if logits.ndim == len(rows) and logits.shape[:-1] == rows[:-1] and logits.shape != rows:
            raise JudgeError("unreadable", _other_labels(logits.shape[-1], self._labels))
        if logits.shape != rows:
            raise JudgeError("unreadable", f"the model's first output has the shape {logits.shape} instead of {rows}")
        if not np.isfinite(logits).all():
            raise JudgeError("unreadable", "the model's logits are NaN or infinite; export it again, with float32")
        return logits, encodings

    def load(self) -> None:
        """Load the model now. Raises ValueError that begins with the key."""
        try:
            self._load()
        except JudgeError as error:
            raise ValueError(f"path: {self._folder}: {error.detail}") from None

    def _load(self) -> tuple[Any, Any]:
        """Return tokenizer and session; a model that cannot be loaded is not read again."""
        if self._loaded is None and not self._problem:
            try:
                self._loaded = self._tokenizer(), self._session()
            except ValueError as error:
                self._problem = str(error)
        if self._loaded is None:
            raise JudgeError("bad_request", self._problem)
        return self._loaded

    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an optional package, slow to load

        try:
            tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        except Exception as error:  # noqa: BLE001 - it raises no class of its own
            raise ValueError(f"tokenizer.json cannot be loaded; export the model again ({error!s:.200})") from None
        tokenizer.no_truncation()
        padding: Mapping[str, Any] = tokenizer.padding or {}
        known = {name: padding[name] for name in ("pad_id", "pad_type_id", "pad_token", "direction") if name in padding}
        tokenizer.enable_padding(**known)
        return tokenizer

    def _session(self) -> Any:
        """Return the model, whose inputs are known and whose labels are those of config.json. Raises ValueError."""
        from onnxruntime import InferenceSession, SessionOptions  # noqa: PLC0415 - as above

        options = SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        path = str(self._folder / _FILES[0])
        try:
            session = InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 - the runtime raises classes of its own for each kind of failure
            advice = "it may be incomplete: export the model again"
            raise ValueError(f"model.onnx cannot be loaded; {advice} ({error!s:.200})") from None
        if unknown := sorted({argument.name for argument in session.get_inputs()} - set(_INPUTS)):
            plural = "s" if len(unknown) > 1 else ""
            known = "only input_ids, attention_mask and token_type_ids can be given"
            raise ValueError(f"model.onnx needs the input{plural} {', '.join(unknown)}; {known}")
        shape = session.get_outputs()[0].shape
        if shape and isinstance(shape[-1], int) and shape[-1] != self._labels:
            raise ValueError(_other_labels(shape[-1], self._labels))
        return session


def _chances(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probabilities of the labels: softmax over the last axis, of one label the logistic function."""
    if logits.shape[-1] == 1:
        single: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.clip(logits, -500.0, 500.0)))
        return single
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    chances: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return chances


def _other_labels(outputs: int, labels: int) -> str:
    values = f"{outputs} value{'' if outputs == 1 else 's'}"
    return f"model.onnx gives {values} per text and config.json names {labels} label{'' if labels == 1 else 's'}"


def _count(encodings: Sequence[Any]) -> int:
    return sum(sum(encoding.attention_mask) for encoding in encodings)
