"""`llms.txt` has the form that agents expect, and what it names exists."""

import re
from pathlib import Path

import gaugeway
from gaugeway.settings.shared import Config
from tests.support.commands import commands

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "llms.txt").read_text("utf-8")
MOST = 6_000


def test_it_is_a_title_a_summary_and_lists_of_links():
    assert TEXT.startswith("# Gaugeway\n\n> ")
    assert len(TEXT) <= MOST
    sections = re.split(r"^## .+\n\n", TEXT, flags=re.MULTILINE)[1:]
    assert len(sections) >= 4
    assert all(line.startswith("- [") for section in sections for line in section.split("\n") if line)


def test_every_link_leads_to_a_page():
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) == len({*links}) > 20
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_every_command_name_and_port_exists():
    assert {*re.findall(r"`gaugeway (\w+)", TEXT)} <= {*commands()}
    assert {*re.findall(r"from gaugeway import (\w+)", TEXT)} <= {*gaugeway.__all__}
    assert {*re.findall(r"127\.0\.0\.1:(\d+)", TEXT)} == {"8080", str(Config().monitors.port)}
