"""The how-to pages of the frameworks: their code runs as it stands, against a live gateway."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.frameworks import environment, model
from tests.support.llm_server import LLMServer
from tests.support.running import running_gateway

PAGES = Path(__file__).parents[2] / "docs/how-to/frameworks"
THERE = "http://127.0.0.1:8080/v1"
PAGE_OF = {name: PAGES / f"{name.replace('_', '-')}.md" for name in environment.FRAMEWORKS}


def code_of(page):
    return "\n\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL))


async def samples_of(python, code):
    settings = os.environ | {"OPENAI_API_KEY": "none"} | {"OPENAI_AGENTS_DISABLE_TRACING": "1"}  # noqa: TID251 - a child's
    with LLMServer(model.answer) as upstream:
        async with running_gateway(upstream.url) as gateway:
            here = code.replace(THERE, f"http://127.0.0.1:{gateway.port}/v1")
            command = [python, "-c", here]
            await asyncio.to_thread(subprocess.run, command, check=True, timeout=120, env=settings, capture_output=True)
            return await gateway.samples(len(upstream.requests))


@pytest.mark.parametrize("framework", environment.FRAMEWORKS)
def test_the_page_hands_its_passages_over(framework):
    code = code_of(PAGE_OF[framework])
    assert code.count(THERE) == 1
    strict = os.environ.get("CI") == "true"  # noqa: TID251 - a test's own switch
    python = environment.require(framework, strict=strict)
    samples = asyncio.run(samples_of(python, code))
    judged = [one for one in samples if one.skip_reason is None]
    assert judged
    assert all(one.question == "How often do I descale?" for one in judged)
    assert all("Descale every two months." in [passage.text for passage in one.contexts] for one in judged)


@pytest.mark.parametrize("framework", ["openai_agents", "pydantic_ai"])
def test_the_tool_of_the_page_is_read(framework):
    strict = os.environ.get("CI") == "true"  # noqa: TID251 - a test's own switch
    python = environment.require(framework, strict=strict)
    samples = asyncio.run(samples_of(python, code_of(PAGE_OF[framework])))
    found = {one.context_source: [passage.id for passage in one.contexts] for one in samples if one.skip_reason is None}
    assert len(found) == 2, "one answer with a tool's passages, one with explicit ones"
    assert all(ids == ["d1", "d2"] for ids in found.values())
