"""Templates learned from traffic of invented apps: what is found, what is not, and what is never taken for passages."""

import gc
from dataclasses import replace
from itertools import islice
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.capture.exchange_reader import read
from gateway.capture.factory import capture_of
from gateway.config import Capture as Settings
from gaugeway.exchange import Exchange, Explicit, Recording
from gaugeway.prompts import Extraction
from gaugeway.prompts.learning import learner as learning
from gaugeway.prompts.learning.frames import frame_of
from gaugeway.prompts.learning.learner import Learner, OtherFinding
from gaugeway.prompts.learning.model import LearnedTemplate, Split, match, split
from gaugeway.records import Context
from tests.support.prompt_traffic import LAYOUTS, OTHERS, Sent, World, chat, traffic

pytestmark = pytest.mark.full

SLOW = {"plain_large", "with_history", "faq", "trailing_source"}
"""Not learned in so few requests: nothing comes again, or the passages look like the prompt's own labels."""


def learner(seed=1):
    return Learner(lambda: 7.0, salt=seed)


def show(pupil: Learner, sent: Sent, app="app", known=None):
    """Send one request; return what a template found in it and what was learned from it."""
    frame = frame_of(sent.request)
    found = pupil.find(app, frame)
    return found, pupil.observe(app, frame, found, known)


def verdict(found, sent: Sent) -> str:
    if found is None:
        return "none"
    texts = [" ".join(one.text.split()) for one in found.contexts]
    exact = texts == [" ".join(one.split()) for one in sent.contexts] and found.question == sent.question
    return "exact" if exact else "wrong"


def verdicts(pupil, sents, app="app"):
    return [verdict(show(pupil, one, app)[0], one) for one in sents]


def taught(name="german", seed=1, count=40):
    pupil = learner(seed)
    for sent in islice(traffic(name, seed), count):
        show(pupil, sent)
    (template,) = pupil.templates()
    return pupil, template


@pytest.mark.parametrize("name", sorted(LAYOUTS.keys() - SLOW - {"dated"}))
@pytest.mark.parametrize("seed", [1, 2])
def test_the_prompt_of_an_app_is_learned(name, seed):
    found = verdicts(learner(seed), islice(traffic(name, seed), 55))
    assert found[-10:] == ["exact"] * 10
    assert "wrong" not in found


@pytest.mark.parametrize("name", sorted(SLOW | {"dated"}))
@pytest.mark.parametrize("seed", range(1, 9))
def test_what_is_hard_to_learn_is_not_learned_wrong(name, seed):
    assert "wrong" not in verdicts(learner(seed), islice(traffic(name, seed), 60))


@pytest.mark.parametrize("name", sorted(OTHERS))
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_learned_where_nothing_is_retrieved(name, seed):
    pupil = learner(seed)
    assert [event for sent in islice(traffic(name, seed), 120) for event in show(pupil, sent)[1]] == []


def test_about_ten_requests_are_enough():
    pupil = learner()
    learned = [n for n, sent in enumerate(islice(traffic("tags", 2), 40), 1) if show(pupil, sent)[1]]
    assert len(learned) == 1
    assert 10 <= learned[0] <= 20


def test_passages_that_never_come_again_are_learned_where_another_reader_is_sure_of_them():
    pupil = learner()
    found = []
    for sent in islice(traffic("plain_large", 1), 40):
        known = OtherFinding(tuple(Context(text=one) for one in sent.contexts), 1.0)
        found.append(verdict(show(pupil, sent, known=known)[0], sent))
    assert found[-10:] == ["exact"] * 10


def test_a_reader_that_is_sure_of_something_else_keeps_an_unproven_template_away():
    pupil = learner()
    for sent in islice(traffic("numbered_large", 1), 40):
        found, events = show(pupil, sent, known=OtherFinding((Context(text="Something else."),), 1.0))
        assert (found, events) == (None, [])


def test_a_reader_that_is_sure_keeps_a_template_away_that_recurrence_proves():
    pupil = learner()
    for sent in islice(traffic("german", 1), 40):
        merged = " ".join(sent.contexts)
        known = OtherFinding((Context(text=merged[: len(merged) // 2]), Context(text=merged[len(merged) // 2 :])), 0.95)
        show(pupil, sent, known=known)
    assert pupil.templates() == []


TALK = """Answer from the context.

Context:
{passages}

Earlier:
Guest: {asked}
Host: {answer}

Guest asks: {question}"""


def with_an_earlier_turn(world, question):
    passages = world.some(2, 4)
    said = TALK.format(
        passages="\n\n".join(passages), asked=world.question(), answer=world.passage()[:30], question=question
    )
    return Sent(chat(("user", said)), question, passages)


def test_of_two_slots_that_ask_the_question_is_the_one_that_other_readers_name():
    world, pupil, found = World(Random(2)), learner(), []
    for _ in range(50):
        sent = with_an_earlier_turn(world, world.question())
        known = OtherFinding(tuple(Context(text=passage) for passage in sent.contexts), 0.6, sent.question)
        found.append(verdict(show(pupil, sent, known=known)[0], sent))
    assert found[-10:] == ["exact"] * 10


def test_a_sure_reader_that_takes_constant_text_for_a_passage_keeps_no_template_away():
    world, pupil, found = World(Random(3)), learner(), []
    for _ in range(50):
        sent = with_an_earlier_turn(world, world.question())
        text = sent.request.body["messages"][0]["content"]
        earlier = text[text.index("Earlier:") : text.index("\n\nGuest asks:")]
        known = OtherFinding(tuple(Context(text=one) for one in (*sent.contexts, earlier)), 0.9, sent.question)
        found.append(verdict(show(pupil, sent, known=known)[0], sent))
    assert found[-10:] == ["exact"] * 10


def test_paragraphs_that_always_come_together_are_one_passage():
    rng, world = Random(4), World(Random(4))
    pages = ["\n\n".join(world.some(3, 3)) for _ in range(6)]
    pupil = learner()
    for number in range(40):
        said = f"Page content:\n<<<\n{rng.choice(pages)}\n>>>\n\nThe reader asks: {number} {world.question()}"
        show(pupil, Sent(chat(("user", said)), "", []))
    assert all(one.split.words != "blank-line" and one.split.kind != "paragraphs" for one in pupil.templates())


def test_a_new_version_of_the_prompt_is_learned_anew_and_the_old_one_dropped():
    pupil, old = taught("german")
    sents = list(islice(traffic("numbered_paragraphs", 1), 140))
    events = [event for sent in sents for event in show(pupil, sent)[1]]
    assert [event.kind for event in events] == ["learned", "dropped"]
    assert events[1].template == old
    assert verdicts(pupil, islice(traffic("numbered_paragraphs", 9), 5)) == ["exact"] * 5


def test_two_prompts_under_one_name_are_both_learned():
    pupil, random = learner(), Random(4)
    one, other = traffic("german", 1), traffic("tags", 1)
    found = [verdict(show(pupil, sent)[0], sent) for sent in (next(random.choice([one, other])) for _ in range(90))]
    assert found[-20:] == ["exact"] * 20
    assert "wrong" not in found


@pytest.mark.parametrize(
    "names",
    [
        ("chinese", "few_shot", "german", "numbered_paragraphs", "plain"),
        ("fixed_rules", "json_indented", "numbered_large", "records", "tags"),
    ],
)
def test_five_prompts_under_one_name_are_all_learned(names):
    pupil, random = learner(), Random(4)
    sources = {name: traffic(name, 1) for name in names}
    found = {name: [] for name in names}
    for name in random.choices(names, k=200):
        sent = next(sources[name])
        found[name].append(verdict(show(pupil, sent)[0], sent))
    assert {name: said[-8:] for name, said in found.items()} == {name: ["exact"] * 8 for name in names}
    assert "wrong" not in {one for said in found.values() for one in said}


@pytest.mark.parametrize("name", ["german", "python_list", "few_shot"])
def test_an_odd_request_in_twenty_does_no_harm(name):
    pupil, random = learner(), Random(name)
    usual, odd = traffic(name, 1), [traffic(other, 1) for other in OTHERS]
    found = []
    for _ in range(60):
        is_odd = random.random() < 1 / 20
        sent = next(random.choice(odd)) if is_odd else next(usual)
        said = verdict(show(pupil, sent)[0], sent)
        assert said == "none" or not is_odd
        found += [] if is_odd else [said]
    assert found[-15:] == ["exact"] * 15


def test_a_part_that_the_prompt_gets_among_the_passages_ends_the_template():
    pupil, _ = taught("german")
    world, events = World(Random(5), size=25), []
    for number in range(8):
        passages, question = world.some(1, 3), world.question()
        text = "\n\n".join([*passages, f"Earlier talk:\nVisitor: number {number}"])
        prompt = (
            "Beantworte die Anfrage nur mit den Unterlagen.\n\n"
            f"Unterlagen »\n{text}\n« Ende der Unterlagen\n\nAnfrage: {question}"
        )
        events += show(pupil, Sent(chat(("user", prompt)), question, passages))[1]
    assert [event.kind for event in events] == ["dropped"]


def held(root: object) -> list[str]:
    """Return all texts that can be reached from an object."""
    seen, todo, texts = set(), [root], []
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type) or callable(one):
            continue
        seen.add(id(one))
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, bytes | bytearray):
            texts.append(bytes(one).decode("latin-1"))
        else:
            todo += gc.get_referents(one)
    return texts


@pytest.mark.parametrize("count", [1, 3, 6, 9, 30])
@pytest.mark.parametrize("name", ["german", "agent", "memory"])
def test_nothing_of_a_request_is_kept_but_hashes_and_the_constant_text(name, count):
    pupil = learner()
    sents = list(islice(traffic(name, 1), count))
    for sent in sents:
        show(pupil, sent)
    texts = held(pupil)
    words = {word for text in texts for word in text.split() if len(word) > 4}
    templates = {word for one in pupil.templates() for literal in one.literals for word in literal.split()}
    said = {word for sent in sents for message in sent.request.body["messages"] for word in message["content"].split()}
    assert (words & said) - templates == set()


def test_a_template_survives_json_and_means_the_same():
    _, template = taught()
    again = msgspec.json.decode(msgspec.json.encode(template), type=LearnedTemplate)
    assert again == template
    fresh = learner(2)
    fresh.load([again])
    assert verdicts(fresh, islice(traffic("german", 8), 5)) == ["exact"] * 5


def test_a_rejected_template_is_not_used_and_its_prompt_not_learned_again():
    pupil, template = taught()
    pupil.load([msgspec.structs.replace(template, state="rejected")])
    assert [show(pupil, sent) for sent in islice(traffic("german", 1), 60)] == [(None, [])] * 60


def test_a_confirmed_template_is_marked_stale_instead_of_dropped_and_used_again_when_it_fits():
    pupil, template = taught()
    pupil.load([msgspec.structs.replace(template, state="confirmed")])
    kinds = [event.kind for sent in islice(traffic("few_shot", 1), 140) for event in show(pupil, sent)[1]]
    assert sorted(kinds) == ["learned", "stale"]
    assert {one.stale for one in pupil.templates() if one.version == template.version} == {True}
    assert verdicts(pupil, islice(traffic("german", 8), 2)) == ["exact"] * 2
    assert {one.stale for one in pupil.templates() if one.version == template.version} == {False}


def test_a_version_names_the_template_and_not_the_moment():
    (_, one), (_, other) = taught(seed=1), taught(seed=2)
    assert one.version == other.version
    assert taught("tags")[1].version != one.version


def test_memory_is_bounded_whatever_number_of_apps_and_prompts(monkeypatch):
    monkeypatch.setattr(learning, "MAX_LEARNING_BYTES", 3_000_000)
    monkeypatch.setattr(learning, "MAX_KINDS", 20)
    pupil = learner()
    sources = [traffic(name, 1) for name in ("review", "memory", "history_prompt", "agent", "summary")]
    for number in range(30):
        for source in sources:
            for sent in islice(source, 5):
                show(pupil, sent, app=f"app-{number}")
            assert pupil.size <= 3_000_000


def test_beyond_the_number_of_apps_the_one_not_seen_for_longest_is_forgotten(monkeypatch):
    monkeypatch.setattr(learning, "MAX_KINDS", 2)
    pupil = learner()
    sent = list(islice(traffic("review", 1), 30))
    show(pupil, sent[0], app="shop")
    held = pupil.size
    for number in range(50):
        show(pupil, sent[number % 30], app=f"app-{number}")
    assert 0 < pupil.size < 20 * held


def test_what_is_reported_as_held_grows_with_what_is_learned_from():
    pupil = learner()
    assert pupil.size == 0
    sizes = []
    for name in ("review", "german"):
        for sent in islice(traffic(name, 1), 30):
            show(pupil, sent, app=name)
        sizes.append(pupil.size)
    assert 1000 < sizes[0] < sizes[1]


def test_fewer_and_fewer_requests_are_looked_at_where_nothing_is_to_be_learned(monkeypatch):
    looked = []
    monkeypatch.setattr(learning, "read", lambda text, salt: looked.append(text) or original(text, salt))
    from gaugeway.prompts.learning.skeletons import read as original

    pupil = learner()
    for sent in islice(traffic("small_talk", 1), 1_500):
        show(pupil, sent)
    assert len(looked) < 400
    before = len(looked)
    for sent in islice(traffic("small_talk", 2), 320):
        show(pupil, sent)
    assert len(looked) - before <= 320 / 16 + 1


def test_too_long_a_prompt_or_one_with_our_own_marks_is_left_alone():
    assert frame_of(chat(("user", "a" * 70_000))) is None
    assert frame_of(chat(("system", "a" * 70_000), ("user", "b"))) is None
    assert frame_of(chat(("user", "a\x02b"))) is None
    assert frame_of(chat(("system", "only this"))) is None
    assert frame_of(chat(("user", [{"type": "image_url", "image_url": {}}]))) is None


def test_turns_in_between_do_not_matter():
    short, long = (("system", "S"), ("user", "U")), (("system", "S"), ("user", "x"), ("assistant", "y"), ("user", "U"))
    assert frame_of(chat(*short)) == frame_of(chat(*long))


def exchange(sent: Sent, number: int, finish="stop") -> Exchange:
    choice = {"message": {"role": "assistant", "content": "Yes."}, "finish_reason": finish}
    recording = Recording(
        id=f"e{number}",
        started_at=float(number),
        method="POST",
        path="/v1/chat/completions",
        route="chat_completions",
        request_headers=[],
        request_body=msgspec.json.encode(sent.request.body),
        status=200,
        response_headers=[(b"content-type", b"application/json")],
        chunks=[msgspec.json.encode({"choices": [choice]})],
    )
    return read(recording, 10_000_000)


def samples(settings: Settings, finish="stop", count=45):
    capture = capture_of(settings, "key", lambda _: None)
    sents = list(islice(traffic("few_shot", 3), count))
    return sents, [capture.make(exchange(sent, number, finish)) for number, sent in enumerate(sents)]


def test_samples_are_made_with_what_was_learned():
    sents, made = samples(Settings(extractors=("explicit", "tools")))
    assert made[0].context_source == "none"
    for sent, sample in zip(sents[-10:], made[-10:], strict=True):
        assert sample.context_source == "learned"
        assert sample.question == sent.question
        assert [one.text for one in sample.contexts] == sent.contexts
        assert sample.capture.confidence == 0.95
        assert sample.capture.marker.startswith("learned template ")


@pytest.mark.parametrize("off", [{"learn": False}, {"content": False}])
def test_learning_is_off_where_the_user_says_so_and_where_no_content_is_kept(off):
    _, made = samples(Settings(extractors=("explicit",), **off))
    assert {sample.context_source for sample in made} == {"none"}


def test_answers_that_are_not_judged_teach_nothing():
    _, made = samples(Settings(extractors=("explicit",)), finish="content_filter")
    assert {sample.context_source for sample in made} == {"none"}


def test_what_the_app_says_itself_comes_before_what_was_learned():
    capture = capture_of(Settings(extractors=("explicit",)), "key", lambda _: None)
    sents = list(islice(traffic("few_shot", 3), 41))
    for number, sent in enumerate(sents[:40]):
        capture.make(exchange(sent, number))
    said = Explicit(question="Mine?", contexts=(Context(text="Mine."),))
    own = exchange(sents[40], 40)
    own = structs.replace(own, request=replace(own.request, explicit=said))
    sample = capture.make(own)
    assert (sample.context_source, sample.question, sample.contexts) == ("explicit", "Mine?", said.contexts)
    asked = exchange(sents[40], 41)
    asked = structs.replace(asked, request=replace(asked.request, explicit=Explicit(question="Mine?")))
    assert capture.make(asked).question == "Mine?"
    assert capture.make(asked).context_source == "learned"


class Own:
    def extract(self, request, response):
        return Extraction(question="Mine?", contexts=(Context(text="Mine."),), source="own")


@pytest.mark.parametrize(
    ("extractors", "beside", "source"),
    [
        (("explicit", "structure", f"{__name__}:Own"), {}, "own"),
        (
            ("explicit", "templates", "documents"),
            {"documents": [{"text": "A document beside the prompt."}]},
            "documents",
        ),
    ],
)
def test_a_users_own_extractor_and_documents_come_before_what_was_learned(extractors, beside, source):
    plain = capture_of(Settings(extractors=extractors[:-1]), "key", lambda _: None)
    sents = list(islice(traffic("few_shot", 3), 41))
    for number, sent in enumerate(sents[:40]):
        plain.make(exchange(sent, number))
    last = exchange(sents[40], 40)
    last = structs.replace(last, request=replace(last.request, body=last.request.body | beside))
    assert plain.make(last).context_source == "learned"
    full = capture_of(Settings(extractors=extractors), "key", lambda _: None)
    full.learned.learner.load(plain.learned.learner.templates())
    assert full.make(last).context_source == source


class Counting:
    asked = 0

    def extract(self, request, response):
        type(self).asked += 1
        return Extraction(question="Mine?", contexts=(Context(text="Mine."),), source="own")


def test_each_extractor_is_asked_once():
    capture = capture_of(Settings(extractors=("explicit", "structure", f"{__name__}:Counting")), "key", lambda _: None)
    Counting.asked = 0
    capture.make(exchange(next(traffic("few_shot", 3)), 1))
    assert Counting.asked == 1


@pytest.mark.parametrize("before", ["\x02Results:\n1. ", "\x02Top 5 results of 2024:\n1. ", "\x02Top 5 results:\n"])
def test_numbers_in_front_of_the_first_marker_do_not_count(before):
    template = LearnedTemplate(
        app="a", kind="k", version="v", literals=(before, "\n\nAsked: ", "\x04"), slots=("passages", "question"),
        split=Split(kind="marker", words="\n\x05. ", counted=True), seen=10, learned_at=0.0,
    )  # fmt: skip
    found = match(template, f"{before}One.\n2. Two.\n\nAsked: Who?\x04")
    assert [one.text for one in found.contexts] == ["One.", "Two."]


def test_nothing_is_learned_without_a_place_for_the_events():
    assert capture_of(Settings(), "key").learned is None


@pytest.mark.parametrize(
    ("before", "said", "question"),
    [
        ("\x02Pregunta: ¿", "Cuánto es?", "¿Cuánto es?"),
        ("\x02Ticket #", "4711 from Ann\nWhat is the rent?", "What is the rent?"),
        ("\x02Question:\n", "Hello,\nwhat is the rent?", "Hello,\nwhat is the rent?"),
        ("\x02Ask ", "what is the rent?\nAnd the tax?", "what is the rent?\nAnd the tax?"),
    ],
)
def test_a_question_keeps_the_sign_that_opens_it_and_loses_what_stands_before_it_in_a_line(before, said, question):
    template = LearnedTemplate(
        app="a", kind="k", version="v", literals=(before, "\n\nNotes:\n", "\x04"), slots=("question", "passages"),
        split=Split(kind="lines"), seen=10, learned_at=0.0,
    )  # fmt: skip
    assert match(template, f"{before}{said}\n\nNotes:\nThe rent is 4.\x04").question == question


def test_lines_of_the_prompt_between_the_passages_are_no_passages():
    found = taught_by(
        "Use the files.\n\n=== a_{3}.md ===\n{0}\n\n=== b_{3}.md ===\n{1}\n\n=== question ===\nWhat about {2}?"
    )
    assert found is None or not any("===" in one.text for one in found.contexts)


def taught_by(form):
    """Return what is found in the last of 40 requests of a prompt: two passages, the question's words, a number."""
    random, pupil, found = Random(form), learner(), None
    world = World(Random(7), size=20)
    for number in range(40):
        one, other = world.some(2, 2)
        asked = f"the {random.choice(['rent', 'tax', 'fee'])} of {random.choice(['March', 'May', 'June'])} {number}"
        found, _ = show(
            pupil, Sent(chat(("user", form.format(one, other, asked, 1000 + 37 * number))), asked, [one, other])
        )
    return found


REGIONS = st.text(alphabet="ab\n [1]2.#:-\x03é", max_size=120)
SPLITS = st.sampled_from(
    [
        Split(kind="part"),
        Split(kind="lines"),
        Split(kind="paragraphs"),
        Split(kind="marker", words="\n[\x05] ", counted=True),
        Split(kind="marker", words="\n[\x05] "),
        Split(kind="marker", words="]\n[", closing="]"),
        Split(kind="marker", words="\n#", header=(": ",), trailer=("-",)),
        Split(kind="reading", words="blank-line"),
        Split(kind="reading", words="numbered:[n]"),
    ]
)


@given(SPLITS, REGIONS)
def test_a_split_returns_nothing_but_pieces_of_the_region_in_order(how, region):
    position = 0
    for one in split(how, region) or ():
        assert one.text
        position = region.index(one.text, position) + len(one.text)


@given(st.lists(REGIONS, min_size=3, max_size=3), SPLITS)
def test_a_match_takes_question_and_passages_from_their_slots(texts, how):
    other, asked, region = texts
    literals = ("\x02Now: ", "\nQ= ", "\nC= ", " END\x04")
    template = LearnedTemplate(
        app="a",
        kind="k",
        version="v",
        literals=literals,
        slots=("other", "question", "passages"),
        split=how,
        seen=10,
        learned_at=0.0,
    )
    found = match(template, "".join([literals[0], other, literals[1], asked, literals[2], region, literals[3]]))
    if "= " in other + asked:
        return
    if found is None:
        assert not asked.strip() or not split(how, region)
    else:
        assert (found.question, found.contexts) == (asked.strip(), split(how, region))


def test_passages_in_strings_of_json_are_what_the_strings_say():
    literals = ('Texts: ["', '"]\nAsked: ', "\x04")
    _, template = taught("tags")
    template = structs.replace(
        template, literals=literals, slots=("passages", "question"), split=Split(kind="marker", words='", "')
    )
    found = match(template, 'Texts: ["One.\\nTwo \\"2\\".", "Three."]\nAsked: How many?\x04')
    assert found is not None
    assert [passage.text for passage in found.contexts] == ['One.\nTwo "2".', "Three."]


def test_titles_that_all_end_in_a_version_keep_its_bracket():
    random, pupil, world = Random(5), learner(), World(Random(7), size=20)
    titles = [f"{name} (v{number})" for name in ("fares", "meals", "cabins", "pets", "cars") for number in (1, 2)]
    for number in range(40):
        some = world.some(2, 3)
        named = random.sample(titles, len(some))
        listed = "\n\n".join(f"[{i}] {name}\n{text}" for i, (name, text) in enumerate(zip(named, some, strict=True), 1))
        asked = f"the {random.choice(['rent', 'tax', 'fee'])} of {random.choice(['March', 'May', 'June'])} {number}?"
        prompt = f"Use only this of the handbook.\n\n{listed}\n\nWhat is {asked} Cite the numbers."
        found, _ = show(pupil, Sent(chat(("user", prompt)), asked, list(some)))
    assert found is not None
    assert [one.source for one in found.contexts] == named
