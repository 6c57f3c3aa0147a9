"""What the product computes from fixed input, as golden files: `stored/KIND.json`, a name with its value on each line.

    python -m tests.golden.record            # rewrites all of them
    python -m tests.golden.record causes     # this one
    python -m tests.golden.record --show causes    # prints it
    python -m tests.golden.record --whole causes   # with the texts that are hashed

Every kind is a module with a function `fresh`. It runs in a process of its own, whose clock stands still.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import secrets
import subprocess
import sys
import time
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
KINDS = ("samples", "causes", "alarms", "estimates", "api", "scrape")
NOW = 1_790_000_040.0
"""The time in the process that computes: Unix time, seconds."""
DIGITS = 9
LONGEST = 64
"""Characters of a text that is stored; of longer ones there is a hash."""


def stored(kind):
    return Path(__file__).parent / "stored" / f"{kind}.json"


def fixed():
    """Let the clock stand still, and nothing be drawn at random; before the product is imported, which binds both."""
    time.time = lambda: NOW
    time.time_ns = lambda: int(NOW) * 10**9
    secrets.randbits = lambda bits: 2**bits // 3


def plain(value):
    """A value as JSON has it: numbers to nine digits, so that the order of a sum does not count."""
    value = msgspec.to_builtins(value, str_keys=True)
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    return value


def brief(value):
    """A value of at most `LONGEST` characters, or else its hash and its length."""
    value = plain(value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if len(text) <= LONGEST:
        return value
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]} of {len(text)} characters"


def lines(values):
    """A line of each name with its value."""
    rows = [f"{json.dumps(name)}: {json.dumps(plain(values[name]), sort_keys=True)}" for name in values]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def computed(kind):
    """The text of the golden file as it would be now."""
    command = [sys.executable, "-m", "tests.golden.record", "--show", kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{kind} cannot be computed:\n{done.stderr[-4000:]}")
    return done.stdout


def main(arguments):
    if arguments[:1] in (["--show"], ["--whole"]):
        fixed()
        module = importlib.import_module(f"tests.golden.{arguments[1]}")
        if arguments[0] == "--whole":
            sys.modules["tests.golden.record"].LONGEST = sys.maxsize
        sys.stdout.write(lines(module.fresh()))
        return
    for kind in arguments or KINDS:
        stored(kind).parent.mkdir(exist_ok=True)
        stored(kind).write_text(computed(kind), "utf-8")
        print(f"{stored(kind).relative_to(ROOT)}: {stored(kind).stat().st_size:,} bytes")  # noqa: T201 - the result


if __name__ == "__main__":
    main(sys.argv[1:])
