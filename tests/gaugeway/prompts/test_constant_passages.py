"""Text of the prompt that a reader takes for a passage is found out by the requests that follow."""

from functools import partial
from random import Random

from gaugeway.exchange import Response
from gaugeway.prompts.learning.learner import ConstantPassages, LearnedCapture, Learner
from gaugeway.prompts.structure import StructureExtractor
from gaugeway.records import Context
from tests.support.prompt_traffic import chat

KIND = ("shop", "chat:u")
RULE = "Answer in the language of the question, and name the source of each statement."

PROMPT = """Sources:
[1] Boat {number} leaves at noon for the island, with tea for everybody.
[2] The museum in hall {hall} shows lamps and opens at ten.
[3] {rule}

Question: Which boat has the number {number}?"""


def texts(*said):
    return tuple(Context(text=one) for one in said)


def sent(constant, *requests):
    return [tuple(context.text for context in constant.without(KIND, texts(*said))) for said in requests]


def test_a_passage_of_every_request_is_left_out_once_others_changed_often_enough():
    constant = ConstantPassages()
    found = sent(constant, *[(f"Passage {number}.", RULE) for number in range(8)])
    assert found[0] == ("Passage 0.", RULE)
    assert found[-1] == ("Passage 7.",)


def test_passages_of_a_small_index_that_are_always_all_there_stay():
    found = sent(ConstantPassages(), *[("The mill turns.", "The pump is new.")] * 20)
    assert set(found) == {("The mill turns.", "The pump is new.")}


def test_one_request_without_it_is_enough_to_bring_a_passage_back():
    constant = ConstantPassages()
    sent(constant, *[(f"Passage {number}.", RULE) for number in range(8)])
    assert sent(constant, ("Other.", "More."), ("Passage 9.", RULE))[-1] == ("Passage 9.", RULE)


def test_a_passage_that_every_request_retrieves_stays_where_its_place_changes():
    draw, popular = Random(5), "Opening hours: nine to five."
    requests = [tuple(draw.sample([f"Passage {n}.", popular, f"More of {n}."], 3)) for n in range(12)]
    assert sent(ConstantPassages(), *requests) == requests


def test_it_is_left_out_whichever_reader_found_it():
    capture = LearnedCapture(Learner(lambda: 7.0, salt=3), lambda _: None)
    reader = StructureExtractor()
    found = []
    for number in range(9):
        request = chat(("user", PROMPT.format(number=number, hall=number + 3, rule=RULE)))
        extraction = capture.extract("shop", request, partial(read, reader, request), learns=False)
        found.append([context.text for context in extraction.contexts])
    assert len(found[0]) == 3
    assert len(found[-1]) == 2
    assert RULE not in found[-1]


def read(reader, request):
    return reader.extract(request, Response(status=200, body={}))
