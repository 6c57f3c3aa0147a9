"""Prompts learned by a running product: shared by its workers, there after a restart, ended by a person."""

import subprocess
import sys
import time

import httpx
import pytest

from tests.support import prompts
from tests.support.llm_server import LLMServer, Reply
from tests.support.postgres import postgres
from tests.support.product import product

CONFIG = '[[upstreams]]\nbase_url = "{upstream}"\n{more}'
LEARNS = 40
"""Requests after which each of two workers had enough."""


def ask(running, number):
    body = {"model": "m", "messages": [{"role": "user", "content": prompts.prompt(number)}]}
    headers = {"x-gaugeway-app": "shop"}
    with httpx.Client() as client:  # a connection of its own: any worker may get it
        assert client.post(f"{running.base_url}/chat/completions", json=body, headers=headers).status_code == 200


def command(running, *words):
    options = ["--config", running.data.parent / "gaugeway.toml", "--data-dir", running.data]
    line = [sys.executable, "-m", "gaugeway", "templates", *words, *options]
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout


def found(running, extractor):
    return running.value(running.admin, "gaugeway_context_extractions_total", extractor=extractor)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_what_is_learned_reaches_all_workers_lasts_and_ends_when_it_is_rejected(tmp_path, engine):
    more = "[gateway]\nworkers = 2\n"
    if engine == "postgresql":
        url = postgres().database()
        more += f'[store]\nurl = "{url}"\n[queue]\nurl = "{url}"\n'
    with LLMServer(Reply(content="Yes.")) as upstream:
        config = CONFIG.format(upstream=upstream.url, more=more)
        with product(tmp_path, config) as running:
            for number in range(LEARNS):
                ask(running, number)
            running.until(lambda: "learned" in command(running, "list"), 60, what="a template is kept")
        with product(tmp_path, config) as running:
            versions = [line.split()[1] for line in command(running, "list").splitlines()[1:]]
            ask(running, 500)
            running.until(lambda: found(running, "learned") == 1, 60, what="the first request is read with it")
            for version in versions:
                assert f"{version} of shop is rejected" in command(running, "reject", "shop", version)
            number = 501
            deadline = time.monotonic() + 60
            while not found(running, "none"):  # as soon as a worker has heard of it
                assert time.monotonic() < deadline, "it is still used"
                ask(running, number)
                number += 1
                time.sleep(0.1)
