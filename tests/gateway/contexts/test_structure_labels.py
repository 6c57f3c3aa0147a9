"""Labels, rules and sentences that announce passages: what is one, and what only looks like one."""

from __future__ import annotations

import pytest

from gateway.contexts.structure.blocks import candidates
from gateway.contexts.structure.labels import find_marks, kind_of
from gateway.contexts.structure.word_index import HEAD, TAIL, IndexedText


def kinds(said):
    return [mark.kind for mark in find_marks(IndexedText(said))]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Context:", "context"),
        ("## Retrieved passages", "context"),
        ("**Sources**:", "context"),
        ("[SEARCH RESULTS]", "context"),
        ("=== Knowledge base ===", "context"),
        ("Kontext:", "context"),
        ("Extraits :", "context"),
        ("Fuentes:", "context"),
        ("Фрагменты:", "context"),
        ("Źródła:", "context"),
        ("参考资料：", "context"),
        ("検索結果：", "context"),
        ("검색 결과:", "context"),
        ("السياق:", "context"),
        ("Question:", "question"),
        ("User question: how far?", "question"),
        ("Frage: Wie weit?", "question"),
        ("Pregunta:", "question"),
        ("Вопрос:", "question"),
        ("问题：多远？", "question"),
        ("質問：", "question"),
        ("User: how far?", "question"),
        ("Answer:", "answer"),
        ("Antwort:", "answer"),
        ("回答：", "answer"),
        ("Rules:", "instruction"),
        ("Chat history:", "history"),
        ("---", "rule"),
        ("* * *", "rule"),
        ('"""', "rule"),
        ("Answer the question from the following excerpts:", "intro"),
        ("Nutze nur den folgenden Kontext, um die Frage zu beantworten:", "intro"),
    ],
)
def test_a_line_that_says_what_follows_is_a_mark(line, kind):
    assert kinds(f"{line}\nThe mill turns with the tide.\n\nIt rests at night.") == [kind]


@pytest.mark.parametrize(
    "line",
    [
        "The mill turns with the tide.",
        "Opening hours:",
        "Knowledge cutoff: June",
        "He asked his father:",
        "The source of the river lies in the hills.",
        "12:30",
        "-- two dashes",
        "",
    ],
)
def test_other_lines_are_none(line):
    assert kinds(f"{line}\nThe mill turns with the tide.\n\nIt rests at night.") == []


def test_labels_in_a_fence_of_code_are_code():
    assert kinds("```python\nContext:\n```\nContext:\n") == ["rule", "rule", "context"]
    assert kinds("```text\nContext:\n```") == ["rule", "context", "rule"]


def test_a_mark_says_where_its_body_begins():
    said = "Sources:\nOne.\nQuestion: how far?"
    assert [said[mark.body :] for mark in find_marks(IndexedText(said))] == ["One.\nQuestion: how far?", "how far?"]


def test_of_a_long_text_the_beginning_and_the_end_are_read():
    filler = "The mill turns.\n" * ((HEAD + TAIL) // 16 + 10)
    assert kinds(f"Context:\n{filler}Question: how far?") == ["context", "question"]
    assert kinds(f"{'The mill turns.' * 9000}\nContext:\n{filler}") == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [("context", "context"), ("user question", "question"), ("rules", "instruction"), ("colour", None), ("", None)],
)
def test_a_name_that_stands_alone(name, kind):
    found = kind_of(name)
    assert (found[0] if found else None) == kind


def test_part_of_a_text_has_the_words_of_that_part():
    said = "Context: one. Question: two?"
    whole, part = IndexedText(said), IndexedText(said).part(14, len(said))
    assert part.text == "Question: two?"
    assert (part.found("question", 0, 99), part.has("context", 0, 99)) == ([(0, 8)], False)
    assert whole.found("question", 0, 99) == [(14, 22)]


@pytest.mark.parametrize("said", ["İİİ Context: a", "\ud800 Context: a", "ẞ Context: a"])
def test_odd_letters_leave_offsets_as_they_are(said):
    text = IndexedText(said)
    assert [said[at:stop] for at, stop in text.found("context", 0, len(said))] in (["Context"], ["ontext:"])
    assert len(text.lower) == len(said)


def bodies(said):
    text = IndexedText(said)
    return [text.text[block.start : block.end].strip() for block in candidates(text)]


@pytest.mark.parametrize(
    "prompt",
    [
        "Context:\nThe mill turns with the tide.\n\nQuestion: when?",
        "<context>\nThe mill turns with the tide.\n</context>\nWhen?",
        "Answer from the following passages:\n---\nThe mill turns with the tide.\n---\n\nQuestion: when?",
        "Question: when?\n\nContext:\nThe mill turns with the tide.\n\nAnswer:",
        "## Sources\nThe mill turns with the tide.\n\n## Rules\nAnswer from the sources.\n\n## Question\nwhen?",
        "Answer from the context. Context: The mill turns with the tide.\nQuestion: when?",
        "Question: when?\n###\nThe mill turns with the tide.\n###",
        "The mill turns with the tide.\n\nQuestion: when?",
        "Kontext:\nThe mill turns with the tide.\n\nBeantworte die Frage nur anhand des Kontexts.\n\nFrage: wann?",
    ],
)
def test_a_block_ends_where_the_question_or_the_instructions_begin(prompt):
    assert bodies(prompt)[0] == "The mill turns with the tide."


@pytest.mark.parametrize(
    "prompt",
    [
        "The mill turns with the tide.",
        "<div>The mill turns</div>",
        "<instructions>Be kind.</instructions>",
        "Use the <context> tag in your answer.",
        "```html\n<context>\na\n</context>\n```",
    ],
)
def test_what_announces_nothing_has_no_block(prompt):
    assert bodies(prompt) == []


@pytest.mark.parametrize(
    ("phrase", "kind"),
    [
        ("Question de l'administré", "question"),
        ("Domanda del cittadino", "question"),
        ("Pytanie klienta", "question"),
        ("Extraits du guide", "context"),
        ("Выдержки руководства", "context"),
        ("Pages matching the query", "context"),
        ("Snippets that may be relevant", "context"),
        ("Filing excerpts", "context"),
        ("Output format", "instruction"),
    ],
)
def test_the_first_noun_of_a_label_says_what_it_names(phrase, kind):
    found = kind_of(phrase)
    assert found is not None
    assert found[0] == kind


def test_a_word_is_found_behind_letters_that_another_entry_shares_with_it():
    text = IndexedText("Give a concise answer.")  # "se a" opens sentences in Portuguese
    assert text.has("answer", 0, len(text.text))


def test_a_label_within_a_passage_opens_no_block():
    passages = "1) Refunds: within two weeks, as the rules for all plans say.\n2) Exporting data: as a file."
    prompt = f"KNOWLEDGE BASE\n{passages}\n\nQuestion: when?"
    assert [one.header for one in candidates(IndexedText(prompt))] == ["label 'knowledge base'"]
