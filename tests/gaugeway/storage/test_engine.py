"""An engine is found by the scheme of a URL, and says which ports it offers."""

import pytest

from gaugeway.extensions import registered
from gaugeway.storage.engine import Engine, adapter, engine_of

OFFERED = {
    "store": {"clickhouse", "clickhouses", "postgres", "postgresql", "sqlite"},
    "queue": {"postgres", "postgresql", "redis", "rediss", "sqlite", "valkey", "valkeys"},
    "keys": {"postgres", "postgresql"},
    "limits": {"postgres", "postgresql", "redis", "rediss", "valkey", "valkeys"},
    "templates": {"clickhouse", "clickhouses", "postgres", "postgresql", "sqlite"},
    "datasets": {"clickhouse", "clickhouses", "postgres", "postgresql", "sqlite"},
}


@pytest.mark.parametrize("port", OFFERED)
def test_every_scheme_of_the_product_offers_what_it_did(port):
    known = registered("engines")
    assert {scheme for scheme in known if engine_of(f"{scheme}://x").offers(port)} == OFFERED[port]
    for scheme in OFFERED[port]:
        assert hasattr(adapter(f"{scheme}://x", port), "from_url")


@pytest.mark.parametrize(
    ("url", "port", "problem"),
    [
        ("mysql://user:secret@h/x", "keys", "unsupported URL scheme 'mysql'; use postgres://, postgresql://"),
        ("redis://u:secret@h", "keys", "unsupported URL scheme 'redis'; use postgres://, postgresql://"),
        ("secret", "keys", "the URL has no scheme; use postgres://, postgresql://"),
    ],
)
def test_the_error_names_the_schemes_that_offer_the_port_and_quotes_no_more_than_the_scheme(url, port, problem):
    with pytest.raises(ValueError, match="use") as caught:
        adapter(url, port)
    assert str(caught.value) == problem


def test_an_entry_point_that_is_no_engine_is_named(monkeypatch):
    monkeypatch.setattr("gaugeway.storage.engine.registered", lambda _: {"odd": "pathlib:Path"})
    with pytest.raises(ValueError, match="'pathlib:Path' is not a"):
        adapter("odd://x", "store")


def test_an_engine_of_another_package_is_used(monkeypatch):
    monkeypatch.setattr(f"{__name__}.THIRD", Engine(queue="collections:deque"), raising=False)
    monkeypatch.setattr("gaugeway.storage.engine.registered", lambda _: {"third": f"{__name__}:THIRD"})
    assert adapter("third://x", "queue").__name__ == "deque"
    with pytest.raises(ValueError, match="unsupported URL scheme 'third'"):
        adapter("third://x", "store")
