"""A learned template as an entry of the configuration: it captures what the template does, whatever is in it."""

import tomllib

import msgspec
import pytest

from gaugeway.exchange import Request, Response
from gaugeway.prompts import UserTemplate
from gaugeway.prompts.form.divisions import NAMES, divisions
from gaugeway.prompts.learning.frames import frame_of
from gaugeway.prompts.learning.learner import Learner
from gaugeway.prompts.learning.model import LearnedTemplate, Split, match
from gaugeway.prompts.user_patterns import PatternExtractor, check_separator, describe, toml
from tests.support.prompt_traffic import LAYOUTS, traffic

ANSWER = Response(status=200, body={})


def template(literals, slots=("passages", "question"), **split):
    return LearnedTemplate(
        app="shop",
        kind="u",
        version="v1",
        literals=literals,
        slots=slots,
        split=Split(**({"kind": "marker", "words": "\n"} | split)),
        seen=10,
        learned_at=1.0,
    )


def entry_of(learned):
    """The entry that a configuration file with the TOML has."""
    (entry,) = tomllib.loads(toml(describe(learned)))["capture"]["templates"]
    return msgspec.convert(entry, UserTemplate)


def request(*turns):
    messages = [{"role": role, "content": content} for role, content in turns]
    return Request(route="chat_completions", headers={}, body={"messages": messages})


def both(learned, asked):
    """What the learned template finds, and what the entry does."""
    found = match(learned, frame_of(asked).text)
    said = PatternExtractor([entry_of(learned)]).extract(asked, ANSWER)
    return tuple(
        one and (one.question, [(context.text, context.source) for context in one.contexts]) for one in (found, said)
    )


@pytest.mark.full
@pytest.mark.parametrize("name", LAYOUTS)
def test_what_was_learned_of_a_prompt_captures_the_same_as_an_entry(name):
    learner, sent = Learner(lambda: 1.0, 1), traffic(name, 1)
    learned = None
    for _ in range(80):
        frame = frame_of(next(sent).request)
        for event in learner.observe("shop", frame, learner.find("shop", frame), None):
            learned = event.template if event.kind == "learned" else learned
    if learned is None or describe(learned).notes:
        pytest.skip("nothing was learned, or the entry says what it lacks")
    found = [both(learned, next(sent).request) for _ in range(30)]
    assert any(one for one, _ in found)
    assert all(one == other for one, other in found if one)


@pytest.mark.parametrize(
    ("split", "region"),
    [
        ({"words": "\n~ ${A} ~\n"}, "one\n~ ${A} ~\ntwo ~ {A}\n~ ${A} ~\nthree"),
        ({"words": "\n[\x05] "}, "one [3] a\n[2] two\n[31] three"),
        ({"words": "'\"\\\x7f"}, "one'\"\\\x7ftwo"),
        ({"words": "\n\n", "header": ("\nSays: ",)}, "a.md\nSays: one\n\nb.md\nSays: two"),
        ({"words": "\n\n", "header": (" (page ", "): ")}, "a.md (page 3): one\n\nb.md (page 44): two\nlines"),
        ({"words": "\n\n", "trailer": ("\n(from ",)}, "one\n(from a.md)\n\ntwo\n(from b.md)"),
        ({"words": "\n\n", "header": (": ",), "trailer": (" /",)}, "a: one /x\n\nb: two /y"),
        ({"words": "\n</a>\n<a>\n", "closing": "\n</a>"}, "one\n</a>\n<a>\ntwo\n</a>\n"),
        ({"kind": "paragraphs", "trailer": ("\n(from ",)}, "one\n(from a.md)\n\ntwo\n(from b.md)"),
        ({"kind": "lines"}, "one\ntwo\n\nthree"),
        ({"kind": "paragraphs"}, "one\nmore\n\ntwo\n \n\nthree"),
        ({"kind": "reading", "words": "rule:***"}, "One is here.\n* * *\nTwo is here.\n***\nThree is here."),
        ({"kind": "reading", "words": "data"}, '[{"text": "one", "file": "a.md"}, {"text": "two", "file": "b.md"}]'),
    ],
)
def test_passages_are_told_apart_in_the_same_way(split, region):
    learned = template(("\x02Wiki (v1.2) $5:\n", "\n\nAsked: ", "\n\x04"), **split)
    found, said = both(learned, request(("user", f"Wiki (v1.2) $5:\n{region}\n\nAsked: What is $5?\n")))
    assert len(found[1]) > 1
    assert found == said


def test_separators_that_vary_are_exported_with_their_head():
    pieces = {"header": ("\n[\x05] ", ": "), "trailer": ("\n\n[\x05] ", ": ")}
    learned = template(("\x02Notes:\n", "\n\nQ: ", "\x04"), kind="separator", words="", **pieces)
    found, said = both(
        learned, request(("user", "Notes:\n\n[1] Oil: It burns.\n\n[2] Ice and snow: They melt.\n\nQ: Why?"))
    )
    assert found == said == ("Why?", [("It burns.", None), ("They melt.", None)])


def test_a_text_that_stands_in_the_passages_too_does_not_end_them():
    learned = template(("\x02Q: ", "\nWiki:\n", "\nNow answer, ", ".\x04"), ("question", "passages", "other"))
    asked = "Q: Which\nof them?\nWiki:\none\nWiki:\ntwo\nNow answer, soon\nthree\nNow answer, Ada."
    found, said = both(learned, request(("user", asked)))
    assert found == said == ("Which\nof them?", [("one", None), ("Wiki:", None), *((t, None) for t in SAID)])


SAID = ("two", "Now answer, soon", "three")


def test_passages_in_the_system_message_with_the_question_as_the_users_turn():
    learned = template(("\x01Wiki:\n", "\x02", "\x04"))
    found, said = both(learned, request(("system", "Wiki:\none\ntwo"), ("user", "What?")))
    assert found == said == ("What?", [("one", None), ("two", None)])
    assert describe(learned).notes == ()


@pytest.mark.parametrize(
    ("learned", "note"),
    [
        (template(("\x01Wiki:\n", "\x02Visitor: ", "\x04")), "whole text of the last user message"),
        (template(("\x02Wiki:", "\x03", "\x04"), kind="part", words=""), "content parts"),
    ],
)
def test_what_an_entry_cannot_say_stands_in_a_comment(learned, note):
    said = toml(describe(learned))
    assert note in said.splitlines()[0]
    assert said.startswith("# ")
    assert "contexts" in entry_of(learned).pattern


def test_every_name_of_a_reading_is_known():
    blocks = ("[1] One is here.\n[2] Two is here.", '["one", "two"]', "<a>one</a>\n<a>two</a>", "- one\n- two", "one")
    names = {found.name for block in blocks for found in divisions(block)}
    assert len(names) > 4
    assert {name.partition(":")[0] for name in names} <= set(NAMES)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (UserTemplate("n", "a(?P<contexts>.*)", read_as="prose"), "none of data"),
        (UserTemplate("n", "a(?P<contexts>.*)", separator="|", read_as="data"), "a separator exclude each other"),
        (
            UserTemplate("n", "a(?P<contexts>.*)", separator_pattern="x", read_as="data"),
            "a separator exclude each other",
        ),
    ],
)
def test_a_reading_that_is_none_or_has_a_separator_beside_it_is_a_mistake(entry, said):
    with pytest.raises(ValueError, match=said):
        check_separator(entry)
