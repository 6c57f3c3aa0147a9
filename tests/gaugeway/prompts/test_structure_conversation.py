"""The decision: which block holds passages, how sure it is, and what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.exchange import Request, Response
from gaugeway.prompts.form.reader import Turn, read, turns_of
from gaugeway.prompts.structure import StructureExtractor, is_prompt
from tests.gaugeway.prompts.layouts import ASKED, LAYOUTS, A, B, C

PROMPT = f"Answer from the context.\n\nContext:\n{A}\n\n{B}\n\nQuestion: {ASKED}"


MOST = 0.7
"""Share of the layouts that are read: rarer notations are not."""
ROOT = Path(__file__).parents[3]


def user(*parts):
    return Turn("user", parts)


def system(text):
    return Turn("system", (text,))


def said(text):
    return Turn("assistant", (text,))


def sent(turns):
    messages = [
        {"role": turn.role, "content": [{"type": "text", "text": part} for part in turn.parts]} for turn in turns
    ]
    return read(turns_of(Request(route="chat_completions", headers={}, body={"messages": messages})))


def passages(*turns):
    found = sent(turns)
    return None if found is None else ([one.text for one in found.contexts], found.question)


def counted(layouts, turns_of_layout):
    """How many layouts are read exactly, wrongly, and not."""
    found = [(passages(*turns_of_layout(one)), (one.passages, one.question)) for one in layouts]
    exact = sum(said == wanted for said, wanted in found)
    return exact, sum(said is not None and said != wanted for said, wanted in found)


def test_layouts_that_people_wrote_are_mostly_read_and_hardly_ever_wrongly():
    exact, wrong = counted(LAYOUTS, lambda one: [user(one.prompt)])
    print(f"{exact} of {len(LAYOUTS)} exact, {wrong} wrong")  # noqa: T201 - the figure
    assert exact >= MOST * len(LAYOUTS)
    # One of them is a page between quotes with a rule in it: passages that a rule parts look the same.
    assert wrong <= 4


SPLIT = [
    one
    for one in LAYOUTS
    if one.prompt.endswith((one.question, "Answer:", "Antwort:", "Respuesta:"))
    and "question at the end" not in one.prompt
    and "please answer: " not in one.prompt
]


def test_the_same_passages_in_the_system_prompt_go_with_the_question_of_the_turn():
    def apart(one):
        return [system(one.prompt.rpartition(one.question)[0].rpartition("\n\n")[0]), user(one.question)]

    exact, wrong = counted(SPLIT, apart)
    print(f"{exact} of {len(SPLIT)} exact, {wrong} wrong")  # noqa: T201 - the figure
    assert exact >= MOST * len(SPLIT)
    assert wrong <= 3


@pytest.mark.parametrize(
    "prompt",
    [
        ASKED,
        f"Translate the following text into French.\n\nText:\n{A}\n\n{B}",
        f"Summarize the following documents.\n\nDocuments:\n[1] {A}\n[2] {B}",
        "I climbed the lighthouse yesterday.\n\nMy knees hurt since then.\n\nWhat should I do?",
        "Fix this:\n\n```python\ndef steps():\n    return 203\n\nclass Light:\n    pass\n```\n\nWhy does it fail?",
        "You are a guide.\n\nRules:\n- Answer briefly.\n- If you don't know, say so.\n\nHow tall is it?",
        "Answer from the context.\n\nContext:\n{context}\n\nQuestion: {question}",
        "Answer from the context.\n\nContext:\n[...]\n\nQuestion: how far?",
        f"{A}\n\n{B}",
        f"{A}\n\n{B}\n\n{ASKED}",
        "",
        " ",
    ],
)
def test_what_retrieves_nothing_is_left_alone(prompt):
    assert passages(user(prompt)) is None


def test_passages_in_the_system_prompt_and_the_question_in_the_turn():
    assert passages(system(f"Answer from the context.\n\nContext:\n{A}\n\n{B}"), user(ASKED)) == ([A, B], ASKED)


def test_passages_in_a_second_system_message():
    turns = [system("You are a guide."), user("Hello!"), said("Hello."), system(f"Context:\n{A}\n\n{B}"), user(ASKED)]
    assert passages(*turns) == ([A, B], ASKED)


def test_the_last_turn_counts_not_an_earlier_one():
    earlier = PROMPT.replace(A, C)
    assert passages(user(earlier), said("203."), user(PROMPT)) == ([A, B], ASKED)


def test_an_earlier_turn_that_announces_passages_counts_where_the_last_has_none():
    assert passages(user(f"<context>\n{A}\n\n{B}\n</context>\n{ASKED}"), said("203."), user("Since when?")) == (
        [A, B],
        "Since when?",
    )


def test_excerpts_that_the_assistant_only_acknowledged():
    turns = [user(f"Context:\n[1] {A}\n[2] {B}"), said("Understood."), user(ASKED)]
    assert passages(system("Answer the question from the context."), *turns) == ([A, B], ASKED)


def test_a_part_for_each_passage_and_the_question_in_the_last():
    assert passages(system("Answer from the documents."), user(A, B, C, ASKED)) == ([A, B, C], ASKED)
    assert passages(system("You are a poet."), user("Red", "Green", "Blue", "Which one?")) is None


def test_a_prompt_that_is_json():
    prompt = json.dumps({"instructions": "Be brief.", "documents": [{"text": A}, {"text": B}], "question": ASKED})
    assert passages(user(prompt)) == ([A, B], ASKED)
    assert passages(user(json.dumps({"context": f"[1] {A}\n[2] {B}", "query": ASKED}))) == ([A, B], ASKED)
    assert passages(user(json.dumps({"documents": [A, B]}))) is None
    assert passages(user(json.dumps({"name": "Light", "steps": 203}))) is None


def test_special_tokens_are_no_text():
    found = sent([user(f"<s>[INST] Answer from the context.\nContext:\n{A}\n\n{B}\n\nQuestion: {ASKED} [/INST]")])
    assert [one.text for one in found.contexts] == [A, B]
    assert found.question == ASKED


@pytest.mark.parametrize(
    ("prompt", "is_one"),
    [
        (PROMPT, True),
        (A, False),
        (f"Use the context. If the context has no answer, say you don't know.\n\nContext:\n{A}\n\nQuestion: x?", True),
        (ASKED, False),
        ("", False),
    ],
)
def test_a_whole_prompt_is_no_question(prompt, is_one):
    assert is_prompt(prompt) is is_one


def extracted(messages, **body):
    request = Request(route="chat_completions", headers={}, body={"messages": messages, **body})
    return StructureExtractor().extract(request, Response(status=200, body={}))


def test_a_prompt_that_cannot_be_read_has_no_question():
    prompt = (
        "Answer the question from the context only. If the context has no answer, say you don't know.\n\n"
        "Context:\n{context}\n\nQuestion: {question}"
    )
    found = extracted([{"role": "user", "content": prompt}])
    assert (found.question, found.contexts, found.source, found.confidence) == (None, (), "none", 0.0)
    assert "not recognised" in found.reason


def test_a_plain_question_is_left_to_others():
    assert extracted([{"role": "user", "content": ASKED}]) is None


def test_of_a_long_conversation_the_first_and_the_last_messages_are_read():
    messages = [{"role": "user", "content": str(index)} for index in range(500)]
    request = Request(route="chat_completions", headers={}, body={"messages": messages})
    read_of = [turn.text for turn in turns_of(request)]
    assert len(read_of) == 200
    assert read_of[:8] == [str(index) for index in range(8)]
    assert read_of[-1] == "499"


_PIECES = [
    *("Context:", "Question: how?", "<doc>", "</doc>", "[1] ", "[2] ", "---", "\n", "\n\n", "Answer from the context."),
    *(A, B, "- ", "Title: a", "Content: ", '"', "{", "}", "[", "]", "Sources:\n"),
    *("请根据上下文回答。", "问题：", ": "),
    *("<context>", "</context>", "Source: x.md", "1. ", "2. ", "| ", "\t", "If you don't know, say so.", "```"),
    '"text": "a b c", ',
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=12), max_size=24))
def test_no_passage_and_no_question_holds_anything_that_the_prompt_does_not(pieces):
    prompt = "".join(pieces)
    found = read([system("Answer the question from the context."), user(prompt)])
    if found is None:
        return
    assert found.contexts
    for text in [one.text for one in found.contexts] + [found.question or ""]:
        assert "\\" in prompt or all(word in prompt for word in text.split()), text


@pytest.mark.parametrize(
    "prompt",
    [
        "Answer from the context.\n\nContext:\n\n\nQuestion: How long may I keep it?",
        "Use only these sources.\n\n### Sources\n\n### Question\nHow long may I keep it?",
    ],
)
def test_an_empty_place_for_passages_is_a_retrieval_that_found_nothing(prompt):
    request = Request(
        route="chat_completions", headers={}, body={"messages": [{"role": "user", "content": prompt}]}, explicit=None
    )
    found = StructureExtractor().extract(request, Response(status=200, body={}))
    assert found is not None
    assert (found.question, found.contexts, found.source) == ("How long may I keep it?", (), "structure")


@pytest.mark.parametrize(
    "messages",
    [
        [
            (
                "user",
                "Question: How long?\n\nContext:\n[1] It lasts for years.\n[2] FAQ\nQuestion: Is it free?\nAnswer: Yes",
            )
        ],
        [
            (
                "system",
                "Answer from this.\n\nKnowledge:\n[1] It lasts for years.\n[2] FAQ\nQuestion: Is it free?\nAnswer: Yes",
            ),
            ("user", "How long?"),
        ],
    ],
)
def test_a_question_that_a_passage_answers_is_not_the_users(messages):
    found = read([Turn(role, (text,)) for role, text in messages])
    assert found is None or found.question == "How long?"


def test_lines_that_are_sentences_are_no_titles_of_passages():
    sources = (
        "### Source 1\nShipping takes three days.\nExpress takes one.\n\n### Source 2\nReturns\nGoods come back.\n\n"
    )
    found = read([Turn("user", (f"Answer from the sources.\n\nSources:\n\n{sources}Question: When does it arrive?",))])
    assert found is None or found.contexts[0].text.startswith("Shipping takes three days.")


def test_code_at_the_end_of_a_passage_keeps_its_fence():
    article = "To list the files of a folder, run this in the shell:\n```bash\nls -la\n```"
    other = "Another text of some length, about the folders of a disk."
    prompt = f"Use the articles.\n<articles>\n<article>\n{article}\n</article>\n<article>\n{other}\n"
    found = read([Turn("user", (f"{prompt}</article>\n</articles>\n\nQuestion: How do I list files?",))])
    assert found is not None
    assert found.contexts[0].text == article


DOCUMENTS = [
    path.read_text("utf-8")[:4000]
    for name in ("gateway/**/*.py", "monitors/**/*.py", "docs/**/*.md")
    for path in ROOT.glob(name)
]


@pytest.mark.full
@pytest.mark.parametrize(
    "asked",
    [
        "Review this code and list the bugs:\n\n```\n{}\n```\n\nFocus on correctness.",
        "Explain what this does:\n{}\nWhat would you change?",
        'Rewrite the text between the quotes in plain English.\n"""\n{}\n"""',
    ],
)
def test_code_and_documents_that_speak_of_contexts_and_questions_are_no_passages(asked):
    """Ours do: they are about prompts."""
    assert len(DOCUMENTS) > 100
    taken = [text[:80] for text in DOCUMENTS if read([user(asked.format(text))]) is not None]
    print(len(taken), "of", len(DOCUMENTS))  # noqa: T201 - the figure
    assert len(taken) <= 0.03 * len(DOCUMENTS), taken


def test_a_message_for_each_passage():
    orders = "Answer the question from the statute excerpts only. If they do not say it, say that you do not know."
    excerpts = [user(f"{text} {text}") for text in (A, B, C)]
    found = sent([system(orders), *excerpts, user(ASKED)])
    assert found is not None
    assert [one.text for one in found.contexts] == [f"{text} {text}" for text in (A, B, C)]
    assert found.question == ASKED


@pytest.mark.parametrize(
    "said",
    [
        ("Draft 1 of my letter:\nDear council,", "Draft 2 of my letter:\nDear sirs,"),  # no passages by name
        ("What is in excerpt 1?", "And in excerpt 2?"),  # nothing under the labels
    ],
)
def test_messages_of_a_user_that_are_no_passages(said):
    assert read([*[Turn("user", (one,)) for one in said], Turn("user", (ASKED,))]) is None


def test_a_label_inside_a_passage_opens_no_block_of_its_own():
    passage = f"{A}\n\nContext: signatures are kept in the tower."
    prompt = f"<kb>\n<chunk>\n{passage}\n</chunk>\n</kb>\n\nWho asks: where is it?"
    found = read([Turn("user", (f"Answer from the knowledge base.\n\n{prompt}",))])
    assert found is None or [one.text for one in found.contexts] == [passage]
