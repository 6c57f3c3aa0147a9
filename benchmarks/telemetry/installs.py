"""Puts each consumer of telemetry into its own environment under `.peers/`.

python benchmarks/telemetry/installs.py [NAME ...]     # phoenix, mlflow, langfuse; about 1.5 GB
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import installing

PEERS = Path(__file__).resolve().parent / ".peers"
PACKAGES = {
    "phoenix": ("arize-phoenix==20.26.1",),
    "mlflow": ("mlflow==3.17.2",),
    "langfuse": ("langfuse==5.0.4",),  # the client, which has the API's schema; the server needs four other services
}
NEWEST = {"mlflow": "mlflow==3.18.0"}
"""Installed over it without its requirements: the index lacks mlflow-skinny and mlflow-tracing 3.18, whose modules its
wheel contains as well."""


def binary(name: str, script: str) -> Path:
    """A command of one environment. Raises SystemExit when it is not there."""
    return installing.require(PEERS / name, f"bin/{script}")


def version(name: str) -> str:
    """The version of a consumer."""
    return NEWEST.get(name, PACKAGES[name][0]).partition("==")[2]


def install(name: str) -> str:
    """Install one environment, unless it is there; say what happened."""
    home = PEERS / name
    if installing.is_there(home):
        return "there already"
    pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    commands = [*installing.steps(home, PACKAGES[name]), *([[*pip, NEWEST[name]]] if name in NEWEST else [])]
    if (reason := installing.run(home, commands)) is not None:
        return f"MISSING: {reason}"
    (home / installing.DONE).touch()
    return "installed"


def main(names: list[str]) -> int:
    """Install these, one at a time."""
    return installing.each(names or list(PACKAGES), install)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
