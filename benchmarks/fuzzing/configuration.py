"""Bytes as `gaugeway.toml`, read by both planes and built as `gaugeway check` does.

A file is fine or a ConfigError with a line for each problem, never anything else; none of the lines shows what came out
of the environment, unless it stands where no secret belongs.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from benchmarks.fuzzing.finding import expect
from gateway import config as gateway_config
from gaugeway.settings import ConfigError
from gaugeway.settings import loading as monitors_config
from monitors import app

SECRET = "q7Zk-wonderfully-hidden-31"
os.environ["FUZZ"] = SECRET  # noqa: TID251 - what `${FUZZ}` in a file stands for
FILE = Path(tempfile.mkdtemp(prefix="gaugeway-fuzz-")) / "gaugeway.toml"
atexit.register(shutil.rmtree, FILE.parent, ignore_errors=True)
SHOWN = ("ca_file", "host", "name", "extractors", "kind", "model", "base_url", "url", "pattern", "redact", "path")
"""Where a problem may show the value: none of these is a secret by itself."""
WORDS = [
    b"${FUZZ}",
    b"${file:/etc/hostname}",
    b"${",
    b"[gateway]\n",
    b"[[upstreams]]\n",
    b'base_url = "http://127.0.0.1:1"\n',
    b"[capture]\n",
    b"[[capture.templates]]\n",
    b'pattern = "(?P<contexts>.*)"\n',
    b'extractors = ["tools"]\n',
    b"[judge]\n",
    b'model = "m"\n',
    b"[embeddings]\n",
    b"[queue]\n",
    b"[store]\n",
    b'url = "redis://h:1/0"\n',
    b'url = "postgresql://u:p@h/d"\n',
    b"[metrics.faithfulness]\n",
    b'[metrics."geval:x"]\n',
    b'criteria = "c"\n',
    b"[metrics.lexical_groundedness]\n",
    b"enabled = true\n",
    b"rate = 0.5\n",
    b"[alerts]\n",
    b"[[alerts.rules]]\n",
    b'metric = "faithfulness"\n',
    b"slo = 0.8\n",
    b"[[notifiers]]\n",
    b'kind = "webhook"\n',
    b'kind = "email"\n',
    b'kind = "pagerduty"\nrouting_key = "k"\n',
    b"[[sinks]]\n",
    b'kind = "langfuse"\n',
    b"[telemetry]\n",
    b"[limits.apps.a]\n",
    b'[prices."m"]\n',
    b"[monitors]\n",
    b"[keys]\n",
    b"[cache]\n",
    b'apps = ["*"]\n',
    b"inf",
    b"nan",
    b"1e400",
    b"9223372036854775808",
    b"1979-05-27T07:32:00Z",
    b"'''",
    b"{ a = 1 }",
]
SEEDS = [
    b'[gateway]\nport = 8080\n[[upstreams]]\nbase_url = "http://127.0.0.1:1"\napi_key = "${FUZZ}"\n',
    (
        b'[[upstreams]]\nbase_url = "http://127.0.0.1:1"\n[judge]\nmodel = "m"\napi_key = "${FUZZ}"\n'
        b"[metrics.faithfulness]\nrate = 0.1\n"
    ),
    (
        b'[[notifiers]]\nkind = "webhook"\nurl = "http://127.0.0.1:1/${FUZZ}"\nsecret = "${FUZZ}"\n'
        b'[[sinks]]\nkind = "phoenix"\nurl = "http://127.0.0.1:1"\n'
    ),
    b'[queue]\nurl = "redis://127.0.0.1:1/0"\n[store]\nurl = "postgresql://u:${FUZZ}@127.0.0.1/d"\n',
    b'[[capture.templates]]\nname = "t"\npattern = "Facts: (?P<contexts>.*)"\n[capture]\nredact = ["email"]\n',
    b'[alerts]\nbucket_s = 60\nslices = ["app"]\n[[alerts.rules]]\nmetric = "faithfulness"\nslo = 0.85\n',
    b'[metrics."geval:tone"]\ncriteria = "polite"\nscale = [1, 5]\n[metrics."precision@5"]\n[metrics.mrr]\n',
    b'gateway = 1\nupstreams = "x"\nmonitors = []\nmetrics = { faithfulness = 1 }\n',
    b'[limits.apps.a]\nrequests_per_minute = 5\n[prices."gpt-*"]\ninput = 1.0\n[cache]\napps = ["a"]\n[keys]\n',
]
OPTIONS = {"gateway": {"port": 1}, "monitors": {"port": 2}}


def one(data: bytes) -> None:
    """What the fuzzer calls."""
    FILE.write_bytes(data)
    upstream = "http://127.0.0.1:1" if len(data) % 2 else None
    whole = _read(lambda: gateway_config.load(FILE, OPTIONS if len(data) % 3 else None, upstream))
    shared = _read(
        lambda: monitors_config.load(
            FILE, {"monitors": {"port": 9 if len(data) % 3 else None}, "gateway": {"host": "h"}}
        )
    )
    for config in (whole, shared):
        if config is not None and not _loads_code(config):
            _read(lambda config=config: app.check(config))


def _read(load):
    try:
        return load()
    except ConfigError as error:
        expect(error.problems, "an error without a problem")
        for problem in error.problems:
            key, _, message = problem.partition(":")
            expect(key and message.strip(), f"a problem without a key or a text: {problem!r}")
            shown = any(key.rpartition(".")[2].startswith(name) for name in SHOWN)
            expect(shown or SECRET not in problem, f"a secret is shown: {problem!r}")
    return None


def _loads_code(config) -> bool:
    """Whether something in it is an import string: to call any function there is would be no test."""
    names = [one.kind for one in (*config.notifiers, *config.sinks)]
    names += [f"{name}{table.options}" for name, table in config.metrics.items()]
    return any(":" in name.replace("geval:", "").replace("': ", "") for name in names)
