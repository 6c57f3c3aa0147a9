"""The TypeScript client, made as `make typescript` makes it, and its own tests in node on a running monitors' API."""

import asyncio
import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.support.incidents import incident
from tests.support.pages import world
from tools.client_types import brief, openapi

ROOT = Path(__file__).parents[2]
HERE = ROOT / "clients" / "typescript"
MADE = ("node_modules", "dist", "built", "openapi.json", "schema.d.ts")
TOKEN = "of-the-page-4711-4711-4711"


@pytest.fixture
def npm():
    """The program npm; where it is missing the test is skipped, but not where everything must be there."""
    if shutil.which("node") is None or (found := shutil.which("npm")) is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no node and npm")  # noqa: TID251
    return found


async def run(directory, *command, **variables):
    """Run a command to its end; return its output."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env={**os.environ, **variables},  # noqa: TID251 - a test's own process
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()[-4000:]
    return output.decode()


@pytest.mark.full
async def test_it_is_generated_compiled_and_asks_a_running_api(tmp_path, npm):
    client = tmp_path / "client"
    shutil.copytree(HERE, client, ignore=shutil.ignore_patterns(*MADE))
    (client / "openapi.json").write_text(json.dumps(brief(openapi())))
    await run(client, npm, "ci", "--no-fund", "--no-audit", "--prefer-offline")
    await run(client, npm, "run", "generate")
    await run(client, npm, "run", "build")
    async with world(tmp_path, token=TOKEN) as w:
        await incident(w)
        variables = {"GAUGEWAY_URL": f"http://127.0.0.1:{w.port}", "GAUGEWAY_MONITORS_TOKEN": TOKEN}
        output = await run(client, npm, "test", **variables)
    assert "# fail 0" in output
    assert "# pass 8" in output
    (packed,) = json.loads(await run(client, npm, "pack", "--dry-run", "--json", "--ignore-scripts"))
    files = {file["path"] for file in packed["files"]}
    assert files == {"README.md", "dist/index.d.ts", "dist/index.js", "dist/schema.d.ts", "package.json"}
    assert packed["unpackedSize"] < 200_000


def test_it_has_the_version_and_the_licence_of_the_product():
    package = json.loads((HERE / "package.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (package["version"], package["license"]) == (project["version"], project["license"])


def test_what_is_generated_is_not_in_git():
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {"node_modules/", "clients/typescript/src/schema.d.ts", "clients/typescript/openapi.json"} <= {*ignored}
