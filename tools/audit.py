"""Check the packages of `requirements.lock` for known vulnerabilities; unchecked packages are reported, not passed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

LOCK = Path(__file__).parents[1] / "requirements.lock"
FINE, FOUND, BROKEN = 0, 1, 2
_AWAY = re.compile(
    r"ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|NameResolution|Max retries exceeded|ServiceError"
    r"|HTTPError|timed out"
)
_SHOWN = 10


class Verdict(NamedTuple):
    """Lines to print and the exit status. `checked`: every package was looked up."""

    lines: list[str]
    status: int
    checked: bool


def verdict(status: int, output: str, complaints: str) -> Verdict:
    """Judge by what pip-audit said: its exit status alone calls a package that the service does not know fine."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, TypeError, KeyError):
        last = (complaints.strip().splitlines() or ["it said nothing"])[-1][:200]
        if _AWAY.search(complaints):
            return Verdict([f"advisories not checked: service unreachable ({last})"], FINE, checked=False)
        return Verdict([f"advisories not checked: pip-audit failed with {status}: {last}"], BROKEN, checked=False)
    skipped = sorted(one["name"] for one in packages if "skip_reason" in one)
    asked = len(packages) - len(skipped)
    lines = [
        f"{one['name']} {one['version']}: {known['id']}, mended in {', '.join(known['fix_versions']) or 'no release'}"
        for one in packages
        for known in one.get("vulns", ())
    ]
    found = FOUND if lines else FINE
    if asked or not skipped:
        lines.append(f"advisories checked: {asked} packages, {len(lines) or 'no'} known vulnerabilities")
    if skipped:
        more = f" and {len(skipped) - _SHOWN} more" if len(skipped) > _SHOWN else ""
        names = ", ".join(skipped[:_SHOWN]) + more
        lines.append(f"advisories not checked: the service does not know {len(skipped)} packages: {names}")
    return Verdict(lines, found, checked=bool(packages) and not skipped)


def ask(lock: Path, timeout_s: int) -> Verdict:
    """Ask about the versions in a lock file; nothing is installed or downloaded for it."""
    if importlib.util.find_spec("pip_audit") is None:
        return Verdict(["advisories not checked: pip-audit is not installed"], FINE, checked=False)
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--requirement", str(lock)]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", str(timeout_s)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours, no shell
    return verdict(done.returncode, done.stdout, done.stderr)


@click.command()
@click.option("--lock", type=click.Path(path_type=Path, exists=True), default=LOCK, help="The lock file.")
@click.option("--timeout-s", type=click.IntRange(1), default=15, show_default=True, help="For each connection.")
@click.option("--required", is_flag=True, help="What could not be checked is an error too.")
def main(lock: Path, timeout_s: int, required: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Exit 0: nothing known, or not checked (it says so); 1: known vulnerabilities, or not checked; 2: it failed."""
    verdict = ask(lock, timeout_s)
    for line in verdict.lines:
        click.echo(line)
    sys.exit(verdict.status or (FOUND if required and not verdict.checked else FINE))


if __name__ == "__main__":
    main()
