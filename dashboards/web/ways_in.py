"""The three ways to run Gaugeway, as the README and the page show them; a test compares the two."""

from __future__ import annotations

from typing import NamedTuple


class Way(NamedTuple):
    """A way to run Gaugeway: its heading, the commands, which are run in a checkout of the repository, and a note."""

    name: str
    commands: str
    note: str


_SERVE = "gaugeway serve --upstream https://api.openai.com/v1 --judge gpt-6-luna"
WAYS = (
    Way(
        "Python 3.11",
        f"pip install .\nexport OPENAI_API_KEY=...\n{_SERVE}",
        "pipx install . does the same in an environment of its own; uvx --from . gaugeway serve ... installs nothing.",
    ),
    Way(
        "Docker",
        "docker build --tag gaugeway .\n"
        "export GAUGEWAY_MONITORS_TOKEN=$(openssl rand -hex 32)\n"
        "docker run -p 127.0.0.1:8080:8080 -p 127.0.0.1:9465:9465 -v gaugeway-data:/data -e OPENAI_API_KEY"
        f" -e GAUGEWAY_MONITORS_TOKEN -e GAUGEWAY_MONITORS_HOST=0.0.0.0 {_SERVE}",
        "The page asks for GAUGEWAY_MONITORS_TOKEN once.",
    ),
    Way(
        "Kubernetes",
        "kubectl create namespace gaugeway\n"
        "kubectl -n gaugeway create secret generic gaugeway --from-literal=GAUGEWAY_ADMIN_TOKEN=$(openssl rand -hex 32)"
        " --from-literal=GAUGEWAY_MONITORS_TOKEN=$(openssl rand -hex 32)\n"
        "kubectl apply --kustomize deploy/kubernetes/single\n"
        "kubectl -n gaugeway port-forward service/gaugeway-monitors 9465",
        "First name your image in deploy/kubernetes/single/kustomization.yaml, upstream and judge in its"
        " gaugeway.toml.",
    ),
)
