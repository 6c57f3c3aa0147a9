"""The score without an LLM: shared words, what the evidence names, scripts, and hostile texts."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import tracemalloc

import pytest

from gaugeway.records import Context, Sample, Score, Skipped
from gaugeway.settings.shared import Metric
from monitors.metrics.lexical_groundedness import (
    MAX_CONTEXT_CHARACTERS,
    MAX_EVIDENCE,
    MAX_MISSING,
    MAX_RESPONSE_CHARACTERS,
    LexicalGroundedness,
)
from monitors.metrics.registry import draft

METRIC = LexicalGroundedness()
LAMP = (
    "The Orla lamp by Ode & Sons runs for 9 hours on one charge. It weighs 1,234.5 g and costs 79 euros. "
    "The battery is not replaceable. Ghent has been the home of the company since 1987."
)
RIVER = "Otters live along the river. They eat fish and crabs, and sleep in dens close to the water."


def sample(response, *contexts):
    contexts = tuple(Context(text=text) for text in contexts or (LAMP, RIVER))
    return Sample(id="s", started_at=0.0, response=response, contexts=contexts)


def score(response, *contexts):
    return asyncio.run(METRIC.score(sample(response, *contexts)))


def test_a_copied_answer_scores_1():
    assert score("It weighs 1,234.5 g and costs 79 euros. The battery is not replaceable.").value == 1.0
    assert score("The battery is not replaceable.").value == 1.0


def test_an_invented_answer_scores_far_below_a_copied_one_and_a_paraphrase_between():
    copied = score("The Orla lamp runs for 9 hours on one charge. The battery is not replaceable.").value
    paraphrased = score("On one charge the Orla runs 9 hours, and its battery is not replaceable.").value
    invented = score("Mount Kalo erupted in 1652 and buried Tessaro. Nobody rebuilt its harbour afterwards.").value
    assert copied > 0.9
    assert invented < 0.25
    assert invented + 0.3 < paraphrased < copied


def test_the_score_is_nine_tenths_words_and_a_tenth_pairs():
    result = score("Otters eat lamps. Otters eat xylophones.", "Otters eat fish.", "Lamps shine.")
    words, pairs = 3 / 4, 1 / 3  # not "xylophones"; "otters eat", but not "eat lamps" nor "eat xylophones"
    assert result.value == pytest.approx(0.9 * words + 0.1 * pairs)
    assert [piece["score"] for piece in result.evidence] == [1.0, round(2 / 3, 4)]
    assert score("Otters.", "Otters eat fish.").value == 1.0, "one word has no pairs"


def test_a_pair_never_spans_two_contexts():
    assert score("eat lamps", "They eat", "lamps").value == pytest.approx(0.9)
    assert score("eat lamps", "They eat lamps").value == 1.0


def test_words_in_another_form_are_the_same():
    assert score("replaceability", LAMP).evidence[0]["missing_words"] == []
    assert score("Refunds", "A refund").value == 1.0


@pytest.mark.parametrize(
    ("said", "given"),
    [("1234.5", "1,234.5"), ("1.234,5", "1,234.5"), ("12,345", "12345"), ("0.50", "0,5"), ("007", "7")],
)
def test_a_number_may_be_written_in_several_ways(said, given):
    result = score(f"The total weight is {said} here.", f"The total weight is {given} here.")
    assert result.evidence[0]["unsupported_numbers"] == []


@pytest.mark.parametrize(("said", "given"), [("12", "9"), ("1234.6", "1,234.5"), ("12.5", "125"), ("1,000", "1001")])
def test_another_number_is_named(said, given):
    wrong = score(f"The total weight is {said} here.", f"The total weight is {given} here.")
    assert wrong.evidence[0]["unsupported_numbers"] == [said]


def test_list_marks_and_citations_are_no_numbers():
    result = score("1. It costs 79 euros [2].\n2. It weighs 1234.5 g [1, 3].")
    assert [piece["unsupported_numbers"] for piece in result.evidence] == [[], []]


def test_a_name_that_is_nowhere_is_named():
    right, wrong = (score(f"Home of the company is {name}.") for name in ("Ghent", "Bruges"))
    assert (right.evidence[0]["unsupported_names"], wrong.evidence[0]["unsupported_names"]) == ([], ["Bruges"])
    assert score("The lamp is Orla\u2019s and Ghent's pride.").evidence[0]["unsupported_names"] == []
    assert score("Bruges is home.").evidence[0]["unsupported_names"] == [], "a sentence's first word has a capital"


def test_nouns_of_german_are_no_names():
    text = "Die Lampe steht in der Ecke und sie ist nicht mit dem Kabel im Karton."
    evidence = score(text, "Die Lampe ist neu.").evidence[0]
    assert "kabel" in evidence["missing_words"]
    assert evidence["unsupported_names"] == []


def test_what_is_missing_stands_with_its_sentence():
    result = score("The Orla lamp runs for 12 hours on one charge. It was made by Karl Tessaro in Ghent.")
    found = [
        (piece["sentence"], piece["missing_words"], piece["unsupported_numbers"], piece["unsupported_names"])
        for piece in result.evidence
    ]
    assert found == [
        ("The Orla lamp runs for 12 hours on one charge.", ["12"], ["12"], []),
        (
            "It was made by Karl Tessaro in Ghent.",
            ["was", "made", "karl", "tessaro"],
            [],
            ["Karl", "Tessaro"],
        ),
    ]


@pytest.mark.parametrize(
    ("copied", "invented", "context"),
    [
        ("東京は日本の首都です。", "大阪に古い火山があります。", "東京は日本の首都です。人口は千四百万人です。"),
        ("서울은 한국의 수도이다.", "부산에는 오래된 화산이 있다.", "서울은 한국의 수도이다. 인구는 천만 명이다."),
        ("กรุงเทพเป็นเมืองหลวงของไทย", "เชียงใหม่มีภูเขาไฟเก่า", "กรุงเทพเป็นเมืองหลวงของไทย"),
        ("दिल्ली भारत की राजधानी है।", "मुंबई में पुराना ज्वालामुखी मिला।", "दिल्ली भारत की राजधानी है।"),
        (
            "Die Brücke wurde 1902 eröffnet.",
            "Ein Vulkan verschüttete Tessaro.",
            "Die Bru\u0308cke wurde 1902 ero\u0308ffnet.",
        ),
        ("القاهرة عاصمة مصر الكبيرة", "دفن البركان مدينة قديمة", "القاهرة عاصمة مصر الكبيرة"),
    ],
)
def test_every_script_is_compared(copied, invented, context):
    assert score(copied, context).value > 0.95
    assert score(invented, context).value < 0.3


def test_the_best_context_is_named():
    result = score("Otters eat fish and crabs. The battery is not replaceable.")
    assert [piece["context"] for piece in result.evidence] == [1, 0]
    assert score("Otters eat fish and crabs.", " ", RIVER).evidence[0]["context"] == 1


@pytest.mark.parametrize(
    ("response", "contexts", "reason"),
    [
        (" ", (LAMP,), "no_response"),
        ("It costs 79 euros.", (" ",), "no_contexts"),
        ("It costs 79 euros.", ("\u2014 \U0001f600",), "no_contexts"),
        ("\U0001f600", (LAMP,), "no_claims"),
        ("Shall I tell you more about it?", (LAMP,), "no_claims"),
        ("It costs 79 euros.", ("a" * (MAX_CONTEXT_CHARACTERS + 1),), "too_long"),
        ("a" * (MAX_RESPONSE_CHARACTERS + 1), (LAMP,), "too_long"),
    ],
)
def test_nothing_to_compare_is_skipped(response, contexts, reason):
    assert score(response, *contexts) == Skipped(reason)


def test_a_sample_without_contexts_is_skipped():
    assert asyncio.run(METRIC.score(Sample(id="s", started_at=0.0, response="x y z"))) == Skipped("no_contexts")


def test_closing_questions_are_not_judged():
    result = score("It costs 79 euros. Would you like me to order Tessaro too?")
    assert len(result.evidence) == 1


@pytest.mark.parametrize(("pad", "number"), [("[EMAIL_7f3ac1]", 1.0), ("[EMAIL_abc999]", 6 / 7)])
def test_a_placeholder_of_redaction_is_a_name_and_a_value(pad, number):
    result = score(f"Please write to {pad} about it.", "Please write to [EMAIL_7f3ac1] about it.")
    assert result.evidence[0]["score"] == round(number, 4)
    assert (result.evidence[0]["unsupported_numbers"], result.evidence[0]["unsupported_names"]) == ([], [])


def test_of_many_sentences_the_least_grounded_are_shown_in_their_order():
    said = [f"The lamp of {n + 100} kg is grey." if n % 2 else "It costs 79 euros." for n in range(3 * MAX_EVIDENCE)]
    shown = [piece["sentence"] for piece in score(" ".join(said), "It costs 79 euros.").evidence]
    assert shown == said[1 : 2 * MAX_EVIDENCE : 2]


def test_of_many_missing_words_the_first_are_shown():
    said = [f"w{n}" for n in range(2 * MAX_MISSING)]
    assert score(" ".join(said)).evidence[0]["missing_words"] == said[:MAX_MISSING]


def words(count, seed):
    rng = random.Random(seed)
    pool = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(400)]
    return ". ".join(" ".join(rng.choices(pool, k=15)).capitalize() for _ in range(count // 15)) + "."


@pytest.mark.full
@pytest.mark.parametrize(
    "text",
    ["a. ", "Ada Bo ", "1 234 ", "$", "6 May ", "-1", "[A_", "Dr. ", "1.2", "a", "東", "1,", "? ", "\n- ", "\u0301"],
)
def test_hostile_texts_end_soon_and_in_range(text):
    text *= 120_000 // len(text)
    started = time.process_time()
    assert isinstance(score(text + " end of it.", text + " end of it."), Score)
    assert time.process_time() - started < 10.0


def test_long_prose_takes_little_memory():
    context = words(20_000, 5)
    tracemalloc.start()
    try:
        assert isinstance(score(context[:2000], context), Score)
        assert tracemalloc.get_traced_memory()[1] < 100 * len(context)
    finally:
        tracemalloc.stop()


class Watching(LexicalGroundedness):
    """Knows in which threads it scored."""

    def __init__(self):
        super().__init__()
        self.threads = []

    def _score(self, sample):
        self.threads.append(threading.current_thread() is threading.main_thread())
        return super()._score(sample)


@pytest.mark.parametrize(("size", "here"), [(1_000, True), (250_000, False)])
def test_a_huge_text_is_scored_beside_the_event_loop(size, here):
    metric = Watching()
    long = sample("The battery is not replaceable.", LAMP * (size // len(LAMP) + 1))
    assert metric.scores_at_once(long) is here
    assert asyncio.run(metric.score(long)).value == 1.0
    assert metric.threads == [here]


async def test_while_a_long_sample_is_scored_no_other_is_scored_at_once():
    begun, go_on = threading.Event(), threading.Event()

    class Slow(LexicalGroundedness):
        def _score(self, sample):
            begun.set()
            go_on.wait(10.0)
            return super()._score(sample)

    metric = Slow()
    task = asyncio.ensure_future(metric.score(sample("It costs 79 euros.", "a " * 150_000)))
    await asyncio.to_thread(begun.wait, 10.0)
    assert not metric.scores_at_once(sample("It costs 79 euros."))
    go_on.set()
    assert isinstance(await task, Score)
    assert metric.scores_at_once(sample("It costs 79 euros."))


def test_the_metric_has_no_options_of_its_own():
    given = Metric(options={"weights": 1})
    (problem,) = draft({"lexical_groundedness": given}, None, None).problems
    assert problem.endswith("unknown option; known: enabled, rate, threshold, objective, calibration")
