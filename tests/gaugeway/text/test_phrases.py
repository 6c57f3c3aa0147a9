import json
import time
from pathlib import Path

import pytest

from gaugeway.text.phrases import Phrases, addresses_judge

CORPORA = Path(__file__).parents[2] / "corpora"


def corpus(name):
    return [json.loads(line) for line in (CORPORA / name).read_text("utf-8").splitlines()]


def test_phrases_within_others_and_beside_half_of_a_surrogate_pair_are_found():
    phrases = Phrases(["tea", "the tea", "cup", "cup"])
    assert phrases.found_in("the tea \ud800 is hot") == {"tea", "the tea"}
    assert phrases.found_in("") == set()


def test_most_texts_for_a_judge_are_recognised_within_a_longer_text_in_every_language():
    rows = corpus("judge_injections.jsonl")
    assert (len(rows), len({row["language"] for row in rows})) == (60, 8)
    found = [row for row in rows if addresses_judge(f"The shop opens at nine.\n{row['text']}\nClosed on Sundays.")]
    assert len(found) >= 57
    assert {row["language"] for row in found} == {row["language"] for row in rows}


@pytest.mark.parametrize(
    "text",
    [
        "All claims must be supported by receipts, and every claim is supported by our team.",
        "Please rate this answer from 1 to 5.",
        "The judge marked each statement of the witness as true.",
        "Ignore the warning light until the pump has stopped; the rules of the house apply.",
        "Contestants get the highest score for the best response of the evening.",
        "Die Aussagen der Zeugen sind durch Belege gestützt, die wir prüfen.",
        "Toutes les demandes doivent être accompagnées de pièces.",
        "请在所有表格上签字。",
        "",
        "\ud800",
    ],
)
def test_ordinary_sentences_address_no_judge(text):
    assert not addresses_judge(text)


def test_the_shipped_documents_and_questions_address_no_judge():
    demo = Path(__file__).parents[3] / "gaugeway" / "demo" / "handbook.jsonl"
    texts = [json.loads(line)["text"] for line in demo.read_text("utf-8").splitlines()]
    texts += [json.dumps(row, ensure_ascii=False) for row in [*corpus("apps.jsonl"), *corpus("ordinary.jsonl")]]
    assert [text[:200] for text in texts if addresses_judge(text)] == []


def test_a_long_text_of_nothing_but_such_words_is_searched_in_linear_time():
    started = time.thread_time()
    for text in ("claim " * 40_000, "claim" * 40_000, "claim. " * 30_000):
        addresses_judge(text)
    assert time.thread_time() - started < 5.0
