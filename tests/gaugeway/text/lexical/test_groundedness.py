"""The score without an LLM: numbers, names, scripts, recurring passages, and hostile texts."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import tracemalloc
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.records import Context, Sample, Score, Skipped
from gaugeway.text.lexical import sentences as tokens
from gaugeway.text.lexical.matching import LONGEST_RUN, Source, compare
from gaugeway.text.lexical.passages import PassageCache
from gaugeway.text.lexical.vocabulary import shipped
from gaugeway.text.normalising import nfkc
from monitors.metrics.lexical_groundedness import MAX_EVIDENCE, LexicalGroundedness

METRIC = LexicalGroundedness()
LAMP = (
    "The Orla lamp by Ode & Sons runs for 9 hours on one charge. It weighs 1,234.5 g and costs 79 euros. "
    "The battery is not replaceable. Ghent has been the home of the company since 1987."
)
RIVER = "Otters live along the river. They eat fish and crabs, and sleep in dens close to the water."


def score(response, *contexts):
    contexts = tuple(Context(text=text) for text in contexts or (LAMP, RIVER))
    return asyncio.run(METRIC.score(Sample(id="s", started_at=0.0, response=response, contexts=contexts)))


def test_a_copied_answer_scores_1():
    assert score("It weighs 1,234.5 g and costs 79 euros. The battery is not replaceable.").value == pytest.approx(1.0)


def test_an_invented_answer_scores_far_below_a_copied_one_and_a_paraphrase_between():
    copied = score("The Orla lamp runs for 9 hours on one charge. The battery is not replaceable.").value
    paraphrased = score("On one charge the Orla runs 9 hours, and its battery is not replaceable.").value
    invented = score("Mount Kalo erupted in 1652 and buried Tessaro. Nobody rebuilt its harbour afterwards.").value
    assert copied > 0.9
    assert invented < 0.15
    assert invented + 0.3 < paraphrased < copied


def test_the_score_is_the_mean_of_the_words_share_and_the_mean_sentence():
    result = score("It weighs 1,234.5 g and costs 79 euros. Xylophones vanish.")
    first, second = (one["score"] for one in result.evidence)
    words = 2 * result.value - (first + second) / 2
    assert second == 0.0
    assert 0.5 < words < 1.0, "two of eleven words stand nowhere"


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ("1234.5", "1,234.5"),
        ("1.234,5", "1,234.5"),
        ("1'234.5", "1,234.5"),
        ("1\u202f234,5", "1,234.5"),
        ("12,345", "12345"),
        ("1.234", "1234"),
        ("0.50", ".5 or 0,5"),
        ("2 million", "2,000,000"),
        ("1.5 billion", "1500 million"),
        ("1234.5kg", "1 234.5 kg or 1234.5 kg"),
        ("\u0663", "3"),
        ("\uff11\uff12", "12"),
        ("3", "three"),
        ("007", "7"),
        ("1.234,567", "1234.567"),
        ("1,234,567", "1234567"),
        ("0.500", "0.5"),
        ("1.2.3", "version 1.2.3"),
    ],
)
def test_a_number_may_be_written_in_several_ways(said, given):
    result = score(f"The total weight is {said} here.", f"The total weight is {given} here.")
    assert result.evidence[0]["unsupported_numbers"] == []


@pytest.mark.parametrize(
    ("said", "given"),
    [("12", "9"), ("1234.6", "1,234.5"), ("2 million", "2 apples"), ("12.5", "125"), ("1,000", "1001")],
)
def test_another_number_costs_and_is_named(said, given):
    right = score(f"The total weight is {given} here.", f"The total weight is {given} here.")
    wrong = score(f"The total weight is {said} here.", f"The total weight is {given} here.")
    assert wrong.evidence[0]["unsupported_numbers"] == [said]
    assert wrong.value < right.value - 0.15


def test_list_marks_and_citations_are_no_numbers():
    result = score("1. It costs 79 euros [2].\n2. It weighs 1234.5 g [1, 3].")
    assert [one["unsupported_numbers"] for one in result.evidence] == [[], []]


def test_a_name_that_is_nowhere_costs_and_is_named():
    right, wrong = (score(f"Home of the company is {name}.") for name in ("Ghent", "Bruges"))
    assert (right.evidence[0]["unsupported_names"], wrong.evidence[0]["unsupported_names"]) == ([], ["Bruges"])
    assert wrong.value < right.value - 0.1


def test_a_possessive_is_the_same_name():
    assert score("The lamp is Orla\u2019s and Ghent's pride.").evidence[0]["unsupported_names"] == []


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
    assert [one["context"] for one in result.evidence] == [1, 0]
    result = score("Otters eat fish and crabs.", " ", RIVER)
    assert result.evidence[0]["context"] == 1


def test_a_window_never_spans_two_contexts():
    apart = score("Otters eat lamps in Ghent.", "Otters eat.", "Lamps in Ghent.")
    together = score("Otters eat lamps in Ghent.", "Otters eat. Lamps in Ghent.")
    assert apart.value < together.value


@pytest.mark.parametrize(
    ("response", "contexts", "reason"),
    [
        (" ", (LAMP,), "no_response"),
        ("It costs 79 euros.", (" ",), "no_contexts"),
        ("It costs 79 euros.", ("\u2014 \U0001f600",), "no_contexts"),
        ("\U0001f600", (LAMP,), "no_claims"),
        ("Shall I tell you more about it?", (LAMP,), "no_claims"),
    ],
)
def test_nothing_to_compare_is_skipped(response, contexts, reason):
    assert score(response, *contexts) == Skipped(reason)
    assert asyncio.run(METRIC.score(Sample(id="s", started_at=0.0, response="x y z"))) == Skipped("no_contexts")


def test_closing_questions_are_not_judged():
    result = score("It costs 79 euros. Would you like me to order Tessaro too?")
    assert len(result.evidence) == 1


def test_the_same_sample_always_scores_the_same():
    first = score("On one charge Orla runs 9 hours, not 12.")
    assert all(score("On one charge Orla runs 9 hours, not 12.") == first for _ in range(3))


def test_sentences_end_where_they_should():
    texts = [
        one.text
        for one in tokens.sentences(
            "Dr. Ode came at 3.5 p.m. on Monday. She left. \u304a\u308f\u308a\u3002\u6b21\u306e\u6587\u3067\u3059\u3002"
        )
    ]
    assert texts[0].startswith("Dr. Ode came at 3.5 p.m. on Monday")
    assert len(texts) >= 2


def words(count, seed):
    rng = random.Random(seed)
    pool = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(400)]
    return ". ".join(" ".join(rng.choices(pool, k=15)).capitalize() for _ in range(count // 15)) + "."


@pytest.mark.full
@pytest.mark.parametrize(
    "text",
    [
        "a. " * 30_000,
        "Ada Bo " * 15_000,
        "1 234 " * 10_000,
        "$" * 50_000,
        "6 May " * 12_000,
        "twenty " * 9_000,
        "-1" * 30_000,
        "[A_" * 20_000,
        "Dr. " * 15_000,
        "the " * 20_000,
        "1.2" * 20_000,
        "a" * 60_000,
        "東" * 30_000,
        "1," * 20_000,
        "? " * 9_000,
    ],
)
def test_hostile_texts_end_soon_and_in_range(text):
    started = time.process_time()
    outcome = score(text + " end of it.", text + " end of it.")
    assert time.process_time() - started < 10.0
    assert isinstance(outcome, Score) or outcome == Skipped("too_long")


@pytest.mark.full
@pytest.mark.parametrize(
    ("response", "context"),
    [
        ("It costs 79 euros.", "1 " * 480_000),
        ("It costs 79 euros.", "1-" * 480_000),
        ("1 " * 60_000, LAMP),
        ("a " * 110_000, LAMP),
    ],
    ids=["numbers", "ranges", "numbers in the response", "words in the response"],
)
def test_what_takes_too_much_time_and_memory_is_skipped(response, context):
    assert score(response, context) == Skipped("too_long")


def test_long_prose_takes_little_memory():
    context = words(20_000, 5)
    tracemalloc.start()
    try:
        assert isinstance(score(context[:2000], context), Score)
        assert tracemalloc.get_traced_memory()[1] < 100 * len(context)
    finally:
        tracemalloc.stop()


def test_of_many_sentences_the_least_grounded_are_shown_in_their_order():
    said = [f"The lamp of {n} kg is grey." if n % 2 else "It costs 79 euros." for n in range(3 * MAX_EVIDENCE)]
    shown = [one["sentence"] for one in score(" ".join(said), "It costs 79 euros.").evidence]
    assert shown == said[1 : 2 * MAX_EVIDENCE : 2]


WORDS = st.sampled_from(["alpha", "bravo", "carol"])


@given(
    st.lists(st.lists(WORDS, min_size=3, max_size=12), min_size=1, max_size=4),
    st.lists(st.lists(st.one_of(WORDS, st.just("delta")), min_size=3, max_size=12), min_size=1, max_size=3),
)
def test_runs_are_found_exactly(texts, said):
    def runs(words, length):
        return set(zip(*(words[at:] for at in range(length)), strict=False))

    passages = PassageCache(shipped())
    contexts = [(at, " ".join(one), passages.get(" ".join(one), tokens.Allowance())) for at, one in enumerate(texts)]
    source = Source(contexts, passages.vocabulary)
    _, compared = compare([tokens.parse(" ".join(one)) for one in said], source)
    there = {length: set().union(*(runs(text, length) for text in texts)) for length in range(1, LONGEST_RUN + 1)}
    for words, one in zip(said, compared, strict=True):
        assert one.bigrams == pytest.approx(sum(pair in there[2] for pair in pairwise(words)) / (len(words) - 1))
        most = max((length for length in there if runs(words, length) & there[length]), default=0)
        assert one.run == pytest.approx(most / min(LONGEST_RUN, len(words)))


@pytest.mark.parametrize("row", ["\u0301\u0316", "\uff9e\u0316", "\u0f73\u0301\u0316", "\u0344\u0327"])
def test_rows_of_combining_marks_are_normalised_in_linear_time(row):
    assert len(nfkc("a" + row * 300_000 + "b" + row)) < 100
    assert nfkc("a" + row * 10) == unicodedata.normalize("NFKC", "a" + row * 10)


@given(st.text())
def test_ordinary_text_is_normalised_as_unicode_says(text):
    assert nfkc(text) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize("written", ["1,000", "1.000", "1'000", "1000", "1\u202f000"])
def test_a_number_is_one_word_however_it_is_grouped(written):
    assert tokens.parse(f"about {written} people").tokens == ("about", "1000", "people")


class Watching(LexicalGroundedness):
    """Knows in which threads it scored."""

    def __init__(self):
        super().__init__()
        self.threads = []

    def _score(self, sample):
        self.threads.append(threading.current_thread() is threading.main_thread())
        return super()._score(sample)


@pytest.mark.parametrize(("size", "here"), [(1_000, True), (60_000, False)])
def test_a_huge_text_is_scored_beside_the_event_loop(size, here):
    metric = Watching()
    sample = Sample(
        id="s",
        started_at=0.0,
        response="The battery is not replaceable.",
        contexts=(Context(text=LAMP * (size // len(LAMP) + 1)),),
    )
    assert asyncio.run(metric.score(sample)).value == pytest.approx(1.0)
    assert metric.threads == [here]


def test_a_passage_that_was_seen_scores_the_same():
    metric = LexicalGroundedness()
    contexts = (Context(text=LAMP), Context(text=RIVER), Context(text=words(300, 8)))
    sample = Sample(id="s", started_at=0.0, response="On one charge the Orla runs 9 hours.", contexts=contexts)
    first = asyncio.run(metric.score(sample))
    again = asyncio.run(metric.score(sample))
    assert (first, metric.passages.misses, metric.passages.hits) == (again, 3, 3)
    assert asyncio.run(LexicalGroundedness().score(sample)) == first


def test_the_passages_used_last_are_kept_within_the_memory_whatever_their_length():
    for length in (5, 150):
        kept = PassageCache(shipped(), max_bytes=20_000)
        texts = [f"{words(length, seed)} {seed}" for seed in range(40)]
        for text in [*texts, texts[-1]]:
            kept.trim()
            assert kept.bytes <= 20_000
            kept.get(text, tokens.Allowance())
        assert kept.hits == 1, "the last one is still there"
        assert 1_200 * len(kept) < kept.bytes < 25_000
        kept.get(texts[0], tokens.Allowance())
        assert kept.hits == 1, "the first one is not"


def test_a_full_vocabulary_forgets_words():
    kept = PassageCache(shipped(), max_words=500)
    for seed in range(20):
        kept.trim()
        assert len(kept.vocabulary) <= 500
        passage = kept.get(words(150, seed), tokens.Allowance())
        assert passage.words.max() < len(kept.vocabulary)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("It was built in Fresno, CA. It is open today.", ["Fresno", "CA"]),
        ("We took Vitamin C. It helped us a lot.", ["Vitamin"]),
        ("They met St. Odo and Dr. Ode there.", ["St. Odo", "Dr. Ode"]),
        ("They met J. R. Orla there.", ["Orla"]),
        ("He moved to Ghent. Tessaro stayed.", ["Ghent"]),
    ],
)
def test_a_name_ends_with_its_sentence(text, names):
    assert [name.text for one in tokens.sentences(text) for name in one.names] == names


def seconds(times):
    response, context = words(150 * times, 3), words(500 * times, 4)
    sample = Sample(id="s", started_at=0.0, response=response, contexts=(Context(text=context),))
    metric = LexicalGroundedness()
    started = time.process_time()
    asyncio.run(metric.score(sample))
    return time.process_time() - started


@pytest.mark.full
def test_time_grows_with_the_text_and_not_with_its_square():
    seconds(1)
    assert min(seconds(64) for _ in range(2)) < 16 * 6 * min(seconds(4) for _ in range(3))


@pytest.mark.parametrize(
    "placeholder", ["[EMAIL_7f3ac1]", "[PHONE_123456]", "[OWN_PATTERN_2_00ff00]", "[WITHHELD_7f3ac1]"]
)
def test_a_placeholder_of_redaction_is_an_ordinary_word(placeholder):
    right = score(f"Please write to {placeholder} about the lamp.", f"Please write to {placeholder} about the lamp.")
    assert right.value == pytest.approx(1.0)
    other = placeholder[:-7] + "abc999]"
    wrong = score(f"Please write to {other} about the lamp.", f"Please write to {placeholder} about the lamp.")
    assert (wrong.evidence[0]["unsupported_numbers"], wrong.evidence[0]["unsupported_names"]) == ([], [])
    assert wrong.evidence[0]["overlap"] < 0.95, "another value is another word"
    assert tokens.parse(f"Ask {placeholder} now").tokens == ("ask", placeholder.casefold(), "now")


def test_every_unsupported_number_and_name_stands_with_its_sentence():
    result = score(
        "The Orla lamp runs for 12 hours on one charge. It was made by Karl Tessaro in Ghent since 6 May 1985.",
        LAMP,
    )
    found = [(one["sentence"], one["unsupported_numbers"], one["unsupported_names"]) for one in result.evidence]
    assert found == [
        ("The Orla lamp runs for 12 hours on one charge.", ["12 hours"], []),
        ("It was made by Karl Tessaro in Ghent since 6 May 1985.", ["6 May 1985"], ["Karl Tessaro"]),
    ]


def test_samples_scored_at_once_do_not_mix():
    metric = LexicalGroundedness()
    samples = [
        Sample(id=str(n), started_at=0.0, response=f"It costs {n} euros.", contexts=(Context(text=words(9_000, n)),))
        for n in range(8)
    ]

    async def together():
        return await asyncio.gather(*(metric.score(sample) for sample in samples))

    for n, outcome in enumerate(asyncio.run(together())):
        assert outcome.evidence[0]["sentence"] == f"It costs {n} euros."


async def test_who_gives_up_a_long_score_waits_for_its_thread(monkeypatch):
    """The next score may use the vocabulary only then."""
    metric, ended = LexicalGroundedness(), threading.Event()
    started, go_on = threading.Event(), threading.Event()

    def slow(_):
        started.set()
        go_on.wait(10.0)
        ended.set()
        return Skipped("no_claims")

    monkeypatch.setattr(metric, "_score", slow)
    sample = Sample(id="s", started_at=0.0, response="A word. " * 10_000, contexts=(Context(text=LAMP),))
    task = asyncio.ensure_future(metric.score(sample))
    await asyncio.to_thread(started.wait, 10.0)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    go_on.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert ended.is_set()
