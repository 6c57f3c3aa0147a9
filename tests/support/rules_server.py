"""A judge's and an embeddings' endpoint that answer by the rules of the example judge."""

from __future__ import annotations

import re

from examples import rules
from tests.support.llm_server import LLMServer, Reply, Request


class Vectors(dict):
    """The embedding of any text."""

    def __missing__(self, text):
        return rules.vector(text)


def by_rules(request: Request) -> Reply:
    """Answer a judge's request."""
    if "input" in request.body:
        return Reply()
    system, user = (message["content"] for message in request.body["messages"])
    return Reply(content=rules.answer(re.match(r"Task: (\w+)", system)[1], system, user), tokens=(1000, 100))


def rules_server() -> LLMServer:
    """Return the server of both."""
    return LLMServer(by_rules, vectors=Vectors(known=[1.0]))


def judged(server: LLMServer) -> int:
    """Return how many requests were the judge's."""
    return sum("messages" in request.body for request in server.requests)
