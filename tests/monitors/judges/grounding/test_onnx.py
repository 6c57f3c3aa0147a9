"""A verifier on this machine: tiny models that the test builds, run by the real runtime."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import pytest

from gaugeway.records import Failed, Score
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Config, GroundingVerifier, Judge
from monitors.app import check
from monitors.evaluation.verifiers import open_verifier
from tests.support.grounding import ALSO_TRUE, FALSE, TRUE, Opened, run, sample

onnx_model = pytest.importorskip("tests.support.onnx_model", reason="extra local")

WORDS = {"1931": (3.0, -3.0), "mill": (-1.0, 1.0)}
"""The weights of (unsupported, supported): an answer that names 1931 is unsupported."""
PASSAGES = ("The mill was built in 1907.",)


def pair_chance(mills, years):
    return 1.0 / (1.0 + math.exp(-2.0 * (mills - 3.0 * years)))


def local(path, **keys) -> GroundingVerifier:
    return GroundingVerifier(kind="onnx", path=path, **keys)


def test_a_classifier_of_pairs_scores_every_sentence(tmp_path):
    path = onnx_model.build(tmp_path / "pairs", WORDS)
    opened = Opened(local(path, price_in=1.0))
    (found,) = run(opened, sample(f"{TRUE} {FALSE}", passages=PASSAGES))
    assert isinstance(found.outcome, Score), found.outcome
    expected = [pair_chance(2, 0), pair_chance(1, 1)]  # one more mill is in the document
    assert [one["score"] for one in found.outcome.evidence] == pytest.approx(expected, abs=1e-3)
    assert found.judge == "pairs"
    assert opened.count("judge_requests_total", judge_model="pairs") == 1, "one batch"
    tokens = opened.count("evaluation_tokens_total", app="shop", metric="grounding", type="input")
    assert found.cost_usd == pytest.approx(tokens / 1e6)
    assert tokens > 20


def test_a_classifier_of_tokens_marks_the_places(tmp_path):
    words = {"1931": (-4.0, 4.0), "mill": (4.0, -4.0)}  # LettuceDetect: label 0 is supported, 1 is not
    path = onnx_model.build(tmp_path / "tokens", words, of_tokens=True, labels=("LABEL_0", "LABEL_1"), tokens=512)
    answer = f"{TRUE} {FALSE}"
    (found,) = run(Opened(local(path)), sample(answer, passages=PASSAGES))
    good, bad = found.outcome.evidence
    assert bad["score"] == pytest.approx(1.0 / (1.0 + math.exp(8.0)), abs=1e-3)
    assert "1931" in bad["spans"][0]["text"]
    assert all(answer[one["start"] : one["end"]] == one["text"] for one in bad["spans"])
    assert good["score"] == pytest.approx(0.5), "unknown words say nothing"


def test_the_usual_labels_are_known_and_others_are_named(tmp_path):
    words = {"1931": (0.0, 0.0, -5.0)}
    labels = ("contradiction", "neutral", "entailment")
    path = onnx_model.build(tmp_path / "nli", words, labels=labels)
    (found,) = run(Opened(local(path)), sample(FALSE, passages=PASSAGES))
    assert found.outcome.value == pytest.approx(math.exp(-5) / (2 + math.exp(-5)), rel=1e-3)
    (other,) = run(Opened(local(path, label="neutral")), sample(FALSE, passages=PASSAGES))
    assert other.outcome.value == pytest.approx(1 / (2 + math.exp(-5)), rel=1e-3)
    assert found.version != other.version
    with pytest.raises(
        ConfigError, match=r"judge\.grounding\.label: no label 'fine'; the model has contradiction, neutral"
    ):
        Opened(local(path, label="fine"))
    strange = onnx_model.build(tmp_path / "strange", {"1931": (1.0, 0.0, 0.0)}, labels=("a", "b", "c"))
    with pytest.raises(ConfigError, match=r"judge\.grounding\.label: which of a, b, c means supported"):
        Opened(local(strange))


def test_one_label_is_a_logit(tmp_path):
    path = onnx_model.build(tmp_path / "one", {"1931": (-2.0,)}, labels=("score",))
    (found,) = run(Opened(local(path)), sample(FALSE, passages=PASSAGES))
    assert found.outcome.value == pytest.approx(1 / (1 + math.exp(2)), rel=1e-3)


@pytest.mark.parametrize("of_tokens", [False, True])
def test_a_document_that_is_too_long_is_cut_and_not_truncated(tmp_path, of_tokens):
    words = {"1931": (3.0, -3.0), "mill": (-1.0, 1.0)}
    tokens = 120 if of_tokens else 64
    path = onnx_model.build(tmp_path / "short", words, of_tokens=of_tokens, tokens=tokens)
    passages = ("word " * 80, "The mill was built in 1907.")
    (found,) = run(Opened(local(path)), sample(TRUE, passages=passages))
    assert isinstance(found.outcome, Score), found.outcome
    if not of_tokens:
        assert found.outcome.value == pytest.approx(pair_chance(2, 0), abs=1e-3), "the half with the mill counts"
    (lost,) = run(Opened(local(path)), sample(f"{ALSO_TRUE[:-1]} {'and more ' * 200}.", passages=passages))
    assert lost.outcome == Failed("context_overflow", lost.outcome.detail)


def test_what_is_missing_is_named_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match=r"path: .* contains no model\.onnx, tokenizer\.json, config\.json"):
        Opened(local(str(tmp_path)))
    path = onnx_model.build(tmp_path / "m", WORDS)
    (Path(path) / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"judge\.grounding\.path: .*config\.json"):
        Opened(local(path))
    (Path(path) / "config.json").write_text(json.dumps({"id2label": {"a": "b"}}))
    with pytest.raises(ConfigError, match="id2label"):
        Opened(local(path))


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
async def test_a_file_that_is_no_model_fails_its_scores_and_nothing_else(tmp_path, name, caplog):
    path = onnx_model.build(tmp_path / "broken", WORDS)
    original = (Path(path) / name).read_bytes()
    (Path(path) / name).write_bytes(original[: len(original) // 2])
    with pytest.raises(ConfigError, match=rf"judge\.grounding\.path: .*{name} cannot be loaded; .*export the model"):
        check(Config(judge=Judge(grounding=local(path))))
    opened = Opened(local(path))

    (first,) = await opened.scores(sample(passages=PASSAGES))
    (Path(path) / name).write_bytes(original)
    (again,) = await opened.scores(sample(passages=PASSAGES, id="2"))
    await opened.verifier.aclose()
    found = first
    (line,) = [one.getMessage() for one in caplog.records if "failed" in one.getMessage()]
    assert f"{name} cannot be loaded" in line
    assert "base_url" not in line
    assert again.outcome == found.outcome, "it is read once"
    assert isinstance(found.outcome, Failed)
    assert found.outcome.error == "bad_request"
    assert name in found.outcome.detail


def test_a_model_that_answers_with_another_shape_or_with_nan_gives_no_score(tmp_path):
    path = onnx_model.build(tmp_path / "nan", {"1931": (float("nan"), 0.0)})
    (found,) = run(Opened(local(path, max_retries=0)), sample(FALSE, passages=PASSAGES))
    assert found.outcome.error == "unreadable"
    assert "NaN or infinite" in found.outcome.detail
    (Path(path) / "config.json").write_text(
        json.dumps({"architectures": ["TinyForSequenceClassification"], "id2label": {"0": "no", "1": "x", "2": "yes"}})
    )
    (found,) = run(Opened(local(path, label="yes", max_retries=0)), sample(TRUE, passages=PASSAGES))
    assert found.outcome == Failed("bad_request", "model.onnx gives 2 values per text and config.json names 3 labels")
    with pytest.raises(ConfigError, match="names 3 labels"):
        check(Config(judge=Judge(grounding=local(path, label="yes"))))


def test_an_input_that_cannot_be_given_is_named(tmp_path, caplog):
    path = onnx_model.build(tmp_path / "positions", WORDS)
    file = Path(path) / "model.onnx"
    file.write_bytes(file.read_bytes().replace(b"attention_mask", b"position_scale"))
    with pytest.raises(ConfigError, match=r"model\.onnx needs the input position_scale; only input_ids"):
        check(Config(judge=Judge(grounding=local(path))))
    (found,) = run(Opened(local(path)), sample(TRUE, passages=PASSAGES))
    assert "position_scale" in found.outcome.detail
    (line,) = [one.getMessage() for one in caplog.records]
    assert "model.onnx needs the input position_scale" in line


@pytest.mark.parametrize("of_tokens", [False, True])
@pytest.mark.parametrize(
    ("labels", "supported"),
    [
        (("hallucinated", "supported"), 1),
        (("supported", "hallucinated"), 0),
        (("hallucinated", "fine"), 1),
        (("fine", "Hallucinated"), 0),
    ],
)
def test_a_usual_name_on_either_side_says_which_label_means_supported(tmp_path, of_tokens, labels, supported):
    weights = [0.0, 0.0]
    weights[supported] = -4.0
    path = onnx_model.build(tmp_path / "m", {"1931": weights}, labels=labels, of_tokens=of_tokens, tokens=512)
    (found,) = run(Opened(local(path)), sample(FALSE, passages=PASSAGES))
    assert found.outcome.value == pytest.approx(1 / (1 + math.exp(4)), rel=1e-3)


@pytest.mark.parametrize("of_tokens", [False, True])
def test_of_two_unknown_labels_none_is_guessed(tmp_path, of_tokens):
    path = onnx_model.build(tmp_path / "m", WORDS, labels=("foo", "bar"), of_tokens=of_tokens)
    with pytest.raises(ConfigError, match=r"judge\.grounding\.label: which of foo, bar means supported\?"):
        Opened(local(path))


def test_a_config_that_ends_too_early_is_named(tmp_path):
    path = onnx_model.build(tmp_path / "m", WORDS)
    (Path(path) / "config.json").write_text('{"id2label": {')
    with pytest.raises(ConfigError, match=r"config\.json is not valid JSON \(it ends too early\)"):
        Opened(local(path))


def test_nothing_is_loaded_before_the_first_answer(tmp_path):
    path = onnx_model.build(tmp_path / "lazy", WORDS)
    (Path(path) / "model.onnx").write_bytes(b"not a model")
    verifier = open_verifier(Judge(grounding=local(path)), Opened(local(path)).instruments)
    assert verifier.model == "lazy"
    asyncio.run(verifier.aclose())
