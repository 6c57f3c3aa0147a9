"""Pydantic AI: an agent with a retrieval tool, over both APIs."""

from __future__ import annotations

import asyncio
from typing import Any

import rag
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


def _agent(run: rag.Run, kind: type[Any], *, joined: bool = False, stream: bool = False) -> None:
    found: list[rag.Document] = []

    async def ask(question: str) -> None:
        async with AsyncOpenAI(
            base_url=run.base_url, api_key="none", default_headers=run.headers, max_retries=0
        ) as client:
            agent = Agent(kind(rag.MODEL, provider=OpenAIProvider(openai_client=client)))

            @agent.tool_plain
            def search_handbook(query: str) -> list[dict[str, str]] | str:
                """Find what the handbook says about a question."""
                found[:] = rag.search(run.documents, query)
                if joined:
                    return "\n\n".join(f"# {one.id}\nDocumentation URL:{one.source}\n\n{one.text}\n" for one in found)
                return [{"id": one.id, "source": one.source, "text": one.text} for one in found]

            if stream:
                async with agent.run_stream(question) as result:
                    assert len([piece async for piece in result.stream_text(delta=True, debounce_by=None)]) > 1
            else:
                await agent.run(question)

    for question in rag.QUESTIONS:
        asyncio.run(ask(question))
        run.auxiliary()
        run.answer(question, [rag.Passage(one.text, None if joined else one.id, one.source) for one in found])


def explicit(run: rag.Run) -> None:
    """An app that searches before the run and hands its passages over with the calls."""

    async def ask(question: str) -> None:
        found = rag.search(run.documents, question)
        passages = [rag.Passage(one.text, one.id, one.source) for one in found]
        async with AsyncOpenAI(
            base_url=run.base_url, api_key="none", default_headers=run.headers, max_retries=0
        ) as client:
            agent = Agent(OpenAIChatModel(rag.MODEL, provider=OpenAIProvider(openai_client=client)))
            prompt = rag.OWN_PROMPT.format(notes="\n\n".join(one.text for one in found), question=question)
            await agent.run(prompt, model_settings={"extra_body": run.said(question, passages)})
        run.answer(question, passages)

    for question in rag.QUESTIONS:
        asyncio.run(ask(question))


MODES: dict[str, rag.Mode] = {
    "chat": lambda run: _agent(run, OpenAIChatModel),
    "chat-documentation": lambda run: _agent(run, OpenAIChatModel, joined=True),
    "responses": lambda run: _agent(run, OpenAIResponsesModel),
    "streaming": lambda run: _agent(run, OpenAIChatModel, stream=True),
    "explicit": explicit,
}

if __name__ == "__main__":
    rag.main(MODES)
