"""Embeddings on this machine: the real runtime with a model of four words, and what is said when something lacks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gaugeway.settings import shared as config
from monitors.judges import JudgeError
from monitors.metrics.embeddings.local import LocalEmbeddings
from monitors.metrics.embeddings.opening import open_embeddings

ROOT = Path(__file__).parents[4]
MODEL = "tests/four-words"
WORDS = ["[UNK]", "[PAD]", "lamp", "river"]
VECTORS = [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]


def field(number, value):
    """One field of a protocol buffer: a whole number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def tensor_type(name, kind, dimensions):
    shape = b"".join(field(1, field(2, one) if isinstance(one, str) else field(1, one)) for one in dimensions)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def onnx_model():
    """A model that looks up the vector of each token: one Gather node (see onnx.proto for the field numbers)."""
    table = np.array(VECTORS, "<f4")
    node = field(1, "table") + field(1, "input_ids") + field(2, "last_hidden_state") + field(4, "Gather")
    weights = field(1, 4) + field(1, 3) + field(2, 1) + field(8, "table") + field(9, table.tobytes())
    graph = (
        field(1, node)
        + field(2, "lookup")
        + field(5, weights)
        + field(11, tensor_type("input_ids", 7, ("n", "l")))
        + field(12, tensor_type("last_hidden_state", 1, ("n", "l", 3)))
    )
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


@pytest.fixture(scope="module")
def model_files(tmp_path_factory):
    """A directory with a model fastembed can run, known to it by name."""
    fastembed = pytest.importorskip("fastembed")
    from fastembed.common.model_description import ModelSource, PoolingType
    from tokenizers import Tokenizer, models, pre_tokenizers

    directory = tmp_path_factory.mktemp("model")
    (directory / "model.onnx").write_bytes(onnx_model())
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"max_length": 16, "model_max_length": 16, "pad_token": "[PAD]", "pad_token_id": 1}
    for name in ("config.json", "tokenizer_config.json"):
        (directory / name).write_text(json.dumps(config))
    (directory / "special_tokens_map.json").write_text("{}")
    fastembed.TextEmbedding.add_custom_model(
        MODEL,
        pooling=PoolingType.MEAN,
        normalization=False,
        sources=ModelSource(hf="tests/none"),
        dim=3,
        model_file="model.onnx",
    )
    return str(directory)


async def test_the_runtime_gives_the_models_vectors(model_files):
    local = LocalEmbeddings(MODEL, path=model_files)
    await local.prepare()
    vectors, none, _ = await asyncio.gather(
        local.embed(["lamp", "river lamp"]), local.embed([]), local.embed(["half \ud800"])
    )
    np.testing.assert_allclose(vectors, [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0]])
    assert vectors.dtype == np.float64
    assert none.shape == (0, 0)


async def test_it_is_cached_and_batched_like_any_other(model_files):
    opened = open_embeddings(config.Embeddings(kind="local", model=MODEL, path=model_files))
    first = await opened.embed(["lamp", "lamp"])
    await opened.embed(["lamp"])
    await opened.aclose()
    vectors, hits, misses = first, opened.hits, opened.misses
    assert (vectors.tolist(), hits, misses) == ([[1.0, 0.0, 0.0]] * 2, 1, 2)


def fails(**options):
    pytest.importorskip("fastembed")
    with pytest.raises(JudgeError) as failure:
        asyncio.run(LocalEmbeddings(**options).embed(["lamp"]))
    return failure.value


def test_files_that_are_missing_are_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    missing = fails(model="BAAI/bge-small-en-v1.5")
    assert missing.kind == "connection"
    assert "BAAI/bge-small-en-v1.5" in missing.detail
    assert "FASTEMBED_CACHE_PATH" in missing.detail
    assert "embeddings.download" in missing.detail
    assert "embeddings.path" in missing.detail
    assert fails(model="BAAI/bge-small-en-v1.5", path=str(tmp_path)).kind == "connection"


def test_an_unknown_model_is_said_to_be_one(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    assert fails(model="nobody/nothing").kind == "bad_request"


def test_without_the_package_the_error_says_what_to_install():
    """In a process of its own, where the package cannot be found."""
    code = (
        "import sys; sys.modules['fastembed'] = None; sys.path.insert(0, '.')\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name: None if name == 'fastembed' else find(name)\n"
        "from gaugeway.settings.shared import Embeddings\n"
        "from monitors.metrics.embeddings.opening import open_embeddings\n"
        "try: open_embeddings(Embeddings(kind='local', model='m'))\n"
        "except ValueError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.startswith("embeddings.kind: local embeddings need the package fastembed")
    assert "gaugeway[local]" in said


def test_the_package_is_loaded_only_when_it_is_used():
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from gaugeway.settings.shared import Embeddings\n"
        "from monitors.metrics.embeddings.opening import open_embeddings\n"
        "open_embeddings(Embeddings(kind='local', model='m'))\n"
        "print([name for name in ('fastembed', 'onnxruntime', 'openai') if name in sys.modules])\n"
    )
    pytest.importorskip("fastembed")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
