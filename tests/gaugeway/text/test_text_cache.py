"""Values of texts that recur: found again, within a bound on memory."""

from gaugeway.text.cache import LONGEST_CACHED, MAX_CACHED_BYTES, TextCache


def test_a_text_is_found_again_by_its_content_and_false_is_a_value():
    cache: TextCache[bool] = TextCache()
    cache.put("passage", value=False)

    assert cache.get(b"passage".decode()) is False
    assert cache.get("c") is None


def test_texts_that_are_not_seen_again_are_dropped_and_others_stay():
    cache: TextCache[int] = TextCache()
    usual = "a passage that every request brings " * 20
    cache.put(usual, 1)
    for number in range(20_000):
        cache.put(f"{number} " + "x" * 1_000, number)
        assert cache.get(usual) == 1

    assert len(cache) * 1_000 <= 2 * MAX_CACHED_BYTES
    assert cache.get("0 " + "x" * 1_000) is None
    assert cache.get("19999 " + "x" * 1_000) == 19_999


def test_wide_characters_count_with_the_memory_they_take():
    cache: TextCache[int] = TextCache()
    for number in range(5_000):
        cache.put(f"{number} " + "\U0001f600" * 1_000, number)

    assert len(cache) * 4_000 <= 2 * MAX_CACHED_BYTES


def test_a_very_long_text_is_not_kept():
    cache: TextCache[int] = TextCache()
    cache.put("x" * (LONGEST_CACHED + 1), 1)

    assert len(cache) == 0
