"""The provider that an upstream's address stands for."""

import pytest

from gateway.config import load
from gateway.http.url import Target
from gateway.upstreams.provider import provider_of
from gaugeway.settings import ConfigError


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://shop.openai.azure.com", "azure.ai.openai"),
        ("https://SHOP.openai.azure.com./openai/v1", "azure.ai.openai"),
        ("https://shop.cognitiveservices.azure.com/openai", "azure.ai.openai"),
        ("https://shop.services.ai.azure.com/openai/v1", "azure.ai.openai"),
        ("https://shop.services.ai.azure.com/models", "azure.ai.inference"),
        ("https://Mistral-large.eastus2.models.ai.azure.com/v1", "azure.ai.inference"),
        ("https://api.anthropic.com/v1", "anthropic"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gcp.gemini"),
        ("https://europe-west4-aiplatform.googleapis.com/v1", "gcp.vertex_ai"),
        ("https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1", "aws.bedrock"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://api.x.ai/v1", "x_ai"),
        ("https://s3.eu-central-1.amazonaws.com/v1", None),
        ("https://max.ai/v1", None),
        ("https://openai.azure.com.example.com/v1", None),
        ("http://127.0.0.1:8000/v1", None),
        ("http://vllm:8000/v1", None),
    ],
)
def test_known_hosts_have_the_well_known_names(base_url, provider):
    assert provider_of(Target.parse(base_url)) == provider


@pytest.mark.parametrize(
    ("given", "valid"), [("vllm", True), ("azure.ai.openai", True), ("My Provider", False), ("", False)]
)
def test_a_configured_provider_is_a_short_name(tmp_path, given, valid):
    path = tmp_path / "gaugeway.toml"
    path.write_text(f'[[upstreams]]\nbase_url = "http://127.0.0.1:8000/v1"\nprovider = "{given}"\n')
    if valid:
        assert load(path).upstreams[0].provider == given
    else:
        with pytest.raises(ConfigError, match=r"upstreams\[0\].provider: expected lower-case letters"):
            load(path)
