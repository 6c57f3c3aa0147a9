"""Puts each peer into its own environment under `.peers/`, and says which version is there or why none is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import installing

HERE = Path(__file__).resolve().parent
PEERS = HERE / ".peers"
FAILURE = "install-failure.txt"

PYTHON = {
    "litellm": ("litellm", ("litellm[proxy]>=1.106,<1.110", "prometheus-client")),
    "mlflow": ("mlflow", ("mlflow[gateway]>=3.17,<3.18",)),
    "tensorzero": ("tensorzero", ("tensorzero==2026.6.0",)),
    "sglang": ("sglang-router", ("sglang-router==0.3.2",)),
}
PORTKEY = {
    "private": True,
    "dependencies": {"@portkey-ai/gateway": "1.15.2"},
    # Without these every stream is a 500 on Node 20.
    "overrides": {"@hono/node-server": "1.13.5", "hono": "4.9.7"},
}
NAMES = ("nginx", "litellm", "portkey", "mlflow", "tensorzero", "sglang")


def install(name: str) -> str | None:
    """Install one peer at low priority; return why that failed, or None. What is there already stays."""
    home = PEERS / name
    failure = home / FAILURE
    failure.unlink(missing_ok=True)
    if version(name) is not None:
        return None
    reason = installing.run(home, _steps(name, home))
    if reason is None:
        (home / installing.DONE).touch()
        if version(name) is None:
            reason = "installed, but its files are not where they should be"
    if reason is not None:
        failure.write_text(reason + "\n")
    return reason


def _steps(name: str, home: Path) -> list[list[str]]:
    if name == "nginx":
        return [["apt-get", "download", "nginx"], ["sh", "-c", "dpkg-deb -x nginx_*.deb ."]]
    if name == "portkey":
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_text(json.dumps(PORTKEY, indent=1))
        return [["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]]
    return installing.steps(home, PYTHON[name][1])


def version(name: str) -> str | None:
    """The version that is installed, or None."""
    if name == "nginx":
        binary = nginx()
        if binary is None:
            return None
        words = subprocess.run([binary, "-v"], capture_output=True, text=True, check=False).stderr.split("/")
        return words[-1].strip() if len(words) > 1 else None
    if not installing.is_there(PEERS / name):
        return None
    if name == "portkey":
        manifest = PEERS / "portkey/node_modules/@portkey-ai/gateway/package.json"
        started = manifest.parent / "build/start-server.js"
        return json.loads(manifest.read_text())["version"] if started.is_file() else None
    return installing.version(PEERS / name, PYTHON[name][0])


def nginx() -> str | None:
    """The nginx to run: the machine's own, or the one unpacked here."""
    return shutil.which("nginx") or shutil.which("nginx", path=f"/usr/sbin:{PEERS / 'nginx/usr/sbin'}")


def missing_reason(name: str) -> str:
    """Why a peer is not there."""
    failure = PEERS / name / FAILURE
    return failure.read_text().strip() if failure.is_file() else "not installed (peers.py install)"


def main(names: list[str]) -> int:
    """Install these, one at a time; a failure is told and recorded, and the others go on."""

    def attempt(name: str) -> str:
        reason = install(name)
        return str(version(name)) if reason is None else f"MISSING: {reason}"

    installing.each(names, attempt)
    return 0
