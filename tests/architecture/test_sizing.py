"""The sizing table of the documentation is what its arithmetic says, of figures that were measured."""

import re
from pathlib import Path

import pytest

from benchmarks.scaling.sizing import HEAD, SHOWN, Measured, need, table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/scaling.md"
COSTS = ROOT / "benchmarks/scaling/results/costs.md"


def measured():
    """What results/costs.md says: way -> column -> figure."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in COSTS.read_text().splitlines() if "|" in line
    ]
    (_, *columns), _, *ways = rows
    return {name: dict(zip(columns, map(float, figures), strict=True)) for name, *figures in ways}


def test_the_page_shows_the_table_that_is_calculated():
    assert table(0.4, 1.6) in PAGE.read_text("utf-8")
    assert len(re.findall(re.escape(HEAD), PAGE.read_text("utf-8"))) == 1
    assert len(SHOWN) == 9


def test_it_is_calculated_from_what_was_measured():
    ways, m = measured(), Measured()
    free, judged = ways["captured, scored without an LLM"], ways["… and judged"]
    assert m.free_cpu_s * 1000 == pytest.approx(free["monitors, CPU ms"], rel=0.03)
    assert (m.free_cpu_s + m.judged_cpu_s) * 1000 == pytest.approx(judged["monitors, CPU ms"], rel=0.03)
    assert m.sample_bytes / 1024 == pytest.approx(free["store, KiB"], rel=0.03)
    assert (m.sample_bytes + m.judged_bytes) / 1024 == pytest.approx(judged["store, KiB"], rel=0.03)
    assert m.tokens_in == pytest.approx(judged["judge reads, tokens"], rel=0.03)
    assert m.tokens_out == pytest.approx(judged["judge writes, tokens"], rel=0.03)
    assert m.evaluations == free["evaluations"]
    assert m.evaluations + m.judged_evaluations == judged["evaluations"]


def test_processes_rows_bytes_and_money_by_hand():
    m = Measured(
        request_cpu_s=0.001,
        capture_cpu_s=0.002,
        free_cpu_s=0.01,
        judged_cpu_s=0.02,
        tokens_in=1000,
        tokens_out=100,
        sample_bytes=1000,
        judged_bytes=2000,
        places=16,
    )
    one = need(300, capture=0.5, judged=0.1, judge_s=4.0, usd_in=1.0, usd_out=10.0, m=m)
    assert one.gateways == 1  # 0.3 + 0.3 cores at 0.6
    assert one.in_flight == 120  # 30 a second, 4 s each
    assert one.monitors == 13  # 7.5 places of 16 at 0.6; cores alone: 1.5 + 0.6, four processes
    assert one.stored_per_s == 150
    assert one.rows_per_day == (150 * 2 + 30 * 4) * 86_400
    assert one.bytes_per_day == (150 * 1000 + 30 * 2000) * 86_400
    assert one.usd_per_day == pytest.approx(30 * 86_400 * 0.002)
