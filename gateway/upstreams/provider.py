"""The provider of an upstream as `gen_ai.provider.name` names it, guessed from its address.

The names are the well-known values of OpenTelemetry's GenAI conventions (semantic-conventions-genai, registry).
"""

from __future__ import annotations

from gateway.http.url import Target
from gaugeway.data_files import table

_AZURE_OPENAI, _AZURE_INFERENCE = "azure.ai.openai", "azure.ai.inference"
_HOSTS: dict[str, str] = table("gateway.upstreams", "providers.toml")["domains"]
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
