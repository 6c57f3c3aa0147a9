"""Only the changes between working and failing are logged."""

import logging

from gaugeway.runtime.outage import Outage


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
