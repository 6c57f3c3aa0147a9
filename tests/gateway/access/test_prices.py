import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.prices import Ledger, Prices
from gateway.config import Price
from gaugeway.records import Usage

PRICES = Prices(
    {
        "gpt-4o*": Price(input=2.5, output=10, cached=1.25),
        "gpt-4o-mini*": Price(input=0.15, output=0.6),
        "gpt-4o": Price(input=5, output=15),
        "*embedding*": Price(input=0.02),
    }
)
counts = st.integers(0, 10**7)


def test_an_exchange_costs_its_tokens_times_the_prices_per_million():
    usage = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_tokens=400_000)
    assert PRICES.costs("gpt-4o-2024-08-06", usage) == pytest.approx({"input": 1.5, "output": 1.0, "cached": 0.5})
    assert PRICES.cost("gpt-4o-2024-08-06", usage) == pytest.approx(3.0)


def test_the_longest_pattern_wins_and_a_name_beats_every_pattern():
    million = Usage(input_tokens=1_000_000)
    assert PRICES.cost("gpt-4o-mini-2024", million) == pytest.approx(0.15)
    assert PRICES.cost("gpt-4o-2024", million) == pytest.approx(2.5)
    assert PRICES.cost("gpt-4o", million) == pytest.approx(5)
    assert PRICES.cost("text-embedding-3-small", million) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("model", "usage"),
    [("o3", Usage(input_tokens=1)), ("gpt-4o", None), ("gpt-4o", Usage()), ("GPT-4O", Usage(input_tokens=1))],
)
def test_without_a_price_or_any_count_the_cost_is_unknown_and_not_zero(model, usage):
    assert PRICES.cost(model, usage) is None


def test_cached_tokens_without_a_price_of_their_own_cost_what_input_costs():
    usage = Usage(input_tokens=1000, output_tokens=0, cached_tokens=900)
    assert PRICES.cost("gpt-4o-mini", usage) == pytest.approx(1000 * 0.15e-6)


def test_anthropic_counts_cached_tokens_beside_the_input():
    usage = Usage(input_tokens=100, output_tokens=0, cached_tokens=900)
    costs = PRICES.costs("gpt-4o-x", usage, cached_apart=True)
    assert costs == pytest.approx({"input": 100 * 2.5e-6, "output": 0.0, "cached": 900 * 1.25e-6})


@given(counts, counts, counts)
def test_a_cost_is_never_negative_and_never_above_everything_at_full_price(given_in, given_out, cached):
    usage = Usage(input_tokens=given_in, output_tokens=given_out, cached_tokens=cached)
    cost = PRICES.cost("gpt-4o-x", usage)
    assert 0 <= cost <= (given_in * 2.5 + given_out * 10) * 1e-6 * (1 + 1e-9)


def test_a_table_without_prices_is_false():
    assert not Prices({})
    assert PRICES


entries = st.tuples(st.integers(0, 2), st.sampled_from(["app:a", "key:b"]))
steps = st.lists(st.tuples(entries, st.integers(1, 1000)) | st.sampled_from(["write", "lose"]))


@given(steps)
def test_the_ledger_knows_every_cent_whether_or_not_the_file_took_it(steps):
    ledger, file, truth = Ledger(), {}, {}
    for step in steps:
        if step == "write":
            unsaved = ledger.unsaved()
            for entry, usd in unsaved.items():
                file[entry] = file.get(entry, 0.0) + usd
            ledger.add(0, "app:a", 1.0)  # meanwhile
            truth[0, "app:a"] = truth.get((0, "app:a"), 0) + 1
            ledger.saved(unsaved, dict(file))
        elif step == "lose":
            ledger.unsaved()
        else:
            (day, subject), usd = step
            ledger.add(day, subject, float(usd))
            truth[day, subject] = truth.get((day, subject), 0) + usd
        for day in range(3):
            for subject in ("app:a", "key:b"):
                assert ledger.spent(day, subject) == pytest.approx(truth.get((day, subject), 0))
