"""Sessions, histories and tool calls of a data set: read, bounded, redacted, and counted as alike."""

from dataclasses import replace

import numpy as np
import pytest

from gaugeway.records import Evaluation, Message, Sample, Score, ToolCall
from gaugeway.settings.shared import Sampled
from monitors.metrics.asked_again import AskedAgain
from monitors.offline import dataset
from monitors.offline.data_errors import DataError
from monitors.offline.dataset_fields import Reader, content_key
from monitors.offline.dataset_values import protected
from monitors.offline.library import evaluate
from monitors.offline.reports import render
from monitors.offline.results import Measure, Row, Run

PASSAGE = "The warranty is two years."
RECORD = {
    "id": "a",
    "user_input": "And in France?",
    "response": "Two years.",
    "session": "s1",
    "conversation_id": 7,
    "turn": 2,
    "hop": 1,
    "history": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How long is the warranty?"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "Two years."},
    ],
    "tool_calls": [{"name": "search", "arguments": {"q": "France"}, "hop": 1}, {"name": "done"}],
    "cluster": "u:1",
}


def run_of(samples, values):
    def row(sample, value):
        made = Evaluation(sample_id=sample.id, metric="x", version="1", outcome=Score(value))
        return Row(sample=sample, evaluations={"x": made})

    rows = tuple(row(one, value) for one, value in zip(samples, values, strict=True))
    return Run(source="d", created_at=0.0, measures=(Measure(name="x", version="1"),), rows=rows)


def test_the_fields_of_a_conversation_arrive():
    reader = Reader()
    sample = reader.sample(RECORD)
    assert reader.notes() == []
    assert (sample.session, sample.conversation, sample.turn, sample.hop, sample.cluster) == ("s1", "7", 2, 1, "u:1")
    assert sample.history == (
        Message(role="user", text="How long is the warranty?"),
        Message(role="assistant", text="Two years."),
    )
    assert sample.calls == (ToolCall(name="search", arguments='{"q":"France"}', hop=1), ToolCall(name="done"))


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("session", ["s"], "session: expected a name or a number"),
        ("session", True, "session: expected a name or a number"),
        ("turn", 0, "turn: expected a whole number from 1 to 100,000"),
        ("hop", 1.5, "hop: expected a whole number from 1 to 100,000"),
        ("cluster", 3, "cluster: expected a text, got a number"),
        ("history", "User: hello", "history: expected a list of objects"),
        ("history", [{"role": "user", "content": "a"}, "b"], "history: [1] expected an object with role and content"),
        ("history", [{"role": "user", "content": 3}], "history: [0] content: expected a text"),
        ("tool_calls", [{"arguments": ""}], "tool_calls: [0] expected an object with name and arguments"),
        ("tool_calls", [{"name": "a", "arguments": 3}], "tool_calls: [0] arguments: expected a text or an object"),
        ("tool_calls", [{"name": "a", "hop": 0}], "tool_calls: [0] hop: expected a whole number from 1 to 100,000"),
    ],
)
def test_what_is_wrong_is_told_by_field(field, value, problem):
    with pytest.raises(DataError) as caught:
        Reader().sample({**RECORD, field: value})
    assert caught.value.problems == [problem]


def test_a_csv_has_lists_as_json_and_numbers_as_text(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('question,answer,session,turn,history\nq,a,12,2,"[{""role"": ""user"", ""content"": ""first""}]"\n')
    (sample,), notes = dataset.read(path)
    assert (sample.session, sample.turn, sample.history, notes) == ("12", 2, (Message(role="user", text="first"),), [])


def test_histories_are_redacted_before_they_are_cut():
    secret = "sk-proj-" + "a1B2" * 12
    said = "x " * 985 + secret + " and more" * 300
    record = {**RECORD, "history": [{"role": "user", "content": "old"}] * 60 + [{"role": "user", "content": said}]}
    (sample,) = protected([Reader().sample(record)], Sampled())
    assert len(sample.history) == 50
    assert len(sample.history[-1].text) == 2_000
    assert "sk-proj" not in sample.history[-1].text
    assert "[SECRET_" in sample.history[-1].text


def test_the_content_key_sees_the_history_and_ignores_the_session():
    sample = Reader().sample(RECORD)
    plain = replace(sample, history=(), calls=())
    assert len({content_key(one) for one in (sample, plain, replace(sample, calls=()))}) == 3
    assert content_key(replace(sample, session="s2", turn=9)) == content_key(sample)


def test_asked_again_is_computed_offline():
    again = [{"role": "user", "content": "How long is the warranty?"}, {"role": "assistant", "content": "Hm."}]
    records = [
        {"question": "I asked how long the warranty is!", "answer": "Two years.", "history": again},
        {"question": "Is shipping free?", "answer": "Yes.", "history": again},
    ]
    run = evaluate(records, metrics=[AskedAgain()], judge="none")
    assert run.scores("asked_again") == [1.0, 0.0]


def test_samples_of_one_session_count_as_alike():
    values = [1.0] * 5 + [0.0] * 5 + [1.0] * 5 + [0.0] * 5 + [1.0] * 5 + [0.5] * 5
    samples = [Sample(id=str(n), started_at=0.0, session=f"s{n // 5}") for n in range(30)]
    (alike,) = run_of(samples, values).summary
    mixed = values[::5] * 5  # the order says nothing
    (alone,) = run_of([replace(one, session=None) for one in samples], mixed).summary
    assert (alike.n, alike.clusters) == (30, 6)
    assert alike.design_effect == pytest.approx(6.0, abs=0.01)
    assert alike.n_eff == pytest.approx(5.0, abs=0.01)
    assert alike.high - alike.low > alone.high - alone.low
    assert (alone.n_eff, alone.design_effect, alone.clusters) == (30.0, None, None)


def test_samples_of_sessions_that_nothing_names_count_as_alike_in_the_order_of_the_file():
    rng = np.random.default_rng(3)
    values = np.repeat((rng.random(20) < 0.7).astype(float), 5).tolist()
    samples = [Sample(id=str(n), started_at=0.0, session=f"s{n // 5}") for n in range(100)]
    (named,) = run_of(samples, values).summary
    (unnamed,) = run_of([replace(sample, session=None) for sample in samples], values).summary
    assert unnamed.clusters is None
    assert unnamed.design_effect == pytest.approx(named.design_effect, rel=0.3)
    assert unnamed.high - unnamed.low == pytest.approx(named.high - named.low, rel=0.3)
    text = render(".md", run_of([replace(sample, session=None) for sample in samples], values))
    assert "name their sessions" in text


@pytest.mark.parametrize("field", ["conversation", "session"])
def test_large_sessions_and_conversations_are_clusters_too(field):
    samples = [Sample(id=str(n), started_at=0.0, **{field: f"c{n // 10}"}) for n in range(30)]
    (alike,) = run_of(samples, [1.0] * 10 + [0.0] * 10 + [1.0] * 10).summary
    assert (alike.clusters, alike.design_effect > 5.0) == (3, True)


def test_one_session_for_all_is_no_cluster():
    (one,) = run_of([Sample(id=str(n), started_at=0.0, session="all") for n in range(6)], [1.0, 0.0] * 3).summary
    assert (one.clusters, one.design_effect, one.n_eff) == (None, None, 6.0)


def test_exported_clusters_count_where_no_session_is_named():
    samples = [Sample(id=str(n), started_at=0.0, cluster=f"u:{n // 2} q:{n}") for n in range(20)]
    (one,) = run_of(samples, [1.0, 1.0, 0.0, 0.0] * 5).summary
    assert (one.clusters, one.design_effect > 1.5) == (10, True)


@pytest.mark.parametrize("suffix", [".html", ".md", ".json"])
def test_reports_show_the_effective_sample_size_of_sessions_only(suffix):
    samples = [Sample(id=str(n), started_at=0.0, session=f"s{n // 5}") for n in range(30)]
    values = [1.0] * 15 + [0.0] * 15
    with_sessions = render(suffix, run_of(samples, values))
    without = render(suffix, run_of([replace(one, session=None) for one in samples], [1.0, 0.0] * 15))
    assert "n_eff" in with_sessions
    assert "6 sessions" in with_sessions or suffix == ".json"
    assert ("n_eff" in without) == (suffix == ".json")


def test_metrics_of_whole_conversations_say_once_that_a_data_set_has_none():
    records = [{"question": f"q{n}", "answer": "a"} for n in range(3)]
    run = evaluate(records, metrics=["goal_met", "gave_up"], judge="examples.rules:RuleJudge")
    said = "goal_met, gave_up are about whole conversations: computed on live traffic only"
    assert [note.startswith(said) for note in run.notes] == [True]
