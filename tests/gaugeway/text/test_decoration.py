"""Short and decorated refusals are recognised; decoration makes no refusal of an answer."""

import pytest

from gaugeway.text.abstention import abstained
from gaugeway.text.decoration import undecorated

REFUSALS = [
    "I don't know. [1][2]",
    "I don't know.\n\nSources: a.pdf, b.md",
    "I don't know.\n\n**References**\n- [a](https://example.com/a)\n- b.md",
    '{"answer":"I don\'t know","sources":[]}',
    '```json\n{"answer": "I do not know."}\n```',
    "<think>Let me look at the passages. They are about tax.</think>I don't know.",
    "They are about tax.</think>\nI don't know.",
    "> I don't know",
    '"I don\'t know."',
    "Hi Anna, I couldn't find anything about the parking permits.",
    "Thank you! Unfortunately, I don't have information about that in the documents. If you need more, let me know.",
    "No idea, sorry.",
    "There's nothing about that here.",
    "Hmm, I wasn't able to locate this in the handbook.",
    "This question falls outside of what I can help with.",
    "N/A",
    "Not specified.",
    "Unknown.",
    "Keine Ahnung.",
    "Mir ist dazu nichts bekannt.",
    "Je n'ai trouvé aucune information à ce sujet dans les documents.",
    "Cette information ne figure pas dans les sources.",
    "Aucune idée.",
    "Je l'ignore.",
    "Il n'y a rien à ce sujet dans les textes.",
    "Ni idea.",
    "Nessuna idea.",
    "Não faço ideia.",
    "Geen idee.",
    "Hiçbir fikrim yok.",
    "Понятия не имею.",
    "कोई जानकारी नहीं है।",
    "ليس لدي أي فكرة.",
    "未提及。[1]",
    "不明です。",
    "알 수 없음.",
]
ANSWERS = [
    "No information is stored on our servers.",
    "There is no information in the tag because the chip is write-protected until first use.",
    "Hi Anna, your refund was sent on Friday.",
    '{"answer": "Nine o\'clock", "note": "I don\'t know"}',
    "<think>I don't know.</think>It opens at nine. [1]",
    "Unknown errors are logged. [2]",
    "Sources: a.pdf, b.md",
    "[1][2]",
    "{}",
    "Thank you for your question!",
    "> I don't know.\nRestart it.",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_it_declines(text):
    assert abstained(text)


@pytest.mark.parametrize("text", ANSWERS)
def test_it_answers(text):
    assert not abstained(text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"status": "unknown"}', '{"status": "unknown"}'),
        ('{"answer": 7, "text": "Seven."}', "Seven."),
        ("Answer: It opens at nine.\n\nBest regards\nThe team", "It opens at nine."),
        ("Good morning! Thanks for asking. It opens at nine【4†source】.", "It opens at nine ."),
        ('"Nine" or "ten".', '"Nine" or "ten".'),
        ("Dear is the price of freedom.", "Dear is the price of freedom."),
        ("x" * 30_000, "x" * 30_000),
    ],
)
def test_only_the_answers_own_words_are_left(text, left):
    assert undecorated(text) == left


@pytest.mark.parametrize(
    "piece", ["[1", "</think>", "Sources:\n", "- ", "hi ", "thanks ", "\n", "> ", '"', "{", "```{", "best "]
)
def test_hostile_texts_take_bounded_time(piece):
    assert abstained((piece * 20_000)[:20_000]) in (True, False)
