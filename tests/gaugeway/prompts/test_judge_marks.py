"""Prompts that traffic alone does not explain: the judge marks one request, and later requests confirm or refute it."""

from itertools import islice
from random import Random

import pytest

from gaugeway.prompts.learning.frames import frame_of
from gaugeway.prompts.learning.judge_marks import LEAST_SEEN, MAX_MARKED_OF_KIND, Marked
from gaugeway.prompts.learning.learner import Learner
from tests.support.prompt_traffic import LAYOUTS, OTHERS, Sent, World, chat, traffic


def perfect(sent):
    return sent.question, tuple(sent.contexts)


class App:
    """An app's traffic through a learner, with somebody who marks what the learner asks about."""

    def __init__(self, mark=perfect, *, asks=True):
        self.learner = Learner(lambda: 7.0, salt=3, asks=asks)
        self.mark = mark
        self.marked = []
        self.events = []

    def send(self, sent: Sent) -> str:
        frame = frame_of(sent.request)
        found = self.learner.find("app", frame)
        for event in self.learner.observe("app", frame, found, None):
            self.events.append(event.kind)
            if event.kind == "asked":
                asked = event.template
                question, passages = self.mark(sent)
                self.marked.append(Marked("app", asked.kind, asked.literals[0], True, question, passages))
                self.learner.load(self.learner.templates(), self.marked)
        if found is None:
            return "none"
        same = [one.text.split() for one in found.contexts] == [one.split() for one in sent.contexts]
        return "exact" if same and found.question == sent.question else "wrong"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_prompt_whose_passages_never_come_again_is_learned_from_one_marked_request(seed):
    app = App()
    found = [app.send(one) for one in islice(traffic("plain_large", seed), LEAST_SEEN + 40)]
    assert app.events == ["asked", "learned"]
    assert "wrong" not in found
    assert found[-20:] == ["exact"] * 20


def test_without_being_told_to_nobody_is_asked():
    app = App(asks=False)
    assert {app.send(one) for one in islice(traffic("plain_large", 1), 80)} == {"none"}
    assert app.events == []


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_no_prompt_is_read_wrong_by_the_help_of_a_judge_that_is_right(name):
    app = App()
    assert "wrong" not in [app.send(one) for one in islice(traffic(name, 1), 70)]
    assert app.events.count("asked") <= MAX_MARKED_OF_KIND


def of_next(sent):
    return sent.question, ("A passage that does not stand there.",)


def without_the_last(sent):
    return sent.question, tuple(sent.contexts[:-1]) or ("none",)


def question_in_a_passage(sent):
    return sent.contexts[0], tuple(sent.contexts)


def nothing(sent):
    return "", ()


def all_as_one(sent):
    return sent.question, ("\n\n".join(sent.contexts),)


def swapped(sent):
    return "\n\n".join(sent.contexts), (sent.question,)


@pytest.mark.full
@pytest.mark.parametrize("mark", [of_next, without_the_last, question_in_a_passage, nothing, all_as_one, swapped])
def test_marks_that_do_not_reproduce_the_request_lead_to_nothing_and_are_asked_for_a_few_times_only(mark):
    app = App(mark)
    found = {app.send(one) for one in islice(traffic("plain_large", 1), 100)}
    assert app.events == ["asked"] * (2 if mark is nothing else MAX_MARKED_OF_KIND)
    assert found == {"none"}


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_judge_that_takes_any_text_for_passages_is_not_believed(name):
    app = App(lambda sent: ("it", tuple(frame_of(sent.request).text.split("\n")[:2])))
    assert {app.send(one) for one in islice(traffic(name, 1), 100)} == {"none"}


def test_a_template_is_used_only_when_two_more_requests_confirm_it():
    app = App()
    sents = islice(traffic("plain_large", 1), 80)
    while "asked" not in app.events:
        app.send(next(sents))
    assert [app.send(one) for one in islice(sents, 3)] == ["none", "none", "none"]
    assert app.events == ["asked", "learned"]
    assert app.send(next(sents)) == "exact"


def test_a_prompt_with_one_passage_is_learned_and_never_joins_several():
    world = World(Random(5))

    def sent(count):
        passages, question = world.some(count, count), world.question()
        text = "\n".join(f"[{number}] {one}" for number, one in enumerate(passages, 1)) if count > 1 else passages[0]
        return Sent(chat(("user", f"You help our guests.\n\n{text}\n\nThe guest asks: {question}")), question, passages)

    app = App()
    found = [app.send(sent(1 if number % 3 else 2)) for number in range(90)]
    assert "wrong" not in found


def test_an_app_is_asked_about_a_few_prompts_only():
    app = App(nothing)
    world = World(Random(2))
    for number in range(MAX_MARKED_OF_KIND + 4):
        opening = f"You are agent {chr(65 + number) * 6}, on duty in the {['north', 'south', 'east'][number % 3]}."
        for _ in range(LEAST_SEEN + 20):
            p, q = world.some(2, 5), world.question()
            body = "\n\n".join(p)
            app.send(Sent(chat(("user", f"{opening}\n\nRecords\n{body}\n\nAsked by phone: {q}\nReply:")), q, p))
    assert app.events.count("asked") <= MAX_MARKED_OF_KIND


def plaques(world, count, *, question=None, between="\n\n", behind="", text=str):
    passages = [text(one) for one in world.some(count, count)]
    asked = question or world.question()
    body = between.join(passages)
    opening = "You whisper while the guide sleeps.\n\nPlaques near the visitor.\n\n"
    prompt = f"{opening}{body}{behind}\n\nSomebody whispers: {asked}\nWhisper back:"
    return Sent(chat(("user", prompt)), asked, passages)


def of_many(seed, size=5_000):
    """Texts of which hardly any comes again."""
    return World(Random(seed), size=size)


def test_a_paragraph_that_stands_in_every_request_is_not_taken_for_a_passage():
    """Also where the judge, who saw one request only, marks it as one."""
    world, rule = of_many(7), "\n\nKeep your voice low, and never speak of money to anybody."
    app = App(lambda sent: (sent.question, (*sent.contexts, rule.strip())))
    found = [app.send(plaques(world, 2 + number % 2, behind=rule)) for number in range(80)]
    assert "wrong" not in found


@pytest.mark.parametrize("late", [0, 45])
def test_line_breaks_in_later_passages_do_not_cut_them(late):
    """The blank line between the marked passages counts, not that those of the marked request were lines."""
    world, random = of_many(8), Random(3)

    def broken(number):
        return lambda text: text.replace(". ", ".\n", 1) if number >= late and random.random() < 0.4 else text

    app = App()
    found = [app.send(plaques(world, 2 + number % 2, text=broken(number))) for number in range(100)]
    assert "wrong" not in found
    assert found[-20:].count("exact") >= 18


@pytest.mark.parametrize("between", ["\n\n", "\n~ ~ ~\n", "\n"])
def test_one_marked_passage_never_joins_several_later_ones(between):
    world = of_many(9)
    app = App()
    found = [app.send(plaques(world, 1 if number < 35 else 1 + number % 3, between=between)) for number in range(90)]
    assert "wrong" not in found


def test_a_dropped_template_is_not_learned_again_from_the_same_mark():
    world = of_many(10)
    app = App()
    for number in range(160):
        behind = "\n\nHeard earlier:\n" + world.question() if number >= 45 else ""
        app.send(plaques(world, 2 + number % 2, behind=behind))
    assert app.events.count("dropped") <= 1
    assert app.events.count("learned") - app.events.count("dropped") <= 1
