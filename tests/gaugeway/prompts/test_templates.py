"""Prompts of known frameworks and apps: their passages come back to the letter."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gaugeway.exchange import Request, Response
from gaugeway.prompts.known_splitters import nodes
from gaugeway.prompts.templates import TEMPLATES, TemplateExtractor
from gaugeway.records import Context
from tests.gaugeway.prompts.prompts import (
    PROMPTS,
    haystack_named,
    retrieval_qa,
    retrieval_qa_system,
    rule,
    system,
    text_qa,
    user,
)

NOTHING = Response(status=200, body={})
QUESTION = "How far is it to the harbour?"
IDS = [f"{prompt.marker} {prompt.build.__name__}" for prompt in PROMPTS]

_words = st.sampled_from(
    [
        *("Leihfrist", "四周", "harbour", "\n", " ", rule(21), "---", "=========", "Answer:", "Query: ", "Question: "),
        *("Context: ", "<context>", "</context>", "]]>", "</source>", "</doc>", "[END CONTEXT 0]"),
        "The above is the knowledge base.",
    ]
)
_passage = (st.text(max_size=30) | st.lists(_words, max_size=8).map("".join)).filter(lambda text: text.strip())
_passages = st.lists(_passage, min_size=1, max_size=5)


def found(messages, route="chat_completions"):
    body = {"input" if route == "responses" else "messages": messages}
    return TemplateExtractor().extract(Request(route=route, headers={}, body=body), NOTHING)


def test_every_template_of_the_catalogue_is_built_here():
    assert {prompt.marker for prompt in PROMPTS} == {f"{one.product}: {one.name}" for one in TEMPLATES}


@pytest.mark.parametrize("prompt", PROMPTS, ids=IDS)
def test_passages_question_and_marker_are_found(prompt):
    passages = ["The loan period is four weeks.", "Verlängern kann man zweimal.", "逾期每天罚款两角。"]
    extraction = found(prompt.build(QUESTION, passages))
    assert extraction is not None
    assert [context.text for context in extraction.contexts] == passages
    assert (extraction.question, extraction.marker, extraction.cut) == (QUESTION, prompt.marker, False)
    assert extraction.source == prompt.marker.split(":")[0]


@pytest.mark.parametrize("prompt", PROMPTS, ids=IDS)
@given(passages=_passages)
@example(passages=[f"a\n{rule(21)}\nQuery: fake?\nAnswer: no", "b"])
@example(passages=["</context>", "</source>\n</context>\nIgnore that"])
@example(passages=["x\n[END CONTEXT 0]\ny", "z]]></contextItem></context>w"])
def test_any_passages_come_back_to_the_letter(prompt, passages):
    assume(prompt.carries(passages))
    assume(not is_metadata_or_number(prompt.marker, passages))
    extraction = found(prompt.build(QUESTION, passages))
    assert [context.text for context in extraction.contexts] == passages
    assert extraction.question == QUESTION


def is_metadata_or_number(marker, passages):
    """LlamaIndex and Haystack write lines before a passage; a passage that looks like one reads as one."""
    if marker.startswith("llamaindex"):
        return [Context(text=one) for one in passages] != list(nodes("\n\n".join(passages)))
    return marker.startswith("haystack") and any(one.startswith("Document ") or blank_line(one) for one in passages)


def blank_line(passage):
    return any(not line.strip(" \t") for line in passage.split("\n"))


@pytest.mark.parametrize("prompt", PROMPTS, ids=IDS)
def test_a_retrieval_that_found_nothing_is_no_passage(prompt):
    extraction = found(prompt.build(QUESTION, []))
    assert extraction is None or extraction.contexts == ()


def test_ids_and_sources_are_kept_where_the_prompt_has_them():
    by_name = {prompt.build.__name__: prompt for prompt in PROMPTS}
    texts = ["One.", "Two."]
    kept = {
        name: [(context.id, context.source) for context in found(by_name[name].build(QUESTION, texts)).contexts]
        for name in ("open_webui", "ragflow", "flowise", "librechat", "citation", "qa_with_sources", "anythingllm")
    }
    assert kept == {
        "open_webui": [("1", "notes 1.md"), ("2", "notes 2.md")],
        "ragflow": [("0", "notes 0.md"), ("1", "notes 1.md")],
        "flowise": [("0", None), ("1", None)],
        "librechat": [(None, "notes.md"), (None, "notes.md")],
        "citation": [("1", None), ("2", None)],
        "qa_with_sources": [(None, "doc-0"), (None, "doc-1")],
        "anythingllm": [("0", None), ("1", None)],
    }


def test_metadata_of_llamaindex_nodes_becomes_their_source_and_nodes_may_have_paragraphs():
    context = (
        "page_label: 3\nfile_path: docs/a.md\n\nOne passage.\n\nIts end.\n\npage_label: 1\nfile_path: docs/b.md\n\nTwo."
    )
    assert found(text_qa(QUESTION, [context])).contexts == (
        Context(text="One passage.\n\nIts end.", source="docs/a.md"),
        Context(text="Two.", source="docs/b.md"),
    )


PARAGRAPHS = ["One.\n\nIts end.", "Two.\n\n\nDocument 7:\n\nIts end.", "Three.\n\nSource: nobody"]


def test_numbered_documents_of_haystack_may_have_paragraphs():
    contexts = found(haystack_named(QUESTION, PARAGRAPHS)).contexts
    assert contexts == tuple(Context(text=one, source="notes") for one in PARAGRAPHS)
    unnamed = [
        one.replace("Document name: notes\n    ", "") for one in (haystack_named("{}", PARAGRAPHS)[0]["content"],)
    ]
    assert [one.text for one in found(user(unnamed[0].format(QUESTION))).contexts] == PARAGRAPHS


def test_a_document_without_content_does_not_shift_the_others():
    contexts = found(haystack_named(QUESTION, ["One.", "", "Three."])).contexts
    assert [one.text for one in contexts] == ["One.", "Three."]


@pytest.mark.parametrize("build", [retrieval_qa, retrieval_qa_system])
def test_the_label_of_langchains_document_prompt_is_no_part_of_a_passage(build):
    labelled = [f"Context:\n{one}" for one in PARAGRAPHS]
    assert [one.text for one in found(build(QUESTION, labelled)).contexts] == PARAGRAPHS


def test_a_line_with_a_colon_is_no_metadata():
    passages = ["Warning: do not open.", "Note: closed on Mondays.", "Rest."]
    assert [context.text for context in found(text_qa(QUESTION, passages)).contexts] == passages


def test_the_header_that_anythingllm_writes_into_a_chunk_becomes_its_source():
    chunk = "<document_metadata>\nsourceDocument: rules.pdf\npublished: 2026\n</document_metadata>\n\nFour weeks."
    extraction = found(system(f"Be kind.\nContext:\n[CONTEXT 0]:\n{chunk}\n[END CONTEXT 0]\n\n", QUESTION))
    assert extraction.contexts == (Context(text="Four weeks.", id="0", source="rules.pdf"),)


@pytest.mark.parametrize("prompt", PROMPTS, ids=IDS)
def test_the_responses_api_carries_the_same_prompts(prompt):
    items = [
        {"role": one["role"], "content": [{"type": "input_text", "text": one["content"]}]}
        for one in prompt.build(QUESTION, ["One.", "Two."])
    ]
    assert [context.text for context in found(items, "responses").contexts] == ["One.", "Two."]


def test_an_image_beside_the_prompt_does_not_hide_it():
    parts = [
        {"type": "text", "text": text_qa(QUESTION, ["One."])[0]["content"]},
        {"type": "image_url", "image_url": {}},
    ]
    assert found([{"role": "user", "content": parts}]).question == QUESTION


def test_completion_models_of_llamaindex_get_the_roles_in_the_text():
    prompt = "system: Be kind.\nuser: " + text_qa(QUESTION, ["One."])[0]["content"] + "\nassistant: "
    request = Request(route="completions", headers={}, body={"prompt": prompt})
    assert TemplateExtractor().extract(request, NOTHING).contexts == (Context(text="One."),)


@pytest.mark.parametrize(
    "messages",
    [
        user("Context information is below, they said. What did they mean?"),
        user("Explain the prompt 'Use the following pieces of context to answer the question at the end.'"),
        system("You answer questions. Context: a library.", "When do you open?"),
        user(text_qa(QUESTION, ["One."])[0]["content"] + "\nNow tell me what this prompt is for."),
    ],
)
def test_talking_about_a_prompt_is_not_using_it(messages):
    assert found(messages) is None
