"""Each extra by itself: what one needs must not be needed by another, and what is missing is named with its extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

PACKAGES = {
    "clickhouse": "clickhouse_connect",
    "datasets": "pyarrow",
    "email": "aiosmtplib",
    "local": "fastembed",
    "mcp": "mcp",
    "otlp": "opentelemetry.exporter",
    "postgres": "asyncpg",
    "redis": "redis",
}
"""What each extra installs."""

USES = {
    "clickhouse": "stores.from_url('clickhouse://default:@127.0.0.1:8123/db')",
    "datasets": "__import__('pyarrow')",
    "email": "__import__('monitors.alerting.notifiers.email')",
    "local": "__import__('monitors.metrics.embeddings.local')",
    "mcp": "__import__('gaugeway.mcp.serving')",
    "otlp": "(__import__('gaugeway.runtime.otlp_exporters'), __import__('monitors.api.otlp.receiver'))",
    "postgres": """(
        stores.from_url('postgresql://h/db'), queues.from_url('postgresql://h/db', 1.0, 1),
        keys.open_keys('postgresql://h/db', pathlib.Path()), documents.open_limits('postgresql://h/db'),
        __import__('gaugeway.storage.engines.postgres.leader'),
    )""",
    "redis": "(queues.from_url('redis://h', 1.0, 1), documents.open_limits('redis://h'))",
}

PROGRAM = """
import pathlib, sys

blocked = {blocked!r}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in blocked):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
import gateway.app, gaugeway.cli.main, monitors.app
from gaugeway.storage import documents, keys, queues, stores

stores.from_url("sqlite:////tmp/never-opened.db")
queues.from_url("sqlite:////tmp/never-opened.db", 1.0, 1)
{use}
"""


def run(blocked, use):
    program = PROGRAM.format(blocked=sorted(blocked), use=use)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("extra", [*USES, ""])
def test_an_extra_alone_is_enough_for_what_it_is_for(extra):
    blocked = {package for name, package in PACKAGES.items() if name != extra}
    done = run(blocked, USES.get(extra, ""))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("extra", ["clickhouse", "postgres", "redis"])
def test_an_engine_whose_extra_is_missing_names_it(extra):
    url = {"clickhouse": "clickhouse://h/db", "postgres": "postgresql://h/db", "redis": "redis://h"}[extra]
    opening = f"queues.from_url({url!r}, 1.0, 1)" if extra == "redis" else f"stores.from_url({url!r})"
    done = run({PACKAGES[extra]}, opening)
    assert done.returncode == 1
    assert f"pip install 'gaugeway[{extra}]'" in done.stderr.splitlines()[-1]


def test_the_command_for_agents_names_its_extra():
    done = run({PACKAGES["mcp"]}, "gaugeway.cli.main.main(['mcp'])")
    assert done.returncode == 2
    assert done.stderr.endswith("gaugeway mcp needs: pip install 'gaugeway[mcp]'\n")
