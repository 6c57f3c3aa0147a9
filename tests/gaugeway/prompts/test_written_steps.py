"""Agents that write their steps as text: what they retrieved is read like a tool's result."""

import json

import pytest

from gaugeway.exchange import Request, Response
from gaugeway.prompts import messages_of
from gaugeway.prompts.tool_messages import ToolExtractor
from gaugeway.prompts.written_steps import MOST_TEXT, apart, label_of_call

NOTHING = Response(status=200, body={})
QUESTION = "How long may I keep a book?"
ONE = "Books may be kept for four weeks, and a loan can be extended twice."
TWO = "Who brings a book back late pays twenty cents a day; children pay nothing."
NUMBERED = f"[1] {ONE}\n[2] {TWO}"
FORMAT = """Answer the question. You have access to these tools:

search_handbook(query: str) - searches the handbook.

Use this format:

Question: the question you must answer
Thought: what to do next
Action: the action to take, one of [search_handbook]
Action Input: the input of the action
Observation: the result of the action
Final Answer: the answer

Begin!

"""


def user(said):
    return {"role": "user", "content": said}


def assistant(said):
    return {"role": "assistant", "content": said}


def request_of(*messages):
    return Request(route="chat_completions", headers={}, body={"messages": list(messages)})


def found(*messages):
    return ToolExtractor().extract(request_of(*messages), NOTHING)


STEP = f"Thought: I search.\nAction: search_handbook\nAction Input: loan period\nObservation: {NUMBERED}\n"


@pytest.mark.parametrize(
    "messages",
    [
        [user(f"{FORMAT}Question: {QUESTION}\n{STEP}Thought:")],
        [user(f"Question: Who?\nAction: search\nObservation: {TWO}\nFinal Answer: x\n\nQuestion: {QUESTION}\n{STEP}")],
        [user(f"[QUESTION]\n{QUESTION}\n\n[ACTION]\nsearch[loans]\n\n[OBSERVATION]\n{NUMBERED}\n\n[THOUGHT]")],
        [user(QUESTION), assistant(STEP)],
        [user(QUESTION), assistant("Action: search_handbook\nAction Input: x"), user(f"Observation: {NUMBERED}")],
        [user(QUESTION), assistant("**Action:** `search_docs`"), user(f"**Observation:** {NUMBERED}")],
        [user(QUESTION), assistant("Action: search\nAction Input: x"), user(f"[Tool result for search]\n{NUMBERED}")],
        [user(QUESTION), assistant("Action: search\nAction Input: x"), user(f"TOOL RESULT (search):\n{NUMBERED}")],
        [user(f"New task:\n{QUESTION}"), assistant("```py\nsearch()\n```"), user(f"Observation:\n{NUMBERED}")],
        [user(QUESTION), assistant("search_kb('loans')"), user(f"Tool result for search_kb:\n{NUMBERED}")],
        [user(QUESTION), assistant("I call search_kb."), user(f"Tool `search_kb` returned:\n\n{ONE}\n\n{TWO}")],
        [user(QUESTION), assistant("I call it."), user(f"[Tool result] {NUMBERED}")],
        [
            user(QUESTION),
            assistant('<tool_call>\n{"name": "search_docs", "arguments": {"query": "loan"}}\n</tool_call>'),
            user(f"<tool_response>\n{json.dumps([{'content': ONE}, {'content': TWO}])}\n</tool_response>"),
        ],
        [
            user(QUESTION),
            assistant('{"action": "search_docs", "action_input": "loan"}'),
            user(f"TOOL RESPONSE:\n--------\n{NUMBERED}\n\nUSER'S INPUT\n-------\n\nWhat do you say to my comment?"),
        ],
    ],
)  # fmt: skip
def test_what_an_agent_found_is_read_and_the_question_is_the_users(messages):
    read = found(*messages)
    assert [one.text for one in read.contexts] == [ONE, TWO]
    assert read.question == QUESTION


def test_the_call_is_shown_with_its_tool_and_its_arguments():
    sent = messages_of(request_of(user(f"Question: {QUESTION}\n{STEP}")))
    assert [one["role"] for one in sent] == ["user", "assistant", "tool"]
    call = sent[1]["tool_calls"][0]["function"]
    assert call == {"name": "search_handbook", "arguments": "loan period"}


def test_sections_between_markers_are_steps_and_instructions_behind_them_are_no_passage():
    steps = {"thought_0": "I look.", "tool_name_0": "search", "tool_args_0": '{"q": "loan"}', "observation_0": NUMBERED}
    sections = {"question": QUESTION, "trajectory": "", **steps}
    text = "\n\n".join(f"[[ ## {name} ## ]]\n{said}" for name, said in sections.items())
    read = found(user(f"{text}\n\nRespond to the question with the field `answer`, based on the given observations."))
    assert [one.text for one in read.contexts] == [ONE, TWO]
    assert read.question == QUESTION


def test_hops_are_counted():
    more = f"Thought: more\nAction: search_fees\nAction Input: fee\nObservation: {TWO}\nThought:"
    first = f"Thought: I search.\nAction: search_loans\nAction Input: loan\nObservation: {ONE}\n"
    read = found(user(f"Question: {QUESTION}\n{first}{more}"))
    assert [(one.text, one.hop, one.tool) for one in read.contexts] == [
        (ONE, 1, "search_loans"),
        (TWO, 2, "search_fees"),
    ]


def test_a_label_within_a_result_does_not_end_it():
    result = f"Input: {ONE}\nTask: {TWO}"
    read = found(user(QUESTION), assistant("Action: fetch_page"), user(f"Observation: {result}"))
    assert [one.text for one in read.contexts] == [result]


@pytest.mark.parametrize(
    "messages",
    [
        [user(f"{FORMAT}Question: {QUESTION}\nThought:")],
        [user(QUESTION), assistant("Action: calculator\nAction Input: 3*7"), user("Observation: 21")],
        [user(f"Correct this text:\n\nTool: hammer\nResult: the nail is in.\nObservation: {ONE}")],
        [user(f"Tool: hammer\nObservation: {ONE}")],
        [user(f"Observation: {ONE}")],
        [user("Hello"), assistant("What did you see?"), user(f"Observation: {ONE}")],
        [user("Action: search\nObservation: " + "x" * MOST_TEXT)],
    ],
)
def test_texts_without_a_search_and_its_result_give_no_passages(messages):
    read = found(*messages)
    assert read is None or not read.contexts


def test_steps_before_a_question_stand_in_a_passage():
    passage = "Pool log.\nAction: search_kb\nAction Input: x\nObservation: a heron stood by the pool at dawn."
    said = f"Answer from the context.\n\nContext:\n[1] {passage}\n[2] Lockers take a coin.\n\nQuestion: When?"
    assert list(apart([{"role": "user", "content": said}])) == [{"role": "user", "content": said}]


STEPS = "Thought: look it up\nAction: search_kb\nAction Input: x\nObservation: a heron stood by the pool at dawn."


@pytest.mark.parametrize(
    "said",
    [
        f"Articles:\nPool log.\n{STEPS}\n\nLockers take a coin.\n\nCustomer's question: When?\n\nBe brief.",
        f"When?\n\n<snippet id='1'>{STEPS}</snippet>\n<snippet id='2'>Lockers take a coin.</snippet>",
        f"When?\n\nArticles:\n{STEPS}\nFinal Answer: at dawn.\n\nLockers take a coin.",
    ],
)
def test_steps_that_no_agent_goes_on_behind_stand_in_a_passage(said):
    assert list(apart([user(said)])) == [user(said)]


@pytest.mark.parametrize("behind", ["", "\nThought:", "\nFinal Answer:", "\n</steps>"])
def test_steps_at_the_end_of_a_prompt_are_an_agents(behind):
    assert len(list(apart([user(f"Question: When?\n<steps>\n{STEPS}{behind}")]))) > 1


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("Thought: look it up\nAction: search_kb\nAction Input: pool opening", "Action Input"),
        ('Action: search_kb("pool")', "Action"),
        ("Thought: I know.\nFinal Answer: at nine", None),
        ("Action: close the valve.\nThen wait.", None),
        ("At nine.", None),
    ],
)
def test_a_text_that_ends_in_a_call_is_told_by_its_label(said, label):
    assert label_of_call(said) == label
