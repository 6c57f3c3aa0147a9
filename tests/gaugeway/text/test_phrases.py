from gaugeway.text.phrases import Phrases


def test_phrases_within_others_and_beside_half_of_a_surrogate_pair_are_found():
    phrases = Phrases(["tea", "the tea", "cup", "cup"])
    assert phrases.found_in("the tea \ud800 is hot") == {"tea", "the tea"}
    assert phrases.found_in("") == set()
