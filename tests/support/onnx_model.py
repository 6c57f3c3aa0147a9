"""Tiny ONNX classifiers built byte by byte, with a tokenizer: a label's logit is the sum of its tokens' weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

FLOAT, INT64 = 1, 7
_INT = 2


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _field(number: int, value: int | str | bytes) -> bytes:
    """One field in protobuf's wire format."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: int) -> bytes:
    parts = [_field(1, one) for one in inputs] + [_field(2, output), _field(4, kind)]
    parts += [_field(5, _field(1, name) + _field(3, value) + _field(20, _INT)) for name, value in attributes.items()]
    return _field(1, b"".join(parts))


def _tensor(name: str, array: np.ndarray, kind: int) -> bytes:
    dims = b"".join(_field(1, size) for size in array.shape)
    return _field(5, dims + _field(2, kind) + _field(8, name) + _field(9, array.tobytes()))


def _value(number: int, name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    dims = b"".join(_field(1, _field(2 if isinstance(one, str) else 1, one)) for one in shape)
    return _field(number, _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, dims))))


def model(weights: np.ndarray, *, of_tokens: bool) -> bytes:
    """An ONNX model: logits are `weights[input_ids]`, for pairs summed over the tokens that are no padding."""
    labels = weights.shape[1]
    nodes = [_node("Gather", ["weights", "input_ids"], "logits" if of_tokens else "each", axis=0)]
    tensors = [_tensor("weights", weights.astype(np.float32), FLOAT)]
    inputs = [_value(11, name, INT64, ["batch", "tokens"]) for name in ("input_ids", "attention_mask")]
    shape: list[str | int] = ["batch", "tokens", labels]
    if not of_tokens:
        nodes += [
            _node("Cast", ["attention_mask"], "mask", to=FLOAT),
            _node("Unsqueeze", ["mask", "last"], "column"),
            _node("Mul", ["each", "column"], "kept"),
            _node("ReduceSum", ["kept", "first"], "logits", keepdims=0),
        ]
        tensors += [_tensor("last", np.array([2]), INT64), _tensor("first", np.array([1]), INT64)]
        shape = ["batch", labels]
    outputs = [_value(12, "logits", FLOAT, shape)]
    graph = b"".join([*nodes, _field(2, "tiny"), *tensors, *inputs, *outputs])
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))


def build(
    folder: Path,
    words: Mapping[str, Sequence[float]],
    *,
    of_tokens: bool = False,
    labels=("no", "yes"),
    tokens: int = 64,
) -> str:
    """Write a model into a directory: the weights of some words by label, 0 for all others. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, **{word: 4 + at for at, word in enumerate(words)}}
    weights = np.zeros((len(vocabulary), len(labels)))
    for word, row in words.items():
        weights[vocabulary[word]] = row
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").write_bytes(model(weights, of_tokens=of_tokens))
    head = "Token" if of_tokens else "Sequence"
    config = {
        "architectures": [f"TinyFor{head}Classification"],
        "id2label": {str(at): label for at, label in enumerate(labels)},
        "max_position_embeddings": tokens,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)
