"""The first scored exchange leaves one line in the log, which says what was captured and why a score is missing."""

import logging

from monitors.evaluation.first_exchange import FirstExchange, described
from monitors.records import Context, Evaluation, Failed, Sample, Score, Skipped


def sample(**changes):
    given = {"question": "how?", "contexts": (Context(text="a"), Context(text="b")), "context_source": "templates"}
    return Sample(id="ab", started_at=1.0, app="shop", model="m", response="secret answer", **(given | changes))


def evaluations(**outcomes):
    return [Evaluation(sample_id="ab", metric=name, version="1", outcome=outcome) for name, outcome in outcomes.items()]


def test_it_says_what_was_found_and_scored():
    said = described(sample(), evaluations(lexical=Score(0.834, "", ()), faithfulness=Skipped("not_sampled")))
    assert said == (
        "app shop, model m, question found, 2 passages found by 'templates'; scores: lexical 0.83; "
        "no score: faithfulness (not sampled)"
    )


def test_without_passages_it_says_what_to_do():
    said = described(sample(contexts=(), context_source="none", question=None), evaluations(f=Failed("timeout", "x")))
    assert "no question found, no passages found (see 'Tell Gaugeway the contexts'" in said
    assert said.endswith("no score: f (failed: timeout)")


def test_it_is_logged_once_without_content(caplog):
    caplog.set_level(logging.INFO, "gaugeway")
    first = FirstExchange("http://127.0.0.1:9465")
    first.scored(sample(), [])
    for _ in range(3):
        first.scored(sample(), evaluations(lexical=Score(1.0, "", ())))
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("http://127.0.0.1:9465/exchanges/ab")
    assert "secret" not in caplog.text
