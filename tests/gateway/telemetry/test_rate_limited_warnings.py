"""Warnings of one kind are logged at most every 10 s, with the number of those left out."""

import logging

from gateway.telemetry.rate_limited_warnings import EVERY_S, RateLimitedWarnings


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
