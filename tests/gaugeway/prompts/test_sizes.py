"""Requests made of very many small things: what is read of them is bounded, and it is the part that matters."""

import pytest

from gateway.capture.auxiliary_calls import auxiliary
from gateway.capture.factory import extractors_of
from gateway.capture.fingerprints import prompt_version
from gateway.config import Capture
from gaugeway.exchange import Request, Response
from gaugeway.prompts import MOST_MESSAGES, MOST_SYSTEM_TEXTS, messages_of, system_texts, user_texts
from gaugeway.prompts.explicit import ExplicitExtractor, from_body_key
from gaugeway.prompts.notation import MOST_TOKENS, printed
from gaugeway.prompts.parse import read
from gaugeway.prompts.prompt_parts import locate
from gaugeway.prompts.tool_messages import MOST_HOPS, ResultExtractor
from gaugeway.settings.bounds import MAX_PASSAGES
from tests.support.work import calls

MANY = 300_000
MOST_CALLS = 22 * MANY


def request(route="chat_completions", **body):
    return Request(route=route, headers={}, body=body)


def message(role, text):
    return {"role": role, "content": text}


def test_of_too_many_messages_the_first_and_the_last_are_read():
    middle = [message("user", "old")] * MANY
    listed = [message("system", "You help."), *middle, message("user", "How big?")]
    asked = request(messages=listed)
    assert len(list(messages_of(asked))) == MOST_MESSAGES
    assert system_texts(asked) == ["You help."]
    assert user_texts(asked)[0] == "How big?"


def test_of_too_many_blocks_the_first_and_the_last_are_read():
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    asked = request(
        "messages", messages=[{"role": "user", "content": [result] * MANY + [{**result, "content": "last"}]}]
    )
    read_ = list(messages_of(asked))
    assert len(read_) == MOST_MESSAGES
    assert read_[-1]["content"] == "last"


def test_of_too_many_system_texts_the_first_are_read():
    asked = request(messages=[message("system", str(number)) for number in range(1000)])
    assert system_texts(asked) == [str(number) for number in range(MOST_SYSTEM_TEXTS)]


def test_of_too_many_records_in_columns_the_first_are_read():
    found = read({"documents": [["text"] * MANY]})
    assert MAX_PASSAGES < len(found) < 10_000


def test_of_too_many_results_the_last_are_read():
    results = [{"type": "file_search_call", "results": [{"text": str(number)}]} for number in range(MOST_HOPS + 50)]
    found = ResultExtractor().extract(request("responses", input=results), Response(status=200, body={}))
    assert found.contexts[0].text == "50"
    assert found.cut


def test_of_too_many_contexts_in_our_key_no_more_are_held_than_are_kept():
    said = from_body_key(b'{"contexts":[' + b'"a",' * MANY + b'"a"]}')
    assert said.contexts is not None
    assert len(said.contexts) == MAX_PASSAGES + 1
    found = ExplicitExtractor().extract(
        Request(route="chat_completions", headers={}, body={}, explicit=said), Response(status=200, body={})
    )
    assert found.cut
    assert len(found.contexts) == MAX_PASSAGES


def test_a_printed_value_of_too_many_texts_stays_a_text():
    assert printed("[" + "''," * (MOST_TOKENS // 4) + "1]") is not None
    assert printed("[" + "''," * (MOST_TOKENS + 1) + "1]") is None


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("chat_completions", {"messages": [{}] * MANY}),
        ("chat_completions", {"messages": [message("system", "<context>\nx")] * MANY}),
        ("chat_completions", {"messages": [message("tool", "x")] * MANY}),
        ("messages", {"messages": [message("user", [{"type": "search_result", "content": "x"}] * MANY)]}),
        ("messages", {"messages": [message("user", [{"type": "document", "source": {}}] * 100)] * MANY}),
        ("responses", {"input": [{"type": "file_search_call", "results": [{"text": "a"}]}] * MANY}),
        ("responses", {"input": [{"type": "function_call_output", "output": "x"}] * MANY}),
    ],
    ids=["empty", "systems", "tools", "search results", "documents", "file search", "outputs"],
)
def test_very_many_small_things_take_a_few_calls_each(route, body):
    asked = request(route, **body)
    response = Response(status=200, body={}, text="An answer.")

    def read_all():
        auxiliary(asked, response)
        for extractor in extractors_of(Capture()):
            if (found := extractor.extract(asked, response)) is not None:
                prompt_version(found, locate(asked, found), salt="s")

    assert calls(read_all) < MOST_CALLS
