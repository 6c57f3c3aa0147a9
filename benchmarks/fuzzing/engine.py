"""One coverage-guided run of atheris on one reader; `run.py` starts it, and several one after the other.

    python benchmarks/fuzzing/engine.py streams --minutes 10

Ends with 0 when the time is over, with another code at the first finding (a broken promise, or an input that takes
longer than SLOWEST_S), whose input is left in `.peers/work/<target>/`. What earlier runs found (the corpus) is where
the next one begins.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.fuzzing import installs  # noqa: E402 - the path comes first
from benchmarks.fuzzing.finding import expect  # noqa: E402 - same

WORK = installs.PEERS / "work"
TARGETS = {
    "streams": ["gateway.http.sse", "gateway.proxy.stream_usage", "gaugeway.prompts.response_text"],
    "extractors": [
        "gaugeway.prompts",
        "gateway.capture.auxiliary_calls",
        "gateway.capture.fingerprints",
        "gateway.http.json_member",
        "gaugeway.prompts.response_text",
    ],
    "configuration": ["gateway.config", "gaugeway.settings.shared", "gaugeway.settings", "monitors.metrics.registry"],
    "answers": [
        "monitors.judges.structured_output",
        "monitors.judges.openai_client",
        "monitors.judges.structured_output",
        "monitors.metrics",
    ],
    "spans": ["monitors.api.otlp"],
}
"""Each reader, and the modules whose branches guide the search."""
SLOWEST_S = 1.0
"""Processor time for one input: what else the machine does is no finding."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--input", type=Path, help="run this one input again")
    parser.add_argument("--max-len", type=int, default=4096)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if not installs.find():
        sys.exit("atheris is not installed: python benchmarks/fuzzing/installs.py")
    import atheris  # noqa: PLC0415 - from an environment of its own

    with atheris.instrument_imports(include=TARGETS[options.target]) if not options.input else contextlib.nullcontext():
        target = importlib.import_module(f"benchmarks.fuzzing.{options.target}")

    def timed(data: bytes) -> None:
        began = time.process_time()
        target.one(data)
        expect(time.process_time() - began < SLOWEST_S, "takes too long")

    if options.input:
        timed(options.input.read_bytes())
        return
    for seed in target.SEEDS:
        target.one(seed)
    atheris.Setup([sys.argv[0], *_arguments(target, options)], timed)
    with open(os.devnull) as nothing:  # noqa: PTH123 - not to be read from, whatever an input names
        os.dup2(nothing.fileno(), 0)
    print(f"{options.target}: {options.minutes:g} min from", time.strftime("%H:%M:%S"), flush=True)
    atheris.Fuzz()


def _arguments(target, options) -> list[str]:
    home = WORK / options.target
    corpus = home / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.SEEDS):
        (corpus / f"seed-{number}").write_bytes(seed)
    dictionary = home / "words"
    entries = ["".join(rf"\x{byte:02x}" for byte in word) for word in target.WORDS]
    dictionary.write_text("".join(f'"{entry}"\n' for entry in entries))
    return [
        str(corpus),
        f"-max_total_time={round(options.minutes * 60)}",
        f"-max_len={options.max_len}",
        f"-dict={dictionary}",
        f"-artifact_prefix={home}/",
        "-timeout=60",  # seconds, of the clock: one that never ends
        "-rss_limit_mb=1500",
        "-print_final_stats=1",
    ]


if __name__ == "__main__":
    main()
