"""A prompt put together again from a capture's parts: with the words that are kept, and none that are not its own."""

from gaugeway.records import CaptureInfo, Context, PromptPart, changed
from monitors.analysis.prompt_text import found_by, pieces, unplaced

CONTEXTS = (Context(text="Roof."), Context(text="Door."))
PARTS = (
    PromptPart(role="system", kind="instructions", start=0, end=9, text="Be brief."),
    PromptPart(role="user", kind="passage", start=0, end=5, message=1, passage=1),
    PromptPart(role="user", kind="question", start=6, end=10, message=1),
)
FOUND = CaptureInfo(source="documents", parts=PARTS)


def told(capture=FOUND, question="Why?", contexts=CONTEXTS, source="documents"):
    return [(one.label, one.text, one.number) for one in pieces(capture, question, contexts, source)]


def test_each_part_has_its_words():
    assert told() == [("Instructions", "Be brief.", None), ("Passage 2", "Door.", 2), ("Question", "Why?", None)]
    assert [(one.message, one.role, one.size) for one in pieces(FOUND, "Why?", CONTEXTS, "documents")] == [
        (0, "system", 9),
        (1, "user", 5),
        (1, "user", 4),
    ]


def test_contexts_that_came_beside_the_exchange_are_not_put_into_the_prompt():
    assert told(source="spans") == [
        ("Instructions", "Be brief.", None),
        ("Passage 2", None, None),
        ("Question", "Why?", None),
    ]
    assert told(source="contexts_api")[2] == ("Question", None, None)  # that request may bring a question too


def test_what_is_not_kept_is_none():
    hashed = "blake2b:" + "0" * 32
    bare = CaptureInfo(source="documents", parts=(changed(PARTS[0], text=""), *PARTS[1:]))
    assert [text for _, text, _ in told(bare, hashed, (Context(text=hashed),) * 2)] == [None, None, None]


def test_a_passage_that_is_not_there_is_named_and_has_no_words():
    parts = (PromptPart(role="user", kind="passage", start=9, end=2, passage=7), PARTS[0])
    odd = CaptureInfo(source="documents", parts=parts)
    assert told(odd)[0] == ("Passage 8", None, None)
    assert next(iter(pieces(odd, None, CONTEXTS, "documents"))).size == 0


def test_passages_that_stand_nowhere_are_counted_from_one():
    assert unplaced(PARTS, 3) == [1, 3]
    assert unplaced((), 0) == []


def test_how_it_was_found_in_a_line():
    assert found_by(CaptureInfo()) == "no extractor"
    assert found_by(CaptureInfo(reason="below 0.6")) == "no extractor: below 0.6"
    whole = CaptureInfo(source="structure", marker="Context:", confidence=0.834, reason="a label, numbered items")
    assert found_by(whole) == "structure (Context:), confidence 0.83: a label, numbered items"
