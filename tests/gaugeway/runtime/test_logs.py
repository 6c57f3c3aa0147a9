"""Of what fails again and again, only changes or a line now and then are logged."""

import logging

from gaugeway.runtime.logs import EVERY_S, Outage, RateLimitedWarnings


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(caplog):
    caplog.set_level(logging.INFO)
    outage = Outage(logging.getLogger("gaugeway"))
    outage.end("works")
    for _ in range(2):
        outage.begin("fails: %s", "why")
        assert outage.lasts
        outage.begin("fails: %s", "why not")
        outage.end("works again")
        outage.end("works again")
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said == 2 * [("WARNING", "fails: why"), ("INFO", "works again")]


def test_one_line_of_each_kind_in_a_while_says_how_many_were_left_out(caplog):
    now = [100.0]
    warnings = RateLimitedWarnings(logging.getLogger("gaugeway.test"), lambda: now[0])
    for _ in range(4):
        warnings.warn("disk", "write failed: %s", "full")
    warnings.warn("network", "send failed: 100%")
    now[0] += EVERY_S - 0.1
    warnings.warn("disk", "write failed: %s", "full")
    now[0] += 0.1
    warnings.warn("disk", "write failed: %s", "full")
    now[0] += EVERY_S
    warnings.warn("disk", "write failed: %s", "full")
    assert [record.getMessage() for record in caplog.records] == [
        "write failed: full",
        "send failed: 100%",
        "write failed: full; 4 more since the last such line",
        "write failed: full",
    ]
