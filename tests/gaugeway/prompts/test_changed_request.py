"""A request is changed to what the app itself would have sent, byte for byte, or not at all."""

from collections import Counter
from random import Random

import pytest

from gaugeway.prompts.changed_request import NotExactError, with_instructions, without_passages
from gaugeway.records import Context
from tests.gaugeway.prompts.prompts import PROMPTS
from tests.gaugeway.prompts.rendered_requests import BLOCKS, PLACES, docs_of, parts_of, write
from tests.gaugeway.prompts.rendered_requests import PROMPTS as AROUND

PASSAGES = ("The lamp was lit in the year of the flood.", "The keeper climbed the steps twice a day.", "Tides turn.")
CONTEXTS = [Context(text=text) for text in PASSAGES]
SYSTEM_PLACES = ("_in_system", "_anthropic_system", "_anthropic_two_blocks")
INSTRUCTIONS = "Sag es kurz.\n{context}\n\nFrage: {question}"


def chat(*turns):
    return {"model": "m", "messages": [{"role": role, "content": content} for role, content in turns]}


def prompt(*passages, above="Sources:", below="\n\nQuestion: Why?"):
    return f"{above}\n" + "\n".join(f"[{n}] {text}" for n, text in enumerate(passages, 1)) + below


def drop(body, keep, contexts=CONTEXTS, route="chat_completions", question="Why?"):
    return without_passages(route, body, question, contexts, lambda index: index in keep)


def some(rng, count):
    """Indices to keep, often the first ones, never all."""
    kept = sorted(rng.sample(range(count), rng.randint(1, count - 1)))
    return kept if rng.random() < 0.6 else list(range(len(kept)))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_what_is_left_is_what_the_app_writes_for_it_or_nothing(place):
    rng, outcomes = Random(f"passages {place.__name__}"), Counter()
    for _ in range(600):
        block, around = rng.choice(list(BLOCKS)), rng.choice(list(AROUND))
        parts, docs = parts_of(rng), docs_of(rng, rng.choice([2, 3, 4, 6]))
        keep = some(rng, len(docs))
        route, body = write(block, around, place, parts, docs)
        _, wanted = write(block, around, place, parts, [docs[index] for index in keep])
        contexts = [Context(text=doc.text, source=doc.name) for doc in docs]
        try:
            changed, left = drop(body, keep, contexts, route, parts.question)
        except NotExactError:
            outcomes["refused"] += 1
            continue
        assert changed == wanted, (block, around, keep)
        assert left == tuple(contexts[index] for index in keep)
        outcomes["exact"] += 1
    assert outcomes["exact"] > {"_parts": 3, "_repeated": -1}.get(place.__name__, 50), outcomes


EXACT = ("bullets", "brackets", "from zero", "dots", "words and numbers", "source before", "tags", "ends with numbers")


@pytest.mark.parametrize("between", ["line", "blank", "rule", "rule and blanks"])
@pytest.mark.parametrize("record", [*EXACT, "tags with numbers", "tags with ids", "number behind", "rules above"])
def test_usual_records_are_left_out_exactly(record, between):
    rng = Random(f"{record} {between}")
    for around in ("label", "no label", "tags") * 4:
        parts, docs = parts_of(rng), docs_of(rng, 4)
        keep = some(rng, 4)
        _, body = write(f"{record}, {between}", around, PLACES[1], parts, docs)
        _, wanted = write(f"{record}, {between}", around, PLACES[1], parts, [docs[index] for index in keep])
        contexts = [Context(text=doc.text, source=doc.name) for doc in docs]
        assert drop(body, keep, contexts, question=parts.question)[0] == wanted


@pytest.mark.parametrize("layout", PROMPTS, ids=lambda layout: f"{layout.marker}-{layout.build.__name__}")
def test_prompts_of_frameworks_are_exact_or_refused(layout):
    rng = Random(layout.build.__name__)
    for _ in range(20):
        parts, docs = parts_of(rng), [doc.text for doc in docs_of(rng, rng.randint(2, 5))]
        keep = some(rng, len(docs))
        body = {"messages": layout.build(parts.question, docs)}
        try:
            changed, _ = drop(body, keep, [Context(text=text) for text in docs], question=parts.question)
        except NotExactError:
            continue
        assert changed == {"messages": layout.build(parts.question, [docs[index] for index in keep])}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_other_instructions_get_the_stretch_of_the_passages(place):
    rng, exact = Random(f"instructions {place.__name__}"), 0
    for _ in range(300):
        # where the records end is what the app says: it writes nothing of its own behind the last one
        block = rng.choice([name for name in BLOCKS if not any(word in name for word in ("ended", "last", "optional"))])
        around = rng.choice(["label", "no label", "tags"])
        parts, docs = parts_of(rng), docs_of(rng, rng.choice([1, 2, 3, 5]))
        route, body = write(block, around, place, parts, docs)
        instructions = INSTRUCTIONS if place.__name__ not in SYSTEM_PLACES else "Sag es kurz.\n{context}"
        filled = instructions.replace("{context}", BLOCKS[block](docs)).replace("{question}", parts.question)
        contexts = [Context(text=doc.text, source=doc.name) for doc in docs]
        try:
            changed = with_instructions(route, body, parts.question, contexts, instructions)
        except NotExactError:
            continue
        assert changed == place(filled, parts)[1], (block, around)
        exact += 1
    assert exact > (-1 if place.__name__ in ("_parts", "_repeated", "_anthropic_two_blocks") else 10)


@pytest.mark.parametrize(
    ("body", "keep", "why"),
    [
        (chat(("user", prompt(*PASSAGES))), (), "no_passages_left"),
        (chat(("user", prompt(*PASSAGES))), (0, 1, 2), "unchanged"),
        (chat(("user", "Why?")), (0,), "passages_not_together"),
        (chat(("system", prompt(*PASSAGES[:2])), ("user", f"{PASSAGES[2]} Why?")), (0,), "passages_not_found"),
        (chat(("user", prompt(*PASSAGES, above="These 3 sources:"))), (0,), "passages_named_elsewhere"),
        (chat(("user", f"{prompt(*PASSAGES)}\n\n{prompt(*PASSAGES)}")), (1,), "passages_named_elsewhere"),
        (chat(("user", f"{PASSAGES[0]}\nWhy?\n{PASSAGES[1]}\n{PASSAGES[2]}")), (1,), "passages_not_found"),
    ],
)
def test_a_refusal_says_why(body, keep, why):
    with pytest.raises(NotExactError, match=why):
        drop(body, keep)


def test_a_request_without_passages_has_none_to_drop():
    with pytest.raises(NotExactError, match=r"^no_passages$"):
        drop(chat(("user", "Why?")), (), ())


def test_the_body_that_came_stays_as_it_is():
    body = chat(("user", prompt(*PASSAGES)))
    drop(body, (0,))
    assert body == chat(("user", prompt(*PASSAGES)))


def test_an_earlier_turn_with_the_same_words_is_not_what_is_changed():
    parts = [{"type": "text", "text": text} for text in prompt(*PASSAGES).split("\n", 1)]
    body = chat(("user", prompt(*PASSAGES)), ("assistant", "What?"), ("user", parts))
    with pytest.raises(NotExactError, match="text_not_unique"):
        drop(body, (0,))


def test_tool_results_are_not_changed():
    call = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "search", "arguments": "{}"}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": prompt(*PASSAGES)}
    with pytest.raises(NotExactError, match="passages_not_together"):
        drop({"messages": [{"role": "user", "content": "Why?"}, call, result]}, (0,))


def instruct(body, instructions="Be brief.", contexts=(), route="chat_completions", question="Why?"):
    return with_instructions(route, body, question, contexts, instructions)


@pytest.mark.parametrize(
    ("route", "body", "wanted"),
    [
        (
            "chat_completions",
            chat(("system", "Old."), ("user", "Why?")),
            chat(("system", "Be brief."), ("user", "Why?")),
        ),
        ("chat_completions", chat(("user", "Why?")), chat(("system", "Be brief."), ("user", "Why?"))),
        ("responses", {"input": "Why?"}, {"input": "Why?", "instructions": "Be brief."}),
        (
            "responses",
            {"input": "Why?", "instructions": "Old."},
            {"input": "Why?", "instructions": "Be brief."},
        ),
        ("messages", {"messages": []}, {"messages": [], "system": "Be brief."}),
        (
            "messages",
            {"messages": [], "system": [{"type": "text", "text": "Old."}]},
            {"messages": [], "system": [{"type": "text", "text": "Be brief."}]},
        ),
    ],
)
def test_instructions_take_the_place_of_the_old_ones(route, body, wanted):
    assert instruct(body, route=route) == wanted


@pytest.mark.parametrize(
    ("body", "why", "more"),
    [
        (chat(("system", "One."), ("system", "Two."), ("user", "Why?")), "several_system_prompts", {}),
        (
            chat(("system", prompt(*PASSAGES)), ("user", "Why?")),
            "passages_in_system_prompt",
            {"contexts": CONTEXTS},
        ),
        (
            chat(("user", prompt(*PASSAGES))),
            "question_in_prompt",
            {"contexts": CONTEXTS, "instructions": "Briefly: {context}"},
        ),
        ({"prompt": "Why?"}, "no_system_prompt", {"route": "completions"}),
        (chat(("system", "user"), ("user", "user")), "text_not_unique", {}),
    ],
)
def test_instructions_that_cannot_be_told_apart_are_refused(body, why, more):
    with pytest.raises(NotExactError, match=why):
        instruct(body, **more)


def test_what_passages_say_is_never_filled_in_again():
    texts = ["The mark {question} stands for itself.", "The other text holds {context} too."]
    body = chat(("user", prompt(*texts)))
    changed = instruct(body, "Look: {context}\n{question}", [Context(text=text) for text in texts])
    assert changed["messages"][0]["content"] == f"Look: [1] {texts[0]}\n[2] {texts[1]}\nWhy?"
