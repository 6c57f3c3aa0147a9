"""Results in which a tool joined its passages: what is taken apart, and what is one passage for all its paragraphs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from gaugeway.exchange import Request, Response
from gaugeway.prompts.form.divisions import elements_in
from gaugeway.prompts.tool_messages import ToolExtractor
from gaugeway.records import Context
from tests.support.work import calls

ONE = "Books may be kept for four weeks. A loan can be extended twice."
TWO = "Who brings a book back late pays twenty cents a day. Children pay nothing."
THREE = "The reading room is open until eight. On Sundays it is closed."
PASSAGES = [ONE, TWO, THREE]
STEPS = "1. Open the lid of the machine.\n2. Put the card into the slot.\n3. Wait until the light is green."


def found(name, content, description=None):
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "How long?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]
    tools = [{"type": "function", "function": {"name": name, "description": description or ""}}]
    request = Request(route="chat_completions", headers={}, body={"messages": messages, "tools": tools})
    extraction = ToolExtractor().extract(request, Response(status=200, body={}))
    return None if extraction is None else extraction.contexts


def texts(*said):
    contexts = found(*said)
    return None if contexts is None else [one.text for one in contexts]


@pytest.mark.parametrize(
    "content",
    [
        "\n\n".join(PASSAGES),
        "\n\n---\n\n".join(PASSAGES),
        "\n=====\n".join(PASSAGES),
        "".join(f"{number}. {one}\n" for number, one in enumerate(PASSAGES, 1)),
        "".join(f"[{number}] {one}\n" for number, one in enumerate(PASSAGES)),
        "\n\n".join(f"({number}) {one}" for number, one in enumerate(PASSAGES, 1)),
        "Found 3 results:\n\n" + "\n".join(f"{number}) {one}" for number, one in enumerate(PASSAGES, 1)),
        "\n\n".join(f"Document {number}:\n{one}" for number, one in enumerate(PASSAGES, 1)),
        "\n".join(f"### Source {number}\n{one}" for number, one in enumerate(PASSAGES, 1)),
        "\n\n".join(f"--- Result {number} ---\n{one}" for number, one in enumerate(PASSAGES, 1)),
        "\n".join(f"Source: rules-{number}.md\nContent: {one}" for number, one in enumerate(PASSAGES)),
        "\n\n".join(f"Source: rules-{number}.md\nContent: {one}" for number, one in enumerate(PASSAGES)),
        "\n\n".join(f"Title: Rule {n}\nURL: https://a.example/{n}\nContent: {one}" for n, one in enumerate(PASSAGES)),
        "\n---\n".join(f"Title: Rule {n}\nScore: 0.{n}\nText:\n{one}" for n, one in enumerate(PASSAGES, 1)),
        "".join(f"<result><source>r{n}.md</source><text>{one}</text></result>" for n, one in enumerate(PASSAGES)),
        "<results>\n"
        + "\n".join(f"<hit>\n<text>{one}</text>\n<source>a</source>\n</hit>" for one in PASSAGES)
        + "</results>",
        "<search_results>\n"
        + "\n".join(
            f'<item index="{n}">\n<source>{n}.md</source>\n<page_content>\n{one}\n</page_content>\n</item>'
            for n, one in enumerate(PASSAGES, 1)
        )
        + "\n</search_results>",
        "<documents>\n" + "\n".join(f'<doc id="{n}">{one}</doc>' for n, one in enumerate(PASSAGES)) + "\n</documents>",
        json.dumps([{"name": one, "similarity": 0.8} for one in PASSAGES]),
        json.dumps([{"fact": one, "id": number, "distance": 0.2} for number, one in enumerate(PASSAGES)]),
        json.dumps([{"result": {"text": one, "source": "a.md"}, "score": 0.7} for one in PASSAGES]),
        json.dumps({"result": {"hits": [{"content": one} for one in PASSAGES]}}),
        json.dumps({"result": "\n\n".join(PASSAGES)}),
        [{"type": "text", "text": "\n\n".join(PASSAGES)}],
    ],
)
def test_the_passages_that_a_search_joined_are_taken_apart(content):
    assert texts("search_library", content) == PASSAGES


def plain(name, content):
    """The passages found, without the call that found them."""
    return tuple(replace(one, hop=None, tool=None) for one in found(name, content))


def test_what_stands_beside_a_passage_is_kept():
    content = "1. Loans\n   URL: https://a.example/loans\n   Score: 0.8\n   " + ONE + "\n"
    content += "2. Late books\n   URL: https://a.example/late\n   Score: 0.7\n   " + TWO
    assert plain("web_search", content) == (
        Context(text=ONE, id="1", score=0.8, source="https://a.example/loans"),
        Context(text=TWO, id="2", score=0.7, source="https://a.example/late"),
    )
    assert plain("web_search", f"[1] (source: a.md) {ONE}\n[2] (source: b.md) {TWO}") == (
        Context(text=ONE, id="1", source="a.md"),
        Context(text=TWO, id="2", source="b.md"),
    )
    content = json.dumps([{"result": {"text": ONE, "source": "a.md", "id": "7"}, "score": 0.7}])
    assert plain("search", content) == (Context(text=ONE, id="7", score=0.7, source="a.md"),)
    content = f'<item id="7"><title>Loans</title><score>0.5</score><content><![CDATA[{ONE}]]></content></item>'
    assert plain("search", content) == (Context(text=ONE, id="7", score=0.5, source="Loans"),)
    assert plain("search", json.dumps([{"name": ONE, "similarity": 0.5}])) == (Context(text=ONE, score=0.5),)


@pytest.mark.parametrize(
    "name", ["fetch_page", "read_page", "open_url", "get_article", "crawl", "browse", "loadWebpage", "team_notes"]
)
def test_the_paragraphs_of_one_document_are_one_passage(name):
    page = "# Rules\n\n" + "\n\n".join(PASSAGES)
    assert texts(name, page) == [page]


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("Searches the rules of the library.", PASSAGES),
        ("Looks up passages about loans.", PASSAGES),
        ("Fetches a page found by the search and returns it.", ["\n\n".join(PASSAGES)]),
        ("Retrieves the full text of a rule.", ["\n\n".join(PASSAGES)]),
        ("Notes of the team.", ["\n\n".join(PASSAGES)]),
    ],
)
def test_the_description_says_whether_a_tool_returns_several_passages(description, expected):
    assert texts("rules", "\n\n".join(PASSAGES), description) == expected


def test_a_heading_stays_with_its_passage():
    content = f"## Loans\n\n{ONE}\n\n## Late books\n\n{TWO}"
    assert texts("search_docs", content) == [f"## Loans\n\n{ONE}", f"## Late books\n\n{TWO}"]


@pytest.mark.parametrize(
    "content",
    [
        ONE,
        "Borrow a book:\n" + STEPS,
        "Pay a fee:\n\n```\npay()\n\nwait()\n```\n\nThen leave the building.",
        "id | name\n\n1 | Ann\n\n2 | Bob\n\n3 | Cid",
        "<html><body><p>" + ONE + "</p><p>" + TWO + "</p></body></html>",
        f"1. {ONE}\n1. {TWO}\n2. {THREE}",
    ],
)
def test_what_is_no_list_of_passages_stays_whole(content):
    assert texts("ask_manual", content) == [content]


def test_steps_from_a_tool_that_does_not_search_stay_one_passage():
    steps = "\n".join(f"{number}. {one}" for number, one in enumerate(PASSAGES, 1))
    assert texts("ask_the_desk", steps) == [steps]
    assert texts("ask_the_desk", steps.replace("1. ", "[1] ").replace("2. ", "[2] ").replace("3. ", "[3] ")) == PASSAGES


@pytest.mark.parametrize(
    "hit",
    [
        {"name": "Kettle Deluxe 3000", "similarity": 0.9},
        {"name": ONE, "comment": TWO, "similarity": 0.9},
    ],
)
def test_a_name_is_a_passage_only_when_it_alone_runs_on_beside_a_score(hit):
    assert texts("search", json.dumps([hit])) == [json.dumps(hit, separators=(",", ":"))]
    assert found("get_item", json.dumps([hit])) is None


@pytest.mark.parametrize(
    "text",
    [
        "<p>one</p><p>two</p>",
        "<a>",
        "<a></a>",
        "<video><source src='a'></video>",
        "<x>" * 5_000,
        "plain",
        "<items></items>",
    ],
)
def test_markup_is_no_list_of_passages(text):
    assert elements_in(text) == []


@pytest.mark.parametrize(
    "unit",
    [
        "1. a\n",
        "[1] a\n",
        "\n\n",
        "---\n",
        "Title: a\n",
        "Source: a\nContent: b\n",
        "<a>",
        "<a><b>c</b>",
        "<i><text>a</text></i>",
        "# a\n\n",
    ],
)
def test_the_work_grows_with_the_length_only(unit):
    def read(length):
        found("search", (unit * (length // len(unit))).strip())

    read(1_000)
    few, many = (calls(partial(read, length)) for length in (40_000, 160_000))
    assert many < 6 * few
