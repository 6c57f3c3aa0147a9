"""The user's own templates: what they find, and which are refused at the start."""

from __future__ import annotations

import pytest

from gaugeway.exchange import Request, Response
from gaugeway.prompts import UserTemplate
from gaugeway.prompts.user_patterns import PatternExtractor, check, check_separator
from gaugeway.records import Context

NOTHING = Response(status=200, body={})


def found(template, *messages, timeout_s=0.05):
    body = {"messages": [{"role": role, "content": content} for role, content in messages]}
    return PatternExtractor([template], timeout_s=timeout_s).extract(
        Request(route="chat_completions", headers={}, body=body), NOTHING
    )


FACTS = UserTemplate(name="facts", pattern=r"FACTS:\n(?P<contexts>.*)\nASKED: (?P<question>[^\n]+)")


def test_a_pattern_gives_question_and_passages_and_its_name():
    extraction = found(FACTS, ("user", "Be kind.\nFACTS:\none\nline two\n\ntwo\nASKED: How far?\nBye"))
    assert extraction.question == "How far?"
    assert extraction.contexts == (Context(text="one\nline two"), Context(text="two"))
    assert (extraction.source, extraction.marker, extraction.cut) == ("patterns", "facts", False)


def test_without_a_group_question_it_is_the_last_user_turn_and_system_messages_are_searched_too():
    template = UserTemplate(name="notes", pattern=r"\[notes\](?P<contexts>.*)\[/notes\]", separator="|")
    extraction = found(template, ("system", "[notes]eins|zwei||三[/notes]"), ("user", "Wie weit?"))
    assert (extraction.question, [one.text for one in extraction.contexts]) == ("Wie weit?", ["eins", "zwei", "三"])


def test_a_group_that_matches_repeatedly_gives_one_piece_each_time():
    template = UserTemplate(name="items", pattern=r"(?:\* (?P<contexts>[^\n]*)\n)++END")
    assert [one.text for one in found(template, ("user", "* one\n* two\nEND")).contexts] == ["one", "two"]


def test_the_first_template_that_matches_decides_and_none_is_no_match():
    other = UserTemplate(name="other", pattern="OTHER (?P<contexts>.*)")
    body = {"messages": [{"role": "user", "content": "FACTS:\none\nASKED: q OTHER two"}]}
    request = Request(route="chat_completions", headers={}, body=body)
    assert PatternExtractor([FACTS, other]).extract(request, NOTHING).marker == "facts"
    assert PatternExtractor([other, FACTS]).extract(request, NOTHING).marker == "other"
    assert PatternExtractor().extract(request, NOTHING) is None
    assert found(FACTS, ("user", "Hello")) is None


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (UserTemplate(name="t", pattern="(?P<contexts>"), "no regular expression"),
        (UserTemplate(name="t", pattern="[a(?P<contexts>b)"), "no regular expression"),
        (UserTemplate(name="t", pattern="FACTS(.*)"), r"no group \(\?P<contexts>"),
        (UserTemplate(name="t", pattern="(?P<contexts>a)(?P<asked>b)"), "unknown group 'asked'"),
        (UserTemplate(name="t", pattern="(?P<contexts>.*)"), "matches any message"),
        (UserTemplate(name="t", pattern="(?P<contexts>.+)"), "matches any message"),
        (UserTemplate(name="t", pattern="A(?P<contexts>.*)B", separator=""), "separator is empty"),
        (UserTemplate(name=" ", pattern="A(?P<contexts>.*)B"), "needs a name"),
        (UserTemplate(name="t", pattern="a" * 10_001), "longer than"),
        (UserTemplate(name="t", pattern=r"(?P<contexts>(a+)+)$"), "too slow"),
        (UserTemplate(name="t", pattern=r"Context:\s*(?P<contexts>(?:\w|\w\w|\s)+):END"), "too slow"),
        (UserTemplate(name="t", pattern=r"<c>(?P<contexts>(?:[^<]|[^<]+)*)</c>"), "too slow"),
        (UserTemplate(name="t", pattern=r"Facts (?P<contexts>(?:-+|--|.)+)END"), "too slow"),
    ],
)
def test_a_template_that_cannot_work_is_refused_with_its_name_and_the_reason(template, reason):
    with pytest.raises(ValueError, match=reason):
        check(template)
    with pytest.raises(ValueError, match=reason):
        PatternExtractor([template])


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?s)Context:(?P<contexts>.*)Question:(?P<question>.*)",
        r"### Sources\n(?P<contexts>.*?)\n### Question\n(?P<question>.+?)\Z",
        r"<data>\s*(?P<contexts>.*)\s*</data>",
        r"(?:\[\d+\] (?P<contexts>[^\n]+)\n)+",
        r"资料\uff1a(?P<contexts>.+)问题\uff1a(?P<question>.+)",
    ],
)
def test_usual_patterns_are_accepted(pattern):
    check(UserTemplate(name="t", pattern=pattern))


def test_a_pattern_that_takes_too_long_on_a_message_has_not_matched():
    slow = UserTemplate(name="t", pattern=r"Context:(?P<contexts>.*)Question:(?P<question>.*)END")
    text = "Context:Question:" * 60_000
    assert found(slow, ("user", text)) is None  # the limit is 0.05 s; without it: minutes


def numbered(pattern, **beside):
    return UserTemplate(
        name="n", pattern=r"FACTS:\n(?P<contexts>.*)\nASKED: [^\n]+", separator_pattern=pattern, **beside
    )


def test_a_separator_may_be_a_pattern_that_says_something_of_the_passage_behind_it():
    template = numbered(r"\n\[(?P<id>\d+)\] (?P<title>[^\n]*?)(?: \((?P<score>[\d.]+)\))?\n")
    extraction = found(
        template, ("user", "FACTS:\n[1] Loans (0.5)\none\n\nline two\n[2] Fees\ntwo [3] x\nASKED: How far?")
    )
    assert extraction.contexts == (
        Context(text="one\n\nline two", id="1", source="Loans", score=0.5),
        Context(text="two [3] x", id="2", source="Fees"),
    )


def test_text_before_the_first_separator_is_a_passage_and_blank_ones_are_none():
    text = "FACTS:\nzero\n--- a.md\none\n--- b.md\n\n--- c.md\ntwo\n\nASKED: q"
    contexts = found(numbered("^--- (?P<source>.*)$"), ("user", text)).contexts
    assert [(one.text, one.source) for one in contexts] == [("zero", None), ("one", "a.md"), ("two", "c.md")]


def test_a_source_counts_more_than_a_title_and_an_odd_score_is_left_out():
    template = numbered(r"\n(?P<title>\w+)/(?P<source>\w+)/(?P<score>\S+):")
    said = found(template, ("user", "FACTS:\nT/S/nan:one\nT/S/many:two\nASKED: q")).contexts
    assert said == (Context(text="one", source="S"), Context(text="two", source="S"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (numbered("(?P<title>"), "separator_pattern: the pattern is no regular expression"),
        (numbered("a(?P<page>b)"), "unknown group 'page'; known: id, score, source, title"),
        (numbered("x*"), "matches the empty text"),
        (numbered("a" * 10_001), "longer than"),
        (numbered(r"\n(?P<title>(?:\w|\w\w|\s)+):END"), "too slow"),
        (numbered(r"\n-", separator="\n---\n"), "give one of the two"),
    ],
)
def test_a_separator_pattern_that_cannot_work_is_refused(template, reason):
    with pytest.raises(ValueError, match=reason):
        check_separator(template)
    with pytest.raises(ValueError, match=reason):
        PatternExtractor([template])


def test_a_separator_that_takes_too_long_on_a_message_has_not_matched():
    template = numbered(r"\n[^\n]*x[^\n]*x[^\n]*y")
    assert found(template, ("user", "FACTS:\n" + "x" * 20_000 + "\nASKED: q")) is None
    assert found(template, ("user", "FACTS:\nxxy one\nASKED: q")).contexts == (Context(text=" one"),)
