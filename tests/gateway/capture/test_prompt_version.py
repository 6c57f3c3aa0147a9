"""The version of a prompt: the same for every request that the same prompt makes, another for another prompt."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.capture import result
from gateway.capture.factory import capture_of, extractors_of
from gateway.capture.fingerprints import prompt_version
from gateway.config import Capture as Settings
from gaugeway.cli.inspect import inspect_request
from gaugeway.exchange import Recording, Request
from gaugeway.prompts import Extraction
from gaugeway.prompts.passage_records import MAX_PROMPTS, RecordForms
from gaugeway.prompts.prompt_parts import locate
from gaugeway.records import PROMPT_SCHEME, CaptureInfo, Context, Sample
from monitors.analysis.prompt_text import pieces
from tests.gateway.capture.prompt_layouts import LAYOUTS, Asked, requests


def version(
    messages: list[dict[str, Any]],
    question: str | None = "",
    passages: tuple[str, ...] = (),
    *,
    forms: RecordForms | None = None,
    source: str = "patterns",
) -> str | None:
    found = Extraction(question=question, contexts=tuple(Context(text=one) for one in passages), source=source)
    request = Request(route="chat_completions", headers={}, body={"messages": messages})
    return prompt_version(found, locate(request, found, app="a", forms=forms), salt="s")


def chat(system: str, user: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def in_system(passages: tuple[str, ...], day: int = 1, rule: str = "Be brief.") -> str | None:
    numbered = "\n\n".join(f"[{n}] {one}" for n, one in enumerate(passages, 1))
    system = f"Today is 2026-11-{day:02d}. {rule}\nUse these passages:\n{numbered}\nAnswer in one sentence."
    return version(chat(system, "How long?"), "How long?", passages)


def test_passages_their_number_and_the_date_do_not_change_it() -> None:
    few, many = in_system(("One.", "Two.", "Three."), day=1), in_system(("Four.", "Five."), day=28)
    assert few == many is not None
    assert few.startswith(PROMPT_SCHEME)


def test_another_instruction_changes_it() -> None:
    assert in_system(("One.",)) != in_system(("One.",), rule="Be verbose.")


def test_the_question_does_not_change_it_and_the_instructions_in_a_user_turn_do() -> None:
    def asked(question: str, rule: str) -> str | None:
        user = f"{rule}\nContext:\nSome passage of text.\n\nQuestion: {question}"
        return version([{"role": "user", "content": user}], question, ("Some passage of text.",))

    assert asked("Why?", "Answer.") == asked("How?", "Answer.") is not None
    assert asked("Why?", "Answer.") != asked("Why?", "Answer politely.")


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": "hello"}], chat("  ", "hello")])
def test_a_chat_without_instructions_has_none(messages: list[dict[str, Any]]) -> None:
    assert version(messages) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It is Saturday, November 28, 2026.", "It is Friday, May 1, 2026."),
        ("Heute ist der 28. November 2026.", "Heute ist der 3. Mai 2026."),
        ("Hoy es 28 de noviembre de 2026.", "Hoy es 3 de mayo de 2026."),
        ("Now: Sat Nov 28 06:04:59 UTC 2026.", "Now: Mon Jun 1 16:24:09 UTC 2026."),
        ("The time is 9:05 AM.", "The time is 11:45 PM."),
        ("Session 7f3a-bb02, user u_8812.", "Session 0c1e-9a7d, user u_17."),
    ],
)
def test_dates_times_and_ids_do_not_change_it(one: str, other: str) -> None:
    assert version(chat(one + " Be brief.", "Why?"), "Why?") == version(chat(other + " Be brief.", "Why?"), "Why?")
    assert version(chat(one + " Be brief.", "Why?"), "Why?") != version(chat(one + " Be rude.", "Why?"), "Why?")


def of_layout(name: str, rule: str, seed: int = 1) -> list[str | None]:
    """The versions of forty requests whose passages and question are known."""
    forms = RecordForms()
    return [
        version(messages, asked.question, passages_in(messages, asked), forms=forms)
        for messages, asked in requests(LAYOUTS[name], rule=rule, seed=seed)
    ]


def passages_in(messages: list[dict[str, str]], asked: Asked) -> tuple[str, ...]:
    """The passages as they stand in the prompt: some layouts put them on one line."""
    prompt = "\n".join(message["content"] for message in messages)
    flat = [" ".join(doc.text.split()) for doc in asked.docs]
    return tuple(one if one in prompt else doc.text for one, doc in zip(flat, asked.docs, strict=True))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_has_one_version_whatever_was_retrieved_and_another_rule_another(name: str) -> None:
    kind = of_layout(name, "Be kind.")
    assert len(set(kind)) == 1
    assert set(of_layout(name, "Be kind.", seed=2)) == set(kind)
    assert set(of_layout(name, "Be kind. Never guess.")).isdisjoint(kind)


CHANGED = {
    "bracketed_names": ("Cite as [n].", "Cite nothing."),
    "source_and_content": ("\nAnswer:", "\nYour answer:"),
    "headings": ("# Notes", "# Articles"),
    "attributes": ("</docs>", "</docs>\nQuote them."),
    "tail_in_brackets": ("What we know:", "What we believe:"),
    "dash_tail": ("Handbook:", "Manual:"),
    "ruled_cards": ("Use the cards above.", "Ignore the cards above."),
    "plain_titles": ("End of the articles.", "No more articles."),
    "inline_numbers": ("Evidence:", "Facts:"),
    "optional_fields": ("Employee:", "Manager:"),
    "german_excerpts": ("Beantworte", "Erkläre"),
    "links_list": ("# Knowledge", "# What we know"),
    "dated": ("Do not mention the list.", "Mention the list."),
    "history": ("Search results:", "Hits:"),
    "question_first": ("Here is what the search returned.", "These are hits."),
    "escaped_json": ("Hits:", "Results:"),
    "spaced_titles": ("Pages:", "Sheets:"),
    "quoted": ("My question is:", "I ask:"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_change_around_the_passages_changes_it(name: str) -> None:
    old, new = CHANGED[name]
    for messages, asked in requests(LAYOUTS[name], rule="Be kind.", count=3):
        changed = [message | {"content": message["content"].replace(old, new)} for message in messages]
        passages = passages_in(messages, asked)
        assert version(changed, asked.question, passages) != version(messages, asked.question, passages)


def captured(bodies: list[list[dict[str, str]]]) -> list[Sample]:
    """The samples that the sampler makes of requests of one app."""
    answer = {"role": "assistant", "content": "It is as the passages say."}
    choices = [{"index": 0, "message": answer, "finish_reason": "stop"}]
    body = json.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": choices}).encode()
    recordings = [
        Recording(
            id=f"{number:032x}",
            started_at=1.76e9 + number,
            method="POST",
            path="/v1/chat/completions",
            route="chat_completions",
            request_headers=[(b"content-type", b"application/json")],
            request_body=json.dumps({"model": "m", "messages": messages}).encode(),
            status=200,
            response_headers=[(b"content-type", b"application/json")],
            chunks=[body],
            duration_s=1.0,
        )
        for number, messages in enumerate(bodies)
    ]
    made = [one.sample for one in result.capture_all(capture_of(Settings(), "key", [].append), recordings)]
    return [sample for sample in made if sample is not None]


@pytest.mark.parametrize("name", ["headings", "attributes", "escaped_json"])
def test_captured_and_learned_prompts_have_the_same_version(name: str) -> None:
    samples = captured([messages for messages, _ in requests(LAYOUTS[name], rule="Be kind.")])
    assert {"learned", "structure"} <= {sample.context_source for sample in samples}
    assert len({sample.prompt for sample in samples if sample.context_source != "none"}) == 1
    unrecognised = {sample.prompt for sample in samples if sample.context_source == "none"}
    assert len(unrecognised - {None}) <= 1


def test_where_passages_were_not_recognised_instructions_need_to_recur() -> None:
    forms = RecordForms()
    different = [
        version(chat(f"Be brief. {'abcdefg'[n]} is so.", "Why?"), "Why?", forms=forms, source="none") for n in range(7)
    ]
    same = [version(chat("Be brief.", "Why?"), "Why?", forms=forms, source="none") for _ in range(5)]
    assert set(different) == {None}
    assert (same[:2], len(set(same[2:]))) == ([None, None], 1)
    assert version(chat("Be brief.", "a\nb"), "a\nb", forms=forms, source="none") is None
    assert version(chat("Be brief.", "a prompt"), None, forms=forms, source="none") is None


def test_what_is_remembered_is_bounded() -> None:
    forms = RecordForms()
    for number in range(2 * MAX_PROMPTS):
        forms.of(f"app {number}", "x", ["\n\n"] * 9)
        forms.recurs(f"app {number}", "x")
        forms.without_dialogue(f"app {number}", "A: x\nB: y\nA: z\nB: x")
    assert forms.of("app 0", "x", []) == ()
    assert [len(kept) for kept in (forms._between, forms._texts, forms._speakers)] == [MAX_PROMPTS] * 3  # noqa: SLF001


@pytest.mark.parametrize("name", ["bracketed_names", "source_and_content", "headings", "attributes"])
def test_inspect_and_the_page_show_a_passages_record_apart_from_the_instructions(name: str) -> None:
    messages, asked = next(iter(requests(LAYOUTS[name], rule="Be kind.")))
    contexts = tuple(Context(text=doc.text) for doc in asked.docs)
    body = {
        "model": "m",
        "messages": messages,
        "gaugeway": {"question": asked.question, "contexts": [c.text for c in contexts]},
    }
    seen = inspect_request(json.dumps(body).encode(), extractors_of(Settings()))
    shown = list(pieces(CaptureInfo(source=seen.source, parts=seen.parts), seen.question, seen.contexts, seen.source))
    words = {kind: " ".join(one.text or "" for one in shown if one.kind == kind) for kind in ("instructions", "record")}
    for doc in asked.docs:
        assert (doc.name in words["record"]) or (doc.title in words["record"])
        assert doc.name not in words["instructions"]
        assert doc.title not in words["instructions"]
    assert "Be kind." in words["instructions"]


ROOF = "The roof of the shed carries ninety kilograms of snow, in a cold winter."
DOOR = "The door of the shed opens to the inside, and locks by itself at night."
WALL = "The walls are of larch, and turn grey within two years or three."
PIECES = st.lists(
    st.sampled_from([ROOF, DOOR, WALL, "Use: ", "\n", "\n\n", " and ", "[1] a.md", "Why?", "A: b", "<a>"]), max_size=12
)


@given(PIECES, st.lists(st.sampled_from([ROOF, DOOR, WALL, "x", "nowhere in it", ""]), max_size=5), st.randoms())
def test_the_order_in_which_the_passages_are_known_does_not_change_it(
    pieces: list[str], passages: list[str], random: Random
) -> None:
    user = [{"role": "user", "content": "".join(pieces)}]
    distinct = tuple(dict.fromkeys(passages))
    if all("".join(pieces).count(one) <= 1 for one in distinct if one):
        assert version(user, "Why?", distinct) == version(user, "Why?", tuple(random.sample(distinct, len(distinct))))
