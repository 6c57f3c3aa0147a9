"""Lines that all passages begin or end with, apart from their words, belong to the record."""

import pytest

from gaugeway.prompts.learning.plan_evidence import RecordShapes

TEXT = "The mill turns at noon.\nIt rests on Sundays."
RECORDS = {
    "title": lambda at: f"{'Old ' * (at % 3)}Mill\n{TEXT}",
    "source": lambda at: f"{TEXT}\nSource: mill-{at}.pdf",
    "chunk": lambda at: f"chunk {at} of mill.pdf\n{TEXT}",
    "cell": lambda at: f"mill-{at}.md | {TEXT}",
}


def recurs(texts):
    shapes = RecordShapes()
    for at in range(0, len(texts), 3):
        shapes.add(texts[at : at + 3])
    return shapes.recurring


@pytest.mark.parametrize("record", RECORDS)
def test_a_line_of_every_record_is_none_of_its_text(record):
    assert recurs([RECORDS[record](at) for at in range(18)])


def test_a_heading_in_some_passages_is_their_text():
    assert not recurs([f"Hours {at}\n{TEXT}" if at % 2 else TEXT for at in range(18)])


def test_few_passages_show_nothing():
    assert not recurs([RECORDS["title"](at) for at in range(6)])
