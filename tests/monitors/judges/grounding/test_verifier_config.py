"""Which keys of `[judge.grounding]` go together; each mistake names its key."""

from __future__ import annotations

import pytest

from gaugeway.settings import ConfigError
from gaugeway.settings.loading import load

CHAT = 'kind = "minicheck"\nbase_url = "http://127.0.0.1:8000/v1"\nmodel = "m"'
PAIRS = 'kind = "classify"\nbase_url = "http://127.0.0.1:8080"'
VLLM = f'{PAIRS}\napi = "classify"\nmodel = "m"\ntemplate = "{{document}} {{claim}}"'


def read(tmp_path, text):
    path = tmp_path / "gaugeway.toml"
    path.write_text(f"[judge.grounding]\n{text}\n")
    return load(path).judge.grounding


def test_each_kind_is_taken_with_its_defaults(tmp_path):
    assert (read(tmp_path, CHAT).spoken, read(tmp_path, CHAT).document_chars) == ("chat", 60_000)
    assert (read(tmp_path, PAIRS).spoken, read(tmp_path, PAIRS).document_chars) == ("predict", 6_000)
    assert read(tmp_path, VLLM).spoken == "classify"
    spans = read(tmp_path, 'kind = "lettucedetect"\napi = "spans"\nbase_url = "http://h"')
    assert (spans.spoken, spans.document_chars) == ("spans", 12_000)
    assert read(tmp_path, 'kind = "onnx"\npath = "/models/m"').spoken is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('kind = "bert"', "judge.grounding.kind"),
        ('kind = "minicheck"\nmodel = "m"', "judge.grounding.base_url: needed"),
        ('kind = "minicheck"\nbase_url = "http://h/v1"', "judge.grounding.model: needed"),
        (f'{CHAT}\napi = "predict"', 'judge.grounding.api: must be "chat" for kind = "minicheck"'),
        (CHAT.replace("/v1", "/v1/chat/completions"), "judge.grounding.base_url: ends in /chat/completions"),
        (CHAT.replace("http://127.0.0.1:8000", "https://api.openai.com"), "judge.grounding.api_key: missing"),
        (f'{CHAT}\ntemplate = "{{document}} {{claim}}"', "judge.grounding.template: only"),
        (f'{CHAT}\nlabel = "yes"', "judge.grounding.label: only classifiers"),
        (f'{CHAT}\npath = "/models/m"', "judge.grounding.path: only"),
        (VLLM.replace("{claim}", ""), "judge.grounding.template: must contain {document} and {claim} exactly once"),
        (f'{PAIRS}\napi = "classify"\nmodel = "m"', "judge.grounding.template: needed"),
        (f'{VLLM}\nlabel = "entailment"', 'judge.grounding.label: must be a class index such as "1"'),
        ('kind = "onnx"', "judge.grounding.path: needed"),
        ('kind = "onnx"\npath = "/m"\napi = "chat"', 'judge.grounding.api: not allowed for kind = "onnx"'),
        ('kind = "onnx"\npath = "/m"\nbase_url = "http://h"', "judge.grounding.base_url: not allowed with"),
        (f'{PAIRS}\napi = "chat"', 'judge.grounding.api: must be "predict" or "classify" for kind = "classify"'),
        (f"{CHAT}\nthreads = 4", "judge.grounding.threads: only"),
        (f"{PAIRS}\nbatch_size = 0", "judge.grounding.batch_size"),
        (f"{PAIRS}\nmax_document_chars = 10", "judge.grounding.max_document_chars"),
        (f"{PAIRS}\nleast = 2.0", "judge.grounding.least"),
        (f'{PAIRS}\nmodle = "m"', "judge.grounding.modle"),
    ],
)
def test_a_mistake_names_its_key(tmp_path, text, problem):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert any(one.startswith(problem) for one in caught.value.problems), caught.value.problems
