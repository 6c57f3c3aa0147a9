"""Reading by form, on prompts that are drawn at random: none of them was written for the reader."""

import json
import random

import pytest

from gaugeway.exchange import Request, Response
from gaugeway.prompts.form import reader
from gaugeway.prompts.form.candidates import blocks_of, contexts
from gaugeway.prompts.form.divisions import records_in
from gaugeway.prompts.form.lines import shape
from gaugeway.prompts.form.reader import Turn
from gaugeway.prompts.form.text import Text
from gaugeway.prompts.retrieval_rule import retrieved
from gaugeway.prompts.tool_messages import ToolExtractor
from tools.prompt_frames import WORDS, frame, passage
from tools.prompt_layouts import layout, ordinary, request

SEED = 2026
ONE = "Books may be kept for four weeks, and a loan can be extended twice."
TWO = "Who brings a book back late pays twenty cents a day; children pay nothing."
THREE = "The reading room opens at nine and closes at six, on Sundays at noon."


def squeezed(text):
    return " ".join((text or "").split())


def turns(one):
    said = [(message["role"], message["content"]) for message in one.messages]
    return [Turn(role, (text,) if isinstance(text, str) else tuple(text)) for role, text in said]


@pytest.mark.parametrize(
    ("line", "kind", "keys"),
    [
        ("[Document 3] Loans", "text", ("[document #]",)),
        ("CHUNK 126. Loans are", "text", ("~chunk #.",)),
        ("**Source:** a.md", "field", ("**source:**",)),
        ("## Loans", "heading", ("##",)),
        ('<doc id="1">', "open", ("<doc>",)),
        ("* * *", "rule", ("rule *",)),
        ("[00:34 - 00:35] Loans", "text", ("[#:# - #:#]",)),
        ("Loans may be extended.", "text", ()),
    ],
)
def test_a_lines_shape_is_its_marks_without_words_and_numbers(line, kind, keys):
    found = shape(line)
    assert found[0] == kind
    assert set(keys) <= set(found[1])


def test_the_passage_of_a_record_is_what_runs_on_behind_the_fields_that_all_share():
    text = (
        f"[S1] loans-3.pdf (chunk f005b346): {ONE}\n\n[S2] late-2.pdf (chunk 74ae5404): {TWO}\n\n"
        f"[S3] rooms.pdf (chunk fc3567a1): {THREE}"
    )
    found = records_in(text)
    assert [one.text for one in found] == [ONE, TWO, THREE]
    assert [one.source for one in found] == ["loans-3.pdf", "late-2.pdf", "rooms.pdf"]


def test_a_list_a_heading_or_code_in_one_record_does_not_divide_it():
    odd = f"{TWO}\n\n## Fines\n- a day: 20 cents\n- a week: 1 crown\n\n```\nfine --all\n```"
    text = f"Result 1 (score: 0.91)\n{ONE}\n\nResult 2 (score: 0.88)\n{odd}\n\nResult 3 (score: 0.52)\n{THREE}"
    found = records_in(text)
    assert [one.text for one in found] == [ONE, odd, THREE]
    assert [one.score for one in found] == [0.91, 0.88, 0.52]


def test_labels_inside_one_of_several_passages_are_no_frame():
    faq = "Question: Why is it loud?\nAnswer: The burrs are worn.\nQuestion: Which grease?\nAnswer: Food safe grease."
    assert records_in(f"Grinder FAQ\n-----------\n{faq}\n\n{ONE}\n\n{TWO}") is None
    assert records_in(f"{faq}\n\n{ONE}\n\n{TWO}") is None


def test_the_last_record_ends_where_its_own_end_is():
    text = f"[Doc 1]\n{ONE}\n[END 1]\n[Doc 2]\n{TWO}\n[END 2]\n\nAnswer in one sentence."
    (best,) = {
        tuple(one.text for one in contexts(Text.of(text), block))
        for block in blocks_of(Text.of(text))
        if block.split == "counted" and len(block.spans) == 2 and block.frame.key == "[doc #]"
    }
    assert best == (ONE, TWO)


def test_nearly_all_frames_that_are_drawn_give_their_passages():
    """Given the block, and of the candidates the best: the others cannot be told apart without traffic."""
    draw = random.Random(SEED)
    count = right = 0
    while count < 150:
        family, write = frame(draw)
        if family not in ("numbered", "labelled", "tagged", "headed", "listed", "fenced"):
            continue
        found = [passage(draw, draw.choice(list(WORDS["nouns"])), odd=0.2) for _ in range(draw.randint(2, 5))]
        text = Text.of(write(found))
        wanted = [squeezed(one.text) for one in found]
        right += any([squeezed(one.text) for one in contexts(text, block)] == wanted for block in blocks_of(text))
        count += 1
    assert right > 0.9 * count


def test_prompts_that_were_not_in_the_fit_are_read_right_or_not_at_all():
    draw = random.Random(SEED)
    right = wrong = 0
    for _ in range(200):
        one = request(draw, layout(draw))
        found = reader.read(turns(one))
        if found is not None:  # where blank lines part passages that have blank lines, their division cannot be known
            same = squeezed(" ".join(each.text for each in found.contexts)) == squeezed(" ".join(one.contexts))
            right += same and squeezed(found.question) == squeezed(one.question)
            wrong += not same or squeezed(found.question) != squeezed(one.question)
    print(f"{right} of 200 right, {wrong} wrong")  # noqa: T201 - the figure
    assert right > 110
    assert wrong < 34


def test_requests_in_which_nothing_was_retrieved_give_no_passages():
    draw = random.Random(SEED)
    taken = sum(reader.read(turns(ordinary(draw))) is not None for _ in range(200))
    print(f"{taken} of 200 taken for retrieval")  # noqa: T201 - the figure
    assert taken <= 8


def test_every_feature_of_what_is_drawn_has_a_weight():
    draw = random.Random(SEED)
    names = set()
    for _ in range(40):
        for one in reader.candidates(turns(request(draw, layout(draw)))):
            names |= one.values.keys()
    weights = reader.weights_of("rank")
    assert len(names - weights.keys()) <= 0.05 * len(names)  # rare ones may be in no fitted prompt


def test_a_long_message_is_not_read_by_its_form():
    text = f"Context:\n[1] {ONE}\n[2] {TWO}\n" + "x" * reader.MOST_TEXT + "\nQuestion: How long?"
    assert reader.read([Turn("user", (text,))]) is None


def test_many_long_messages_are_read_up_to_a_bound_together(monkeypatch):
    read = []
    monkeypatch.setattr(
        reader.Text, "of", classmethod(lambda _, raw: read.append(len(raw)) or Text(raw, [], [], [], []))
    )
    system = [Turn("system", ("x" * (reader.MOST_TEXT // 3),))] * 100
    reader.read([*system, Turn("user", ("What does it cost to keep a book for a week longer than that? " * 2,))])
    assert 1 < len(read) < 5
    assert sum(read) <= reader.MOST_TEXT


WRAPPED = (
    "### Task:\nAnswer the user with the context given.\n\n### Guidelines:\n- Say if you do not know.\n- Be brief.\n\n"
    "### Output:\nA short answer.\n\n<context>\n{sources}\n</context>\n\nHow long may a book be kept?"
)


def answered(said, result):
    call = {"id": "c1", "type": "function", "function": {"name": "search_handbook", "arguments": '{"query": "book"}'}}
    messages = [
        {"role": "user", "content": said},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps(result)},
    ]
    request = Request(route="chat_completions", headers={}, body={"messages": messages})
    return ToolExtractor().extract(request, Response(status=200, body={}))


def test_a_user_turn_that_was_wrapped_in_a_prompt_is_still_the_users_question():
    empty = '<source id="1" name="loans.md"></source>\n<source id="2" name="late.md"></source>'
    found = answered(WRAPPED.format(sources=empty), [{"content": ONE, "source": "loans.md"}])
    assert found.question == "How long may a book be kept?"
    assert [one.text for one in found.contexts] == [ONE]


def test_passages_in_the_prompt_and_of_a_tool_are_each_there_once():
    filled = f'<source id="1" name="loans.md">{ONE}</source>\n<source id="2" name="late.md">{TWO}</source>'
    found = answered(WRAPPED.format(sources=filled), [{"content": ONE}, {"content": THREE}])
    assert found.question == "How long may a book be kept?"
    assert [one.text for one in found.contexts] == [ONE, TWO, THREE]


def test_a_users_own_long_message_stays_the_question():
    said = "My notes so far:\n# Plan\n- buy wood\n- build the shelf\n# Costs\n- 40 crowns\nWhat is missing here? "
    said += "I have asked two friends and both of them said something else, so I would like to hear a third opinion."
    found = answered(said, [{"content": ONE}])
    assert found.question == said


def test_a_list_of_what_there_is_to_search_is_no_retrieval():
    listed = [{"id": "7", "name": "Handbook", "description": "Our rules"}]
    assert retrieved("list_knowledge_bases", json.dumps(listed)) is None
    assert [one.text for one in retrieved("search", json.dumps([{"pageContent": ONE}]))] == [ONE]


def contexts_of(prompt):
    return [[one.text for one in contexts(text, block)] for text in (Text.of(prompt),) for block in blocks_of(text)]


@pytest.mark.parametrize("keys", [("ab-4f2a9", "ab-77c01"), ("9f2c1ab", "e04d7bb")])
@pytest.mark.parametrize("mark", ["{k}: ", "[{k}] ", "Note [{k}]:\n"])
def test_keys_of_records_and_what_all_end_with_are_no_part_of_the_passages(keys, mark):
    rows = [
        f"{mark.format(k=key)}{said}\nFrom Library, rules-{said[0]}.md, 2024"
        for key, said in zip(keys, (ONE, TWO), strict=True)
    ]
    prompt = "Notes:\n\n" + "\n\n".join(rows) + f"\n\nValid keys: {', '.join(keys)}\n\n---\n\nQuestion: How long?"
    assert [ONE, TWO] in contexts_of(prompt)


def test_a_single_record_is_one_where_the_prompt_cites_its_key_again():
    prompt = f"Notes:\n\nab-4f2a9: {ONE}\nFrom Library, rules.md, 2024\n\nValid keys: {{}}\n\nQuestion: How long?"
    assert [ONE] in contexts_of(prompt.format("ab-4f2a9"))


def test_an_indented_block_between_quotes_is_a_passage_without_its_indent():
    prompt = f"Passages:\n[1] «{ONE}»\n[2] «««\n    Q: How long?\n    A: {TWO}\n»»»\n\nQuestion: How long?"
    assert [ONE, f"Q: How long?\nA: {TWO}"] in contexts_of(prompt)


def test_blank_lines_behind_headings_and_before_lists_do_not_divide():
    first, second = f"{ONE}\n\n- books\n- maps", f"## Fees\n\n{THREE}"
    assert [first, second] in contexts_of(f"Context:\n{first}\n\n{second}\n\nQuestion: How long?")


def test_the_line_before_a_fence_opens_a_list_of_json():
    rows = "\n".join(json.dumps({"id": number, "content": said}) for number, said in enumerate((ONE, TWO)))
    text = Text.of(f"Entities:\n\n```json\n{{}}\n```\n\nChunks:\n\n```json\n{rows}\n```\n\nQuestion: How long?")
    block = next(one for one in blocks_of(text) if one.split == "data" and len(one.data) == 2)
    assert text.raw[block.opener.start : block.opener.end] == "Chunks:"
    assert text.raw[block.closer.start : block.closer.end] == "Question: How long?"


def test_the_label_of_a_question_with_its_answer_belongs_to_the_passage():
    found = records_in(f"Question: How long?\nAnswer: {ONE}\n\nQuestion: How much?\nAnswer: {TWO}")
    assert [one.text for one in found] == [f"Question: How long?\nAnswer: {ONE}", f"Question: How much?\nAnswer: {TWO}"]
