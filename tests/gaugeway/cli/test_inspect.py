import asyncio
import io
import json
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gaugeway.cli.inspect import InspectionError, Tried, guess_route, inspect, inspect_request, inspect_sample, render
from gaugeway.prompts import Extraction, default_order
from gaugeway.prompts.explicit import ExplicitExtractor
from gaugeway.prompts.templates import TemplateExtractor
from gaugeway.prompts.tool_messages import ToolExtractor
from gaugeway.records import CaptureInfo, Context, Evaluation, Failed, PromptPart, Sample, Score, Skipped
from gaugeway.settings.loading import store_url
from gaugeway.settings.shared import Shared
from gaugeway.storage.stores import from_url

EXTRACTORS = [ExplicitExtractor(), ToolExtractor(), TemplateExtractor()]
PASSAGE = "The pump runs for twelve minutes after the last shower, and then it drains the tray by itself."
LINE = "-" * 21
QA = f"Context information is below.\n{LINE}\n{PASSAGE}\n{LINE}\nGiven the context information and not prior knowledge, answer the query.\nQuery: How long?\nAnswer: "  # noqa: E501


def seen(value):
    return inspect_request(json.dumps(value).encode(), EXTRACTORS)


def chat(text, **more):
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def shown(inspection):
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(render(inspection))
    return out.getvalue()


def test_a_bare_body_shows_what_was_found_by_whom_and_who_was_asked_before():
    found = seen(chat(QA))
    assert (found.route, found.guessed, found.question) == ("chat_completions", True, "How long?")
    assert [context.text for context in found.contexts] == [PASSAGE]
    assert found.tried == (Tried("explicit", None), Tried("tools", None), Tried("templates", 1))
    assert (found.source, found.found_by, found.confidence) == ("llamaindex", "llamaindex", 1.0)
    assert not found.warnings


def test_request_response_and_route_may_be_given_together():
    answer = {"choices": [{"message": {"content": "Twelve."}, "finish_reason": "stop"}]}
    found = seen({"request": chat(QA), "response": answer, "route": "chat_completions"})
    assert (found.response, found.guessed, found.auxiliary) == ("Twelve.", False, None)
    call = {"choices": [{"message": {"tool_calls": [{"id": "1"}]}, "finish_reason": "tool_calls"}]}
    assert seen({"request": chat("Hi"), "response": {"status": 200, "body": call}}).auxiliary == "tool_call"
    assert seen({"request": chat("Hi"), "response": "Hello."}).response == "Hello."


def test_path_headers_and_body_are_read_as_they_came_to_the_gateway():
    headers = {"X-Gaugeway-App": "shop", "x-gaugeway-question": "Q%3F", "Authorization": "secret"}
    found = seen({"path": "/v1/chat/completions?x=1", "headers": headers, "body": json.dumps(chat("?"))})
    assert (found.route, found.guessed, found.app, found.question) == ("chat_completions", False, "shop", "Q?")
    pairs = [["x-gaugeway-app", "desk"]]
    assert seen({"request": {"headers": pairs, "body": chat("?")}, "response": None}).app == "desk"


def test_what_the_client_says_itself_is_found_first():
    found = seen(chat("Hi", gaugeway={"contexts": ["mine"], "app": "shop", "capture": False}))
    assert (found.app, found.source, [context.text for context in found.contexts]) == ("shop", "explicit", ["mine"])
    assert found.tried == (Tried("explicit", 1),)
    assert "1, sent with the request" in shown(found)
    assert any("turned capture off" in warning for warning in found.warnings)


def test_a_mistake_in_the_explicit_channel_is_what_the_gateway_would_say():
    found = seen(chat("Hi", gaugeway={"context": ["x"]}))
    assert any(warning.startswith("the gateway would answer 400: gaugeway") for warning in found.warnings)
    assert found.source == "none"


@pytest.mark.parametrize(
    ("value", "warning"),
    [
        (chat("Hi"), "no extractor recognised passages"),
        (chat("word " * 1000), "capture.templates"),
        (chat("Please write a passage to answer the question"), "an auxiliary call (hypothetical_document)"),
        ({"model": "m", "messages": []}, "no question found"),
        ({"model": "text-embedding-3", "input": "Hi"}, "not captured"),
        (chat("Hi", gaugeway={"contexts": []}), "retrieval returned nothing"),
        (chat("Hi", gaugeway={"contexts": ["a", "a", "a"]}), "duplicate passages: 2"),
    ],
)
def test_what_may_surprise_is_a_warning(value, warning):
    assert any(warning in one for one in seen(value).warnings)


@pytest.mark.parametrize(
    ("body", "route"),
    [
        (chat("Hi"), "chat_completions"),
        (chat("Hi", system="Be kind."), "messages"),
        (chat("Hi", tools=[{"name": "s", "input_schema": {}}]), "messages"),
        (chat("Hi", tools=[{"type": "function", "function": {"name": "s"}}]), "chat_completions"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}, "chat_completions"),
        ({"model": "m", "input": "Hi"}, "responses"),
        ({"model": "m", "input": [{"role": "user", "content": "Hi"}]}, "responses"),
        ({"model": "m", "input": ["a", "b"]}, "embeddings"),
        ({"model": "text-embedding-3-small", "input": "Hi"}, "embeddings"),
        ({"model": "m", "prompt": "Hi"}, "completions"),
        ({"model": "m", "instructions": "Hi"}, "responses"),
        ({"model": "m", "input": "Hi", "questions": []}, "decisions"),
        ({"model": "m", "state": "Hi", "questions": {}}, "systemone"),
    ],
)
def test_the_route_is_guessed_from_the_body(body, route):
    assert guess_route(body) == route


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not one JSON object"),
        (b"{}\n{}", "not one JSON object"),
        (b"[" * 100_000, "not one JSON object"),
        (b"\xff", "not one JSON object"),
        (b"[]", "not a JSON object"),
        (b"{}", "not a request"),
        (b'{"path": "/v1/x", "body": "["}', "the body is not one JSON object"),
        (b'{"path": "/v1/x", "body": 3}', "the body is not a JSON object"),
        (b'{"request": {"prompt": "x"}, "route": "chat"}', "no route 'chat'; known: chat_completions, completions"),
    ],
)
def test_what_is_no_request_is_refused_with_the_reason(raw, said):
    with pytest.raises(InspectionError, match=said):
        inspect_request(raw, EXTRACTORS)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=6), lambda x: st.lists(x, max_size=3))


@given(
    st.dictionaries(st.sampled_from(["messages", "input", "prompt", "instructions", "tools", "model", "system"]), JSON)
)
def test_a_body_of_odd_types_is_inspected_or_refused(body):
    try:
        shown(seen(body))
    except InspectionError:
        assert not {"messages", "input", "prompt", "instructions"} & body.keys()


def test_captured_text_is_neither_markup_nor_control():
    text = shown(
        seen(chat("[bold red]x[/] [/nonsense] \x1b[2J\x07", gaugeway={"contexts": [{"text": "[/]", "id": "[x"}]}))
    )
    assert "[bold red]x[/] [/nonsense]" in text
    assert "\x1b" not in text
    assert "passage 1 · [x" in text


def test_much_is_shown_in_short():
    text = shown(seen(chat("Q", gaugeway={"contexts": [f"{n} " + "long " * 500 for n in range(25)]})))
    assert "(2502 characters)" in text
    assert "... and 5 more" in text


SAMPLE = Sample(
    id="e1", started_at=1.0, app="shop", question="Q?", contexts=(Context(text="P", score=0.5),), response="A."
)
EVALUATIONS = [
    Evaluation(sample_id="e1", metric="faithfulness", version="1", outcome=Score(0.25, "half")),
    Evaluation(sample_id="e1", metric="relevancy", version="1", outcome=Skipped("no_judge")),
    Evaluation(sample_id="e1", metric="other", version="1", outcome=Failed("judge_error", "timeout")),
]


def test_a_stored_sample_is_shown_with_its_outcomes():
    inspection = inspect_sample(SAMPLE, EVALUATIONS)
    text = shown(inspection)
    for words in ("Q?", "A.", "score 0.5", "faithfulness", "0.250", "no_judge", "judge_error: timeout"):
        assert words in text
    assert inspection.route is None


def run(*words, stdin=None):
    return CliRunner().invoke(inspect, [str(word) for word in words], input=stdin)


def test_the_command_reads_a_file_or_standard_input(tmp_path):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(chat(QA)))
    result = run(path)
    assert (result.exit_code, "How long?" in result.stdout, "llamaindex" in result.stdout) == (0, True, True)
    read = json.loads(run("-", "--json", stdin=json.dumps(chat(QA))).stdout)
    assert (read["question"], read["source"], read["contexts"][0]["text"]) == ("How long?", "llamaindex", PASSAGE)
    assert {one["extractor"] for one in read["tried"]} <= {*default_order()}


def test_the_command_asks_the_extractors_of_the_configuration(tmp_path):
    config = tmp_path / "gaugeway.toml"
    config.write_text('[capture]\nextractors = ["tools"]\n')
    read = json.loads(run("-", "--json", "--config", config, stdin=json.dumps(chat(QA))).stdout)
    assert (read["source"], [one["extractor"] for one in read["tried"]]) == ("none", ["tools"])


def test_the_command_shows_a_stored_exchange(tmp_path):
    async def store():
        kept = from_url(store_url(Shared(), tmp_path))
        await kept.add(SAMPLE, EVALUATIONS)
        await kept.aclose()

    asyncio.run(store())
    result = run("e1", "--data-dir", tmp_path)
    assert (result.exit_code, "faithfulness" in result.stdout) == (0, True)
    assert json.loads(run("e1", "--data-dir", tmp_path, "--json").stdout)["judged"][0]["value"] == 0.25
    missing = run("e2", "--data-dir", tmp_path)
    assert (missing.exit_code, missing.stderr) == (2, "gaugeway: e2: neither a file nor the ID of a stored exchange\n")


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    empty, config = tmp_path / "empty", tmp_path / "wrong.toml"
    config.write_text("[capture]\nextractor = []\n")
    for words, said in [
        ((bad,), "not one JSON object"),
        ((tmp_path / "none.json",), "no such file"),
        (("e1", "--data-dir", empty), f"no store in {empty}"),
        ((bad, "--config", config), "extractors"),
    ]:
        result = run(*words)
        assert result.exit_code == 2
        assert result.stderr.startswith("gaugeway: ")
        assert said in result.stderr
    assert not empty.exists()  # looking for an exchange makes no store


def test_the_prompt_is_shown_with_its_parts_marked_and_a_legend():
    body = {"messages": [{"role": "system", "content": "Be [brief]."}, *chat(QA)["messages"]]}
    found = seen(body)
    assert [one.kind for one in found.parts] == [
        "instructions",
        "instructions",
        "passage",
        "instructions",
        "question",
        "instructions",
    ]
    assert [QA[one.start : one.end] for one in found.parts if one.kind != "instructions"] == [PASSAGE, "How long?"]
    text = shown(found)
    for words in (
        "confidence  1.00",
        "prompt: instructions question passage",
        "system message 0",
        "[instructions] Be [brief].",
        "user message 1",
        f"[passage 1] {PASSAGE}",
        "[question] How long?",
    ):
        assert words in text, words
    out = io.StringIO()
    Console(file=out, width=200, force_terminal=True, color_system="standard").print(render(found))
    lines = {
        kind: line for kind in ("[instr", "[quest", "[passa") for line in out.getvalue().splitlines() if kind in line
    }
    codes = [re.search(r"(\x1b\[[0-9;]*m)[^\x1b]*\Z", line.partition(kind)[0] + "x") for kind, line in lines.items()]
    assert len({found[1] for found in codes if found}) == len(lines)
    assert "not verbatim" not in text


def test_the_reason_of_an_extractor_is_shown_and_a_passage_that_is_nowhere_is_named():
    class Structure:
        def extract(self, request, response):
            contexts = (Context(text="nowhere"), Context(text=PASSAGE))
            return Extraction(
                question=None, contexts=contexts, source="structure", confidence=0.625, reason="a label\x1b[2J"
            )

    found = inspect_request(json.dumps(chat(f"Notes: {PASSAGE}")).encode(), [Structure()])
    assert (found.confidence, [one.passage for one in found.parts]) == (0.625, [None, 1])
    text = shown(found)
    assert "confidence  0.62" in text
    assert "reason      a label" in text
    assert "\x1b" not in text
    assert "not verbatim in the prompt: passage 1" in text


def test_where_nothing_was_found_the_prompt_is_shown_all_the_same():
    found = seen({"messages": [{"role": "system", "content": "Be brief."}, *chat("Hi")["messages"]]})
    assert (found.source, found.confidence) == ("none", None)
    assert [(one.kind, one.text) for one in found.parts] == [("instructions", "Be brief."), ("question", "")]
    assert "[question] Hi" in shown(found)


def test_a_stored_sample_shows_its_prompt_and_what_came_beside_it_is_not_put_into_it():
    parts = (PromptPart(role="user", kind="passage", start=0, end=12, passage=0),)
    capture = CaptureInfo(source="documents", marker="<doc>", confidence=0.5, reason="a tag", parts=parts)
    sample = replace(SAMPLE, contexts=(Context(text="What is true."),), context_source="documents", capture=capture)
    found = inspect_sample(sample, [])
    assert (found.marker, found.found_by, found.reason) == ("<doc>", "documents", "a tag")
    assert "[passage 1] What is true." in shown(found)
    beside = inspect_sample(replace(sample, context_source="contexts_api"), [])
    assert (beside.source, beside.found_by) == ("contexts_api", "documents")
    assert "[passage 1] 12 characters, not kept" in shown(beside)
    assert inspect_sample(SAMPLE, []).parts == ()
