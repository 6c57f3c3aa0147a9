"""The provider of an upstream as `gen_ai.provider.name` names it, guessed from its address.

The names are the well-known values of OpenTelemetry's GenAI conventions (semantic-conventions-genai, registry).
"""

from __future__ import annotations

from gateway.http.url import Target

_AZURE_OPENAI, _AZURE_INFERENCE = "azure.ai.openai", "azure.ai.inference"
_HOSTS = {
    "openai.com": "openai",
    "openai.azure.com": _AZURE_OPENAI,
    "cognitiveservices.azure.com": _AZURE_OPENAI,
    "services.ai.azure.com": _AZURE_OPENAI,
    "models.ai.azure.com": _AZURE_INFERENCE,
    "inference.ai.azure.com": _AZURE_INFERENCE,
    "anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "deepseek.com": "deepseek",
    "x.ai": "x_ai",
    "perplexity.ai": "perplexity",
    "cohere.com": "cohere",
    "cohere.ai": "cohere",
    "moonshot.ai": "moonshot_ai",
    "moonshot.cn": "moonshot_ai",
    "ml.cloud.ibm.com": "ibm.watsonx.ai",
}
"""Domain -> provider, for the domain itself and every host below it."""


def provider_of(target: Target) -> str | None:
    """Return the provider of a host that is known, else None: a proxy, or a server of one's own.

    >>> provider_of(Target.parse("https://shop.openai.azure.com/openai/v1"))
    'azure.ai.openai'
    >>> provider_of(Target.parse("https://shop.services.ai.azure.com/models"))
    'azure.ai.inference'
    >>> provider_of(Target.parse("https://us-central1-aiplatform.googleapis.com/v1"))
    'gcp.vertex_ai'
    >>> provider_of(Target.parse("http://notopenai.com/v1"))
    """
    host = target.host.lower().rstrip(".")
    if host.endswith(".amazonaws.com") and host.startswith("bedrock"):
        return "aws.bedrock"
    if host.endswith("-aiplatform.googleapis.com"):  # the region is part of the label
        return "gcp.vertex_ai"
    found = next((name for domain, name in _HOSTS.items() if host == domain or host.endswith(f".{domain}")), None)
    if host.endswith("services.ai.azure.com") and target.path.startswith("/models"):
        return _AZURE_INFERENCE
    return found
