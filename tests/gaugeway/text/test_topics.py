"""Topics: the same questions always give the same ones, and they part what is about different things."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gaugeway.text.topics import NAMELESS, UNLIKE, narrow_and_broad_topics, topics

ABOUT = {
    "travel": ["hotel", "flight", "booking", "passport", "airport", "luggage", "visa", "ticket"],
    "kitchen": ["oven", "recipe", "butter", "flour", "dough", "baking", "sugar", "whisk"],
    "garden": ["roses", "soil", "compost", "pruning", "hedge", "lawn", "seeds", "watering"],
}
GERMAN = {
    "Steuer": ["Steuer", "Finanzamt", "Bescheid", "Erklärung", "Frist", "Einspruch", "Freibetrag", "Pauschale"],
    "Umzug": ["Umzug", "Wohnung", "Kartons", "Vermieter", "Kaution", "Schlüssel", "Übergabe", "Adresse"],
}
JAPANESE = {
    "delivery": ["配送状況", "荷物追跡", "配達日時", "宅配業者", "配送料金"],
    "password": ["暗証番号", "再設定方法", "認証画面", "暗証変更", "認証番号"],
}


def asked(about, n, *, seed=0, frame="how do I find the {} for my {} and the {}"):
    rng = np.random.default_rng(seed)
    names = list(about)
    return {
        f"{name}-{index:04d}": frame.format(*rng.choice(about[name], 3, replace=False))
        for index in range(n)
        for name in [names[index % len(names)]]
    }


def purity(found):
    """The share of questions that are in their topic's majority."""
    pairs = Counter((label, sample.split("-")[0]) for sample, label in found.items())
    labels = {label for label, _ in pairs}
    return sum(max(n for (label, _), n in pairs.items() if label == one) for one in labels) / len(found)


@pytest.mark.parametrize(
    ("about", "frame"),
    [
        (ABOUT, "how do I find the {} for my {} and the {}"),
        (GERMAN, "Wie ist das mit {} und {}, wenn {} fehlt?"),
        (JAPANESE, "{}の{}について{}を教えてください"),
    ],
)
def test_questions_about_different_things_get_different_topics(about, frame):
    before, since = asked(about, 300, frame=frame), asked(about, 90, seed=1, frame=frame)
    since = {f"{key}-since": text for key, text in since.items()}
    found = topics(before, since, k=4)
    assert found.keys() == before.keys() | since.keys()
    assert purity(found) > 0.9
    assert len({found[key] for key in since}) > 1


def test_a_topic_is_called_by_its_words():
    found = topics(asked(ABOUT, 300), {}, k=3)
    for sample, label in found.items():
        if label != UNLIKE:
            words = label.removeprefix("topic:").split(", ")
            assert 2 <= len(words) <= 3
            assert set(words) <= set(ABOUT[sample.split("-")[0]])


def test_words_of_a_few_questions_stay_out_of_the_labels():
    before = asked(ABOUT, 300)
    before |= {f"travel-x{index}": "how do I find the hotel for Leocadia Brandywine" for index in range(2)}
    assert not any("leocadia" in label or "brandywine" in label for label in topics(before, {}).values())


@pytest.mark.full
def test_the_order_of_the_questions_and_the_process_do_not_matter():
    before = asked(ABOUT, 120)
    again = dict(reversed(before.items()))
    assert topics(before, {}) == topics(again, {})
    code = (
        "import json, sys; from gaugeway.text.topics import topics; "
        "print(json.dumps(topics(json.load(sys.stdin), {}), sort_keys=True))"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(before),
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[3],
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert json.loads(printed[0]) == topics(before, {})


def test_what_nobody_asked_before_is_unlike_it():
    chemistry = {"chemistry": ["acid", "titration", "solvent", "molar", "beaker", "enzyme", "polymer", "catalyst"]}
    since = asked(chemistry, 40)
    found = topics(asked(ABOUT, 300), since | {"empty": "", "marks": "??? 12 34"})
    assert all(found[key] == UNLIKE for key in (*since, "empty", "marks"))


def test_most_of_what_was_asked_before_is_like_it():
    found = topics(asked(ABOUT, 300), {f"s-{key}": text for key, text in asked(ABOUT, 90, seed=2).items()})
    assert sum(label == UNLIKE for label in found.values()) < 0.1 * len(found)


def test_a_handful_of_questions_has_no_topics():
    assert topics({}, {}) == {}
    assert topics(asked(ABOUT, 23), asked(ABOUT, 100)) == {}
    assert topics(asked(ABOUT, 24), {}) != {}


def test_questions_that_are_all_alike_or_say_nothing_are_no_error():
    same = {f"a-{index}": "where is the hotel" for index in range(100)}
    assert topics(same, same) == {}
    assert topics({f"a-{index}": "?!" for index in range(100)}, {}) == {}


def test_many_long_questions_are_learnt_from_in_part():
    before = asked(ABOUT, 4000)
    before |= {"long-1": "hotel " * 100_000}
    found = topics(before, {}, k=3)
    assert len(found) == len(before)
    assert purity(found) > 0.9


SHOP = {
    "returns": {
        "words": ["return", "refund", "exchange", "parcel", "receipt", "credit", "damaged"],
        "frames": [
            "How do I {} an item with a {}?",
            "Can I get a {} after the {} arrived?",
            "Is {} possible without {}?",
        ],
    },
    "warranty": {
        "words": ["warranty", "repair", "guarantee", "defect", "battery", "screen", "technician"],
        "frames": ["How long is the {} on the {}?", "Does the {} cover a {}?", "Who pays the {} for a broken {}?"],
    },
    "stores": {
        "words": ["store", "opening", "parking", "sunday", "pickup", "branch", "hours"],
        "frames": ["Is the {} open with {}?", "Where is the {} near {}?", "Which {} has {}?"],
    },
}
FILLING = ["customer", "yesterday", "problem", "urgent", "order", "december", "colleague", "support", "website"]


def shopping(subjects, n, *, filling=2, seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for index in range(n):
        name = subjects[index % len(subjects)]
        question = rng.choice(SHOP[name]["frames"]).format(*rng.choice(SHOP[name]["words"], 2, replace=False))
        found[f"{name}-{index:04d}"] = " ".join([question, *rng.choice(FILLING, rng.integers(filling + 1))])
    return found


@pytest.mark.parametrize("filling", [0, 2])
@pytest.mark.parametrize("n", [150, 900])
def test_questions_about_three_subjects_have_three_broad_topics(n, filling):
    questions = shopping(list(SHOP), n, filling=filling)
    narrow, broad = narrow_and_broad_topics(questions, k=11)
    counts = Counter(broad.values())
    del counts[UNLIKE]
    assert len(counts) == 3
    assert min(counts.values()) > 0.25 * n
    assert purity({one: label for one, label in broad.items() if label != UNLIKE}) > 0.95
    assert 8 <= len({*narrow.values()} - {UNLIKE}) <= 11


def test_the_only_subject_is_one_broad_topic_without_a_name():
    _, broad = narrow_and_broad_topics(shopping(["warranty"], 150), k=11)
    assert set(broad.values()) <= {NAMELESS, UNLIKE}


def test_narrow_topics_are_the_same_as_those_of_alerts():
    questions = asked(ABOUT, 300)
    assert narrow_and_broad_topics(questions, k=8)[0] == topics(questions, {}, k=8)
