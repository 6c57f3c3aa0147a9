"""OpenAI Agents SDK: chat completions, items handed back, `previous_response_id`; and the same API without the SDK."""

from __future__ import annotations

from typing import Any

import saying
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(disabled=True)


def _client(one: saying.Conversation) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=one.url(), api_key="none", default_headers=one.headers(), max_retries=0)


def _agent(one: saying.Conversation, kind: type[Any], client: AsyncOpenAI) -> Agent[Any]:
    @function_tool
    def search_handbook(query: str) -> str:  # noqa: ARG001 - its name is what the model sees
        """Find what the handbook says about a question."""
        return one.passages()

    model = kind(model=saying.MODEL, openai_client=client)
    settings = ModelSettings(store=True)
    return Agent("clerk", instructions="Look it up.", model=model, tools=[search_handbook], model_settings=settings)


async def _handed_back(one: saying.Conversation, kind: type[Any]) -> None:
    history: list[Any] = []
    for turn in range(1, one.turns + 1):
        async with _client(one) as client:
            new: Any = {"role": "user", "content": one.question(turn)}
            result = await Runner.run(_agent(one, kind, client), [*history, new])
            history = result.to_input_list()


async def chat(one: saying.Conversation) -> None:
    """The SDK over chat completions."""
    await _handed_back(one, OpenAIChatCompletionsModel)


async def items(one: saying.Conversation) -> None:
    """The SDK over the Responses API, all items handed back."""
    await _handed_back(one, OpenAIResponsesModel)


async def stored(one: saying.Conversation) -> None:
    """The SDK over the Responses API, which keeps the history."""
    before: str | None = None
    for turn in range(1, one.turns + 1):
        async with _client(one) as client:
            agent = _agent(one, OpenAIResponsesModel, client)
            result = await Runner.run(
                agent, one.question(turn), previous_response_id=before, auto_previous_response_id=True
            )
            before = result.last_response_id


async def plain(one: saying.Conversation) -> None:
    """The Responses API without the SDK."""
    more: Any = {}
    for turn in range(1, one.turns + 1):
        async with _client(one) as client:
            response = await client.responses.create(model=saying.MODEL, input=one.question(turn), **more)
            more = {"previous_response_id": response.id}


if __name__ == "__main__":
    saying.run({"chat": chat, "items": items, "stored": stored, "plain": plain})
