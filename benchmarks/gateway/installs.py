"""Puts each peer into its own environment under `.peers/`, and says which version is there or why none is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE / ".peers"
FAILURE = "install-failure.txt"
DONE = "installed"  # written last: an install that was interrupted does not count
TIMEOUT_S = 1500

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
    home.mkdir(parents=True, exist_ok=True)
    failure = home / FAILURE
    failure.unlink(missing_ok=True)
    if version(name) is not None:
        return None
    reason = _attempt(name, home)
    if reason is None:
        (home / DONE).touch()
        if version(name) is None:
            reason = "installed, but its files are not where they should be"
    if reason is not None:
        failure.write_text(reason + "\n")
    return reason


def _attempt(name: str, home: Path) -> str | None:
    steps = []
    if name == "nginx":
        steps = [["apt-get", "download", "nginx"], ["sh", "-c", "dpkg-deb -x nginx_*.deb ."]]
    elif name == "portkey":
        (home / "package.json").write_text(json.dumps(PORTKEY, indent=1))
        steps = [["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]]
    else:
        pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        steps = [[sys.executable, "-m", "venv", "--clear", str(home)], [*pip, *PYTHON[name][1]]]
    for step in steps:
        tool = shutil.which(step[0])
        if tool is None:
            return f"{step[0]} is not on this machine"
        try:
            done = subprocess.run(
                ["nice", "-n", "10", *step], cwd=home, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{' '.join(step)[:120]}: not done after {TIMEOUT_S} s"
        if done.returncode:
            tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
            return f"{' '.join(step)[:120]}: exit {done.returncode}: {' / '.join(tail)[:600]}"
    return None


def version(name: str) -> str | None:
    """The version that is installed, or None."""
    if name == "nginx":
        binary = nginx()
        if binary is None:
            return None
        words = subprocess.run([binary, "-v"], capture_output=True, text=True, check=False).stderr.split("/")
        return words[-1].strip() if len(words) > 1 else None
    if not (PEERS / name / DONE).is_file():
        return None
    if name == "portkey":
        manifest = PEERS / "portkey/node_modules/@portkey-ai/gateway/package.json"
        started = manifest.parent / "build/start-server.js"
        return json.loads(manifest.read_text())["version"] if started.is_file() else None
    package = PYTHON[name][0].replace("-", "_")
    found = sorted((PEERS / name).glob(f"lib/python*/site-packages/{package}-*.dist-info"))
    return found[0].name.removeprefix(f"{package}-").removesuffix(".dist-info") if found else None


def nginx() -> str | None:
    """The nginx to run: the machine's own, or the one unpacked here."""
    return shutil.which("nginx") or shutil.which("nginx", path=f"/usr/sbin:{PEERS / 'nginx/usr/sbin'}")


def missing_reason(name: str) -> str:
    """Why a peer is not there."""
    failure = PEERS / name / FAILURE
    return failure.read_text().strip() if failure.is_file() else "not installed (peers.py install)"


def main(names: list[str]) -> int:
    """Install these, one at a time; a failure is told and recorded, and the others go on."""
    for name in names:
        begun = time.monotonic()
        reason = install(name)
        outcome = version(name) if reason is None else f"MISSING: {reason}"
        print(f"{name:<12} {outcome}  ({time.monotonic() - begun:.0f} s)", flush=True)
    return 0
