"""LangChain and LangGraph: trimmed and summarised histories, rewritten questions, a tool loop."""

from __future__ import annotations

from typing import Any

import saying
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, trim_messages
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver


def _model(one: saying.Conversation, kind: str = "", **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=saying.MODEL, base_url=one.url(), api_key="none", default_headers=one.headers(kind), max_retries=0, **more
    )


async def trimmed(one: saying.Conversation) -> None:
    """`trim_messages` keeps the last messages."""
    history: list[Any] = [SystemMessage("Be brief.")]
    cut = trim_messages(
        max_tokens=one.draw.choice((4, 6)), token_counter=len, strategy="last", include_system=True, start_on="human"
    )
    for turn in range(1, one.turns + 1):
        history.append(HumanMessage(one.question(turn)))
        history.append(await _model(one).ainvoke(cut.invoke(history)))


async def rewritten(one: saying.Conversation) -> None:
    """A first call makes the question stand alone; the prompt has passages, the history the user's own words."""
    history: list[Any] = []
    for turn in range(1, one.turns + 1):
        asked = question = one.question(turn)
        if history:
            told = "\n".join(str(message.content) for message in history)
            prompt = (
                f"Given the chat history, rephrase the follow-up as a standalone question.\n{told}\nFollow-up: {asked}"
            )
            question = str((await _model(one, "auxiliary").ainvoke(prompt)).content)
        prompt = f"Answer the question from the context.\n\nContext:\n{one.passages()}\n\nQuestion: {question}"
        answer = await _model(one).ainvoke([*history, HumanMessage(prompt)])
        history += [HumanMessage(asked), AIMessage(answer.content)]


def _search(one: saying.Conversation) -> Any:
    @tool
    def search_handbook(query: str) -> str:  # noqa: ARG001 - its name is what the model sees
        """Find what the handbook says about a question."""
        return one.passages()

    return search_handbook


async def tools(one: saying.Conversation) -> None:
    """A LangGraph agent with a checkpoint."""
    saver = InMemorySaver()
    for turn in range(1, one.turns + 1):
        agent = create_agent(_model(one), [_search(one)], checkpointer=saver)
        config: Any = {"configurable": {"thread_id": one.name}}
        await agent.ainvoke({"messages": [HumanMessage(one.question(turn))]}, config)


async def summarised(one: saying.Conversation) -> None:
    """The middleware replaces what is old by a summary, which another model call writes."""
    saver = InMemorySaver()
    for turn in range(1, one.turns + 1):
        middleware = SummarizationMiddleware(
            model=_model(one, "auxiliary"), trigger=("messages", 7), keep=("messages", 3)
        )
        agent = create_agent(_model(one), [], checkpointer=saver, middleware=[middleware])
        config: Any = {"configurable": {"thread_id": one.name}}
        await agent.ainvoke({"messages": [HumanMessage(one.question(turn))]}, config)


if __name__ == "__main__":
    saying.run({"trimmed": trimmed, "rewritten": rewritten, "tools": tools, "summarised": summarised})
