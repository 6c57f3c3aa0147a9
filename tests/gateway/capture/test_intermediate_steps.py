"""Answers that come back as passages or as the question are steps; what an app quotes, stores or repeats is not."""

import json

import pytest

from gateway.capture import result
from gateway.capture.factory import capture_of
from gateway.capture.intermediate_steps import IntermediateSteps
from gateway.capture.remembered_answers import AGE_S, RememberedAnswers
from gateway.config import Capture as Settings
from gaugeway.exchange import Explicit, Recording
from gaugeway.prompts import UserTemplate
from gaugeway.records import Context

PASSAGES = [
    "The pump of the mill at Aldermoor was replaced in 1987 after a long frost.",
    "Oats are soaked for nine hours before they go to the roller.",
    "The weir keeper opens both gates when the gauge shows two metres.",
    "A worn millstone is dressed every fourteen days by two people.",
    "Visitors may enter the loft on Saturdays between ten and noon.",
    "The ledger of 1911 lists forty sacks of barley for the brewery.",
]
WORDS = ["amber", "brisk", "cedar", "dusk", "ember", "flint", "grove", "heron", "inlet", "jade", "knoll", "larch"]
NOTES = {
    "en": "For the {thing} it is {a} that counts here, more than {b}. The rest of it speaks of {c} alone.",
    "de": "Beim Punkt {thing} zählt vor allem {a}, nicht so sehr {b}. Der Rest handelt nur von {c} und hilft nicht.",
    "ja": "{thing}については{a}が最も重要で、{b}はそれほどではない。残りは{c}のことだけを述べている。",
    "ru": "Для {thing} важнее всего {a}, а вовсе не {b}. Остальное касается только {c} и не помогает.",
}
THINGS = ["pump", "oats", "weir", "stone", "loft", "ledger"]
MAPS = {
    "en": "Note down what this piece of text contributes.\n\n<text>\n{passage}\n</text>\n\nQuestion: {question}",
    "de": "Halte fest, was das folgende Stück beiträgt.\n\n<text>\n{passage}\n</text>\n\nFrage: {question}",
    "ja": "次の断片が質問にどう役立つかを書き留めてください。\n\n<text>\n{passage}\n</text>\n\n質問: {question}",
    "ru": "Отметь, чем полезен следующий фрагмент.\n\n<text>\n{passage}\n</text>\n\nВопрос: {question}",
}
ANSWERS = {
    "en": "Use the notes to answer. If they do not suffice, say so.\n\n<notes>\n{notes}\n</notes>\n\nQuestion: {question}",
    "de": "Beantworte die Frage nur mit den Notizen.\n\n<notes>\n{notes}\n</notes>\n\nFrage: {question}",
    "ja": "メモだけを使って質問に答えてください。\n\n<notes>\n{notes}\n</notes>\n\n質問: {question}",
    "ru": "Ответь на вопрос только по заметкам.\n\n<notes>\n{notes}\n</notes>\n\nВопрос: {question}",
}
QUESTIONS = [
    "How often is the millstone dressed?",
    "When was the pump replaced?",
    "Who opens the gates of the weir?",
    "When may visitors enter the loft?",
    "How long are the oats soaked?",
]


EXCERPT = UserTemplate(
    name="one excerpt",
    pattern=r"<(?:excerpt|extrait|text)>\n(?P<contexts>.*?)\n</(?:excerpt|extrait|text)>\n\n.*?\w ?: (?P<question>.*)",
)


class App:
    """Sends requests one after the other through capture, as the sampler process does."""

    def __init__(self, group=1, **settings):
        self.capture = capture_of(Settings(redact=[], templates=(EXCERPT,), **settings), "key", lambda event: None)
        self.now, self.number, self.group = 1000.0, 0, group
        self.waiting, self.samples = [], []

    def __call__(self, messages, answer, *, after=1.0, app_name="mill", key=None, explicit=None, session=None):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        self.now += after
        self.number += 1
        body = {"model": "m", "messages": messages}
        choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
        self.waiting.append(
            Recording(
                id=f"e{self.number}",
                started_at=self.now,
                duration_s=0.5,
                method="POST",
                path="/v1/chat/completions",
                route="chat_completions",
                request_headers=[(b"authorization", key)] if key else [],
                request_body=json.dumps(body).encode(),
                response_headers=[(b"content-type", b"application/json")],
                status=200,
                chunks=[json.dumps({"id": f"c{self.number}", "choices": [choice]}).encode()],
                explicit=explicit or Explicit(app=app_name, session=session),
            )
        )
        if len(self.waiting) >= self.group:
            self.flush()
        return self.samples[-1] if self.samples else None

    def flush(self):
        found = result.capture_all(self.capture, self.waiting)
        assert [one.error for one in found] == [None] * len(found)
        self.samples += [one.sample for one in found]
        self.waiting = []


def note(language, index, question):
    a, b, c = (WORDS[(index * step + question * 5 + step) % 12] for step in (1, 5, 7))
    return NOTES[language].format(thing=THINGS[index], a=f"{a} {question}", b=b, c=f"{c} {b} {a}")


def tagged(texts, tag="note"):
    return "\n".join(f"<{tag}>{text}</{tag}>" for text in texts)


def ask(app, language, question, *, chunks=4, used=None, **more):
    """One question of a user: a note for each passage, then the answer from the notes."""
    asked, notes = QUESTIONS[question], []
    for index in range(chunks):
        passage = PASSAGES[(question + index) % 6]
        notes.append(note(language, (question + index) % 6, question))
        app(MAPS[language].format(passage=passage, question=asked), notes[-1], **more)
    prompt = ANSWERS[language].format(notes=tagged(notes[:used]), question=asked)
    return app(prompt, f"It is settled in case {question + 1}, as the notes have it.", **more)


def skipped(samples):
    return [one.tags.get("auxiliary") if one.skip_reason == "auxiliary" else one.skip_reason for one in samples]


@pytest.mark.parametrize("language", list(NOTES))
def test_a_note_on_each_passage_is_a_step_once_two_answers_were_made_of_such_notes(language):
    app = App()
    for question in range(4):
        ask(app, language, question)
    first, second, third, fourth = (skipped(app.samples[start : start + 5]) for start in (0, 5, 10, 15))
    assert first == second == [None] * 5
    assert third == fourth == ["intermediate_step"] * 4 + [None]


def test_the_steps_before_the_proof_are_corrected_while_their_samples_are_not_made():
    app = App(group=32)
    for question in range(3):
        ask(app, "en", question)
    app.flush()
    assert skipped(app.samples) == (["intermediate_step"] * 4 + [None]) * 3


def test_an_app_that_uses_some_of_its_notes_is_found_by_the_question_they_share():
    app = App()
    for question in range(4):
        ask(app, "en", question, chunks=5, used=2)
    assert skipped(app.samples[-6:]) == ["intermediate_step"] * 5 + [None]


def test_notes_as_json_are_known_by_their_texts():
    app = App()
    for question in range(4):
        notes = [note("en", index, question) for index in range(3)]
        for index, text in enumerate(notes):
            prompt = MAPS["en"].format(passage=PASSAGES[index], question=QUESTIONS[question])
            app(prompt, json.dumps({"answer": text, "weight": index}))
        app(ANSWERS["en"].format(notes=tagged(notes), question=QUESTIONS[question]), "It is settled by the notes.")
    assert skipped(app.samples[-4:]) == ["intermediate_step"] * 3 + [None]


def rewrite(app, index, *, rewritten=None, **more):
    """One question of a user: it is rewritten, then asked."""
    thing = THINGS[index % 6]
    rewritten = rewritten or f"What do the books of the mill say about the {thing} in 19{index}0?"
    said = [{"role": "system", "content": "Сделай реплику понятной без разговора и верни её одну."}]
    app([*said, {"role": "user", "content": f"And the {thing}?"}], rewritten, **more)
    notes = tagged([PASSAGES[index % 6], PASSAGES[(index + 2) % 6]])
    return app(ANSWERS["en"].format(notes=notes, question=rewritten), f"Answer {index}: see the books.", **more)


def test_a_rewritten_question_is_a_step_once_it_was_asked_three_times():
    app = App()
    for index in range(7):
        rewrite(app, index)
    assert skipped(app.samples[-4:]) == ["intermediate_step", None] * 2
    assert skipped(app.samples[1::2]) == [None] * 7


def test_what_other_apps_and_other_keys_do_proves_nothing():
    app = App()
    for question in range(4):
        ask(app, "de", question, app_name="brewery", key=b"Bearer one")
        ask(app, "de", question, app_name="mill", key=b"Bearer two", chunks=1)
    before = len(app.samples)
    ask(app, "de", 4, app_name="mill", key=b"Bearer one")
    ask(app, "de", 4, app_name="brewery", key=b"Bearer two")
    assert skipped(app.samples[before:]) == [None] * 10
    ask(app, "de", 4, app_name="brewery", key=b"Bearer one")
    assert skipped(app.samples[-5:]) == ["intermediate_step"] * 4 + [None]


SUPPORT = "You help the customers of the mill. Use what we know:\n\n<facts>\n{notes}\n</facts>\n\nCustomer: {question}"


def support(app, question, texts, answer, **more):
    return app(SUPPORT.format(notes=tagged(texts, "fact"), question=question), answer, **more)


@pytest.mark.parametrize("after", [1.0, 200_000.0])
def test_answers_that_an_app_stores_as_knowledge_stay_answers(after):
    """After days they are forgotten; also at once, the prompt that shows them is the one that made them."""
    app = App()
    stored = [note("en", index % 6, index) for index in range(8)]
    for index, answer in enumerate(stored):
        known = [*stored[max(0, index - 3) : index], PASSAGES[index % 6]]
        support(app, QUESTIONS[0], known, answer, after=after)
    assert skipped(app.samples) == [None] * 8


def test_answers_that_another_prompt_shows_days_later_stay_answers():
    app = App()
    for week in range(4):
        stored = [note("en", index, week + index) for index in range(3)]
        for index, answer in enumerate(stored):
            support(app, QUESTIONS[0], [PASSAGES[index], PASSAGES[index + 1]], answer)
        prompt = ANSWERS["en"].format(notes=tagged([*stored, f"In week {week} it rained."]), question=QUESTIONS[0])
        app(prompt, f"As we said before, and for the {week} time.", after=90_000.0)
    assert skipped(app.samples) == [None] * 16


def test_a_report_on_answers_to_different_questions_does_not_make_them_steps():
    app = App()
    for hour in range(4):
        said = [note("en", index, hour) for index in range(4)]
        for index, answer in enumerate(said):
            support(app, QUESTIONS[index], [PASSAGES[index], PASSAGES[index + 1]], answer)
        app(
            ANSWERS["en"].format(notes=tagged(said), question="What did we tell people?"),
            f"Four things in hour {hour}.",
        )
    assert skipped(app.samples) == [None] * 20


def test_users_who_ask_the_same_get_the_same_answer():
    app = App()
    for index in range(8):
        support(app, QUESTIONS[index % 2], PASSAGES[:3], note("en", index % 2, 0), session=f"user {index}")
    assert skipped(app.samples) == [None] * 8


@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_that_quotes_its_passage_is_not_where_the_passage_came_from(whole):
    app = App()
    for index in range(4):
        question, pages = QUESTIONS[index], [note("en", (index + at) % 6, index + at) for at in range(3)]
        for page in pages:
            app(MAPS["de"].format(passage=f"{page} {PASSAGES[index]}", question=question), page)
        shown = [f"{page} {PASSAGES[index]}" for page in pages] if whole else pages
        app(ANSWERS["en"].format(notes=tagged(shown), question=question), f"See page {index}.")
    assert skipped(app.samples) == [None] * 16


def test_a_choice_among_answers_by_their_passages_does_not_make_them_steps():
    app = App()
    for index in range(4):
        drafts = [note("en", at, index + at) for at in range(3)]
        for draft in drafts:
            support(app, QUESTIONS[index], PASSAGES[:2], draft)
        shown = tagged([*drafts, *PASSAGES[:2]])
        app(ANSWERS["en"].format(notes=shown, question=QUESTIONS[index]), f"The first of {index}.")
    assert skipped(app.samples) == [None] * 16


def test_summaries_that_users_ask_for_are_answers_also_where_one_is_pasted_back():
    app = App()
    system = {"role": "system", "content": "You summarise what people send you."}
    for index in range(6):
        summary = note("en", index, index)
        app([system, {"role": "user", "content": f"{PASSAGES[index]} {PASSAGES[index - 1]} " * 3}], summary)
        if index == 2:
            app(ANSWERS["en"].format(notes=tagged([summary, PASSAGES[0]]), question="Is that right?"), "Mostly.")
    assert skipped(app.samples) == [None] * 7


def test_what_the_assistant_said_is_no_passage():
    app = App()
    for index in range(8):
        said = note("en", index % 6, index)
        turns = [{"role": "user", "content": SUPPORT.format(notes=tagged(PASSAGES[:2], "fact"), question="And?")}]
        app(turns, said)
        app(
            [
                *turns,
                {"role": "assistant", "content": said},
                {"role": "user", "content": "Give this talk a short name of your own liking."},
            ],
            f"Talk about the {WORDS[index]}",
        )
    assert skipped(app.samples[::2]) == [None] * 8


def test_passages_that_an_app_names_itself_make_an_answer():
    app = App()
    for question in range(3):
        ask(app, "ru", question)
    said = Explicit(app="mill", contexts=(Context(text=PASSAGES[0]),))
    app(MAPS["ru"].format(passage=PASSAGES[0], question=QUESTIONS[0]), "Да.", explicit=said)
    assert skipped(app.samples[-1:]) == [None]


def test_a_prompt_whose_answers_are_no_longer_used_makes_answers_again():
    app = App()
    for question in range(3):
        ask(app, "ja", question)
    for index in range(200):
        prompt = MAPS["ja"].format(passage=PASSAGES[index % 6], question=QUESTIONS[index % 5])
        app(prompt, f"{WORDS[index % 12]} {index}について述べている。")
    assert skipped(app.samples[-1:]) == [None]


def test_what_is_remembered_is_bounded_and_forgotten():
    app, answers = App(), RememberedAnswers(most=40)
    app.capture.steps_of_answers = IntermediateSteps(answers)
    for index in range(100):
        support(app, f"What about {index}?", [PASSAGES[0]], f"This is answer number {index} of many.")
    assert len(answers) == 40
    support(app, "And now?", [PASSAGES[0]], "All of the others were long ago.", after=2 * AGE_S)
    assert len(answers) == 1


FIRST = "Go by the excerpt below.\n\n<excerpt>\n{passage}\n</excerpt>\n\nQuestion: {question}"
FURTHER = {
    "en": "So far you wrote this:\n~~~\n{said}\n~~~\nHere is another excerpt.\n\n<excerpt>\n{passage}\n</excerpt>\n\n"
    "Improve it if that helps.\n\nQuestion: {question}",
    "fr": "Jusqu'ici tu as \u00e9crit :\n~~~\n{said}\n~~~\nVoici un autre extrait.\n\n<extrait>\n{passage}\n</extrait>\n\n"
    "Am\u00e9liore-le si possible.\n\nQuestion : {question}",
}
DRAFTS = [
    "It is dressed by two people, as far as this goes, in the {word} shed of the {thing}.",
    "Two people dress it, in the {word} shed, and the {thing} stands still for a day then.",
    "It stands still for a day while two people dress it: so the {thing} has {word} to wait.",
]


def refine(app, question, *, language="en", steps=3, word=None, **more):
    """One question of a user: a first answer from one passage, which each further one improves."""
    asked, said = QUESTIONS[question % 5], ""
    for step in range(steps):
        prompt = FIRST if step == 0 else FURTHER[language]
        passage = PASSAGES[(question + step) % 6]
        prompt = prompt.format(said=said, passage=passage, question=asked)
        said = DRAFTS[step].format(word=word or WORDS[question], thing=THINGS[question % 6])
        app(prompt, said, **more)
    return app.samples[-1]


def texts_of(sample):
    return [context.text for context in sample.contexts]


@pytest.mark.parametrize("language", list(FURTHER))
def test_a_refined_answer_has_the_passages_of_all_steps(language):
    sample = refine(App(), 1, language=language)
    assert sample.skip_reason is None
    assert texts_of(sample) == [PASSAGES[3], PASSAGES[2], PASSAGES[1]]


def test_a_step_that_changes_nothing_has_its_passage_all_the_same():
    app, said = App(), DRAFTS[0].format(word="amber", thing="loft")
    app(FIRST.format(passage=PASSAGES[0], question=QUESTIONS[0]), said)
    for passage in PASSAGES[1:4]:
        sample = app(FURTHER["en"].format(said=said, passage=passage, question=QUESTIONS[0]), said)
    assert texts_of(sample) == PASSAGES[3::-1]


def test_only_the_last_step_is_judged_once_the_chains_before_went_as_far():
    app = App()
    for question in range(6):
        refine(app, question, after=20.0)
    assert skipped(app.samples[:9]) == [None] * 9
    assert skipped(app.samples[9:]) == ["intermediate_step", "intermediate_step", None] * 3


def test_a_step_is_an_answer_where_chains_end_with_it():
    app = App()
    for question in range(9):
        refine(app, question, steps=1 + question % 3, after=40.0)
    assert skipped(app.samples) == [None] * 18


def test_known_words_of_a_refinement_count_as_an_answer_where_the_answer_before_is_known():
    app = App()
    question, said = QUESTIONS[0], "It is dressed every fourteen days, by whom is not said."
    first = (
        f"Context information is below.\n{'-' * 21}\n{PASSAGES[3]}\n{'-' * 21}\nGiven the context information and not "
    )
    app(f"{first}prior knowledge, answer the query.\nQuery: {question}\nAnswer: ", said)
    further = (
        f"The original query is as follows: {question}\nWe have provided an existing answer: {{}}\nWe have the opportunity "
        f"to refine the existing answer (only if needed) with some more context below.\n{'-' * 12}\n{PASSAGES[5]}\n"
        f"{'-' * 12}\nGiven the new context, refine the original answer to better answer the query. If the context isn't "
        "useful, return the original answer.\nRefined Answer: "
    )
    known = app(further.format(said), "Every fourteen days, by two people.")
    assert (known.skip_reason, texts_of(known)) == (None, [PASSAGES[5], PASSAGES[3]])
    unknown = app(further.format("Nobody here said this before, at least not today."), "Every fourteen days, by two.")
    assert (unknown.skip_reason, unknown.tags["auxiliary"]) == ("auxiliary", "refine")


@pytest.mark.parametrize(
    ("role", "question", "passage"),
    [
        ("assistant", QUESTIONS[1], PASSAGES[2]),  # the conversation
        ("user", QUESTIONS[2], PASSAGES[2]),  # a follow-up question
        ("user", QUESTIONS[1], PASSAGES[1]),  # a check of the answer by its passages
    ],
)
def test_an_answer_in_a_later_prompt_is_not_always_refined(role, question, passage):
    app = App()
    for word in WORDS[:5]:
        said = refine(app, 1, steps=1, word=word, after=70.0).response
        prompt = FURTHER["en"].format(said=said if role == "user" else "nothing", passage=passage, question=question)
        turns = [{"role": "assistant", "content": said}] if role == "assistant" else []
        sample = app(
            [{"role": "user", "content": "Well?"}, *turns, {"role": "user", "content": prompt}],
            f"The {word} shed will do for all of this.",
        )
        assert texts_of(sample) == [passage]
    assert skipped(app.samples[::2]) == [None] * 5


def test_steps_of_others_are_not_joined():
    app = App()
    said = refine(app, 1, steps=1, session="one").response
    prompt = FURTHER["en"].format(said=said, passage=PASSAGES[2], question=QUESTIONS[1])
    for session, name in (("two", "mill"), (None, "brewery")):
        assert texts_of(app(prompt, "It is so.", session=session, app_name=name)) == [PASSAGES[2]]
