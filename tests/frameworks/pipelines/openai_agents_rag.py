"""OpenAI Agents SDK: an agent with a function tool that retrieves, over both APIs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import rag
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(disabled=True)  # traces would go to OpenAI, not to the base URL


def _joined(found: Sequence[rag.Document]) -> str:
    return "\n\n".join(one.text for one in found)


def _listed(found: Sequence[rag.Document]) -> list[dict[str, str]]:
    return [{"id": one.id, "text": one.text} for one in found]


def _json(found: Sequence[rag.Document]) -> str:
    return json.dumps(_listed(found), ensure_ascii=False)


def _agent(
    run: rag.Run,
    kind: type[Any],
    write: Callable[[Sequence[rag.Document]], Any] = _joined,
    *,
    ids: bool = False,
    stream: bool = False,
) -> None:
    found: list[rag.Document] = []

    @function_tool
    def search_handbook(query: str) -> Any:
        """Find what the handbook says about a question."""
        found[:] = rag.search(run.documents, query)
        return write(found)

    async def ask(question: str) -> None:
        async with AsyncOpenAI(
            base_url=run.base_url, api_key="none", default_headers=run.headers, max_retries=0
        ) as client:
            model = kind(model=rag.MODEL, openai_client=client)
            agent = Agent("barista", instructions="Look it up in the handbook.", model=model, tools=[search_handbook])
            if stream:
                async for _ in Runner.run_streamed(agent, question).stream_events():
                    pass
            else:
                await Runner.run(agent, question)

    for question in rag.QUESTIONS:
        asyncio.run(ask(question))
        run.auxiliary()
        run.answer(question, [rag.Passage(one.text, id=one.id if ids else None) for one in found])


def explicit(run: rag.Run) -> None:
    """An app that searches before the run and hands its passages over with the calls."""

    async def ask(question: str) -> None:
        found = rag.search(run.documents, question)
        passages = [rag.Passage(one.text, one.id, one.source) for one in found]
        async with AsyncOpenAI(
            base_url=run.base_url, api_key="none", default_headers=run.headers, max_retries=0
        ) as client:
            agent = Agent("barista", model=OpenAIResponsesModel(model=rag.MODEL, openai_client=client))
            config = RunConfig(model_settings=ModelSettings(extra_body=run.said(question, passages)))
            await Runner.run(agent, rag.OWN_PROMPT.format(notes=_joined(found), question=question), run_config=config)
        run.answer(question, passages)

    for question in rag.QUESTIONS:
        asyncio.run(ask(question))


MODES: dict[str, rag.Mode] = {
    "responses": lambda run: _agent(run, OpenAIResponsesModel),
    "chat-completions": lambda run: _agent(run, OpenAIChatCompletionsModel),
    "chat-json": lambda run: _agent(run, OpenAIChatCompletionsModel, _json, ids=True),
    "chat-python-list": lambda run: _agent(run, OpenAIChatCompletionsModel, _listed, ids=True),
    "streaming": lambda run: _agent(run, OpenAIResponsesModel, _json, ids=True, stream=True),
    "explicit": explicit,
}

if __name__ == "__main__":
    rag.main(MODES)
