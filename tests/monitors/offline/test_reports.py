"""Reports show what is there, and no text of a data set becomes anything but text."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from gaugeway.records import Context, Evaluation, Failed, Sample, Score, Skipped
from monitors.analysis.claim_highlight import Claim, claims_in, mark
from monitors.offline import dataset, progress
from monitors.offline.comparison import Comparison, Floor
from monitors.offline.reports import Extras, render, write
from monitors.offline.results import Measure, Row, Run

EVIL = '<script>alert(1)</script><img src=x onerror="x()">\'"&|`</details>{{ 7*7 }}\x00\x1b[31m\ud800'
RESPONSE = "The fee is 0.2 percent. Nobody picks shares. Funds always win."
CLAIMS = (
    {"claim": "Fees are 0.2 percent", "verdict": "contradicted", "context": 0, "contexts": [0], "quote": "0.05"},
    {"claim": "No one picks the shares", "verdict": "supported", "context": 0, "contexts": [0], "quote": "nobody"},
    {"claim": "Funds always win", "verdict": "not_mentioned", "context": None, "contexts": [], "quote": ""},
    {"claim": "Zürich ist kalt", "verdict": "not_mentioned", "context": None, "contexts": [], "quote": ""},
)


def evaluation(metric, outcome, name="s0"):
    return Evaluation(sample_id=name, metric=metric, version="1", outcome=outcome, judge="j", cost_usd=0.01)


def a_run(text="plain", evidence=CLAIMS):
    def sample(name):
        contexts = (Context(text=text, id=text, source=text),)
        return Sample(
            id=name + text, started_at=0.0, question=text, response=text + RESPONSE, contexts=contexts, reference=text
        )

    outcomes = [Score(0.25, text, evidence), Score(1.0), Skipped("no_claims"), Failed("timeout", text)]
    rows = [
        Row(sample=sample(f"s{n}"), evaluations={"faithfulness": evaluation("faithfulness", one, f"s{n}{text}")})
        for n, one in enumerate(outcomes)
    ]
    measures = (Measure(name="faithfulness", version="1", judge=text),)
    return Run(source=text, created_at=0.0, measures=measures, rows=tuple(rows), notes=(text,))


EXTRAS = Extras(
    floors=[Floor(metric="faithfulness", limit=0.8, bound=0.1, met=False, reason="below")],
    comparisons=[
        Comparison(
            metric="faithfulness", pairs=3, old_mean=0.5, new_mean=0.6, difference=0.1, low=-0.1, high=0.3, more=40
        ),
        Comparison(metric="mrr", pairs=0, reason="no sample has a score in both"),
    ],
    against="old.json",
)


class Page(HTMLParser):
    """Collects the tags with their attributes, the text of marks, and checks that what opens closes."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.marks, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "mark":
            self.marks.append((self.get_starttag_text().split('"')[1], data.strip()))


def test_the_page_holds_nothing_that_runs_or_loads():
    evil = tuple({**claim, "claim": EVIL + claim["claim"], "quote": EVIL, EVIL: EVIL} for claim in CLAIMS)
    page = Page(render(".html", a_run(EVIL, evil), EXTRAS))
    assert page.open == []
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "link", "iframe", "object", "embed", "form", "base"}
    attributes = {key for _, some in page.tags for key in some}
    assert not [key for key in attributes if key.startswith("on") or key == "src"]
    assert all(some["href"].startswith("#") for tag, some in page.tags if tag == "a")
    assert "49" not in [data for _, data in page.marks]


def test_the_policy_of_the_page_forbids_scripts_and_loading():
    policies = [some for tag, some in Page(render(".html", a_run())).tags if some.get("http-equiv")]
    assert policies[0]["content"].startswith("default-src 'none'")


def test_claims_are_marked_in_the_response_with_their_verdict():
    marks = Page(render(".html", a_run(""))).marks
    assert ("contradicted", "The fee is 0.2 percent.") in marks
    assert ("supported", "Nobody picks shares.") in marks
    assert ("not_mentioned", "Funds always win.") in marks
    assert ("not_mentioned", "Zürich ist kalt") in marks


def test_a_perfect_sample_is_no_worst_case():
    text = render(".html", a_run())
    assert "s0plain" in text
    assert "s1plain" not in text


def test_the_histogram_has_a_bar_for_every_score():
    scores = [0.0, 0.02, 0.5, 0.999, 1.0]
    rows = [
        Row(sample=Sample(id=str(n), started_at=0.0), evaluations={"mrr": evaluation("mrr", Score(value), str(n))})
        for n, value in enumerate(scores)
    ]
    page = render(
        ".html", Run(source="x", created_at=0.0, measures=(Measure(name="mrr", version="1"),), rows=tuple(rows))
    )
    bars = re.findall(r'height="([0-9.]+)" fill="var\(--bar\)"><title>(.+?)</title>', page)
    assert bars == [("72.0", "0.00 to 0.05: 2"), ("36.0", "0.50 to 0.55: 1"), ("72.0", "0.95 to 1.00: 2")]


def test_the_page_says_what_has_no_score():
    text = render(".html", a_run(), EXTRAS)
    assert "1 no_claims" in text
    assert "1 timeout" in text
    assert "needs about 40 more" in text
    assert "missed" in text


def test_markdown_keeps_its_tables_whatever_the_texts():
    text = render(".md", a_run("a | b\n\n# c `x` <b>"), EXTRAS)
    for line in text.splitlines():
        if line.startswith("|"):
            cells = line.replace("\\|", "").count("|") - 1
            assert cells in (4, 7), line
    assert "\n# c" not in text
    assert "<b>" not in text
    assert "| faithfulness | 3 | 0.500 | 0.600 | +0.100 | -0.100 to +0.300 | cannot tell; needs about 40 more |" in text


def test_junit_fails_where_the_command_does():
    root = ET.fromstring(render(".xml", a_run(EVIL), EXTRAS))
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    assert root.find("testsuite[@name='floors']/testcase/failure").get("message") == "below"
    assert root.find("testsuite[@name='faithfulness']/testcase/error").get("type") == "timeout"


@pytest.mark.parametrize("suffix", [".html", ".md", ".json", ".xml", ".csv", ".jsonl"])
def test_every_report_is_written(tmp_path, suffix):
    path = tmp_path / "new" / f"report{suffix}"
    write(a_run(EVIL.replace("\ud800", "")), path, EXTRAS)
    assert path.stat().st_size > 500


def test_another_suffix_is_refused_before_anything_is_paid(tmp_path):
    with pytest.raises(ValueError, match=r"expected a file name ending in \.html"):
        write(a_run(), tmp_path / "report.pdf")


def test_a_sentence_gets_the_worst_verdict_on_its_claims():
    pieces, nowhere = mark(
        "Rates rise and 3.5 million people pay. Fine!",
        [Claim("Rates rise", "supported"), Claim("3.5 million people pay", "contradicted")],
    )
    assert [(piece.text.strip(), piece.verdict) for piece in pieces] == [
        ("Rates rise and 3.5 million people pay.", "contradicted"),
        ("Fine!", None),
    ]
    assert nowhere == ()


def test_marking_loses_no_letter():
    text = ' One. "Two!" 三。四。\n\n- five 5.5 e.g. six'
    assert "".join(piece.text for piece in mark(text, [])[0]) == text


def test_marking_needs_no_spaces():
    pieces, _ = mark("手数料は年率0.2%です。誰も株を選びません。", [Claim("誰も株を選ばない", "supported")])
    assert [piece.verdict for piece in pieces] == [None, "supported"]


def test_sentences_with_unsupported_numbers_are_claims_too():
    item = {"sentence": "It costs 5.", "unsupported_numbers": ["5"], "unsupported_names": []}
    fine = {"sentence": "Fine.", "unsupported_numbers": [], "unsupported_names": []}
    found = claims_in([evaluation("lexical_groundedness", Score(0.5, "", (item, fine)))])
    assert found == (Claim("It costs 5.", "not_mentioned", "5"),)


def test_claims_of_the_reference_are_marked_there():
    judged = ({"claim": "Fees are low", "verdict": "not_mentioned", "contexts": [], "quote": ""},)
    said = ({"claim": "Nobody picks shares", "verdict": "supported", "contexts": [0], "quote": ""},)
    sample = Sample(id="a", started_at=0.0, response="Nobody picks shares.", reference="The fees are low.")
    outcomes = {"context_recall": Score(0.0, "", judged), "faithfulness": Score(0.5, "", said)}
    row = Row(sample=sample, evaluations={name: evaluation(name, one) for name, one in outcomes.items()})
    measures = (Measure(name="context_recall", version="1"),)
    marks = Page(render(".html", Run(source="s", created_at=0.0, measures=measures, rows=(row,)))).marks[3:]
    assert marks == [("supported", "Nobody picks shares."), ("not_mentioned", "The fees are low.")]


def test_how_long_answers_took_is_told_where_it_is_known():
    assert "s on average" not in render(".html", a_run()) + render(".md", a_run())
    assert json.loads(render(".json", a_run()))["latency"] is None
    rows = tuple(
        Row(sample=Sample(id=f"t{taken}", started_at=0.0, duration_s=taken), evaluations={})
        for taken in (1.0, 3.0, None)
    )
    timed = Run(source="s", created_at=0.0, measures=(), rows=rows)
    for suffix in (".html", ".md"):
        assert "Answer latency: mean 2.00 s, p50 2.00 s" in render(suffix, timed)
        assert "Retrieval latency" not in render(suffix, timed)
    assert json.loads(render(".json", timed))["latency"]["p95"] == pytest.approx(2.9)


def test_the_latency_of_retrieval_and_answer_is_told_apart_and_together_where_both_are_known():
    samples = (
        Sample(id="a", started_at=0.0, duration_s=1.0, retrieval_s=0.5),
        Sample(id="b", started_at=0.0, duration_s=3.0),
    )
    timed = Run(source="s", created_at=0.0, measures=(), rows=tuple(Row(sample=one, evaluations={}) for one in samples))
    for suffix in (".html", ".md"):
        text = render(suffix, timed)
        assert "Answer latency: mean 2.00 s" in text
        assert "Retrieval latency: mean 0.50 s" in text
        assert "Both together: mean 1.50 s" in text
    assert json.loads(render(".json", timed))["retrieval_latency"]["mean"] == 0.5


def test_evidence_is_told_in_words_and_what_says_nothing_is_left_out():
    item = {"claim": "A", "verdict": "not_mentioned", "context": None, "contexts": [], "quote": "", "right_one": True}
    nested = {"context": 0, "ratio": 1 / 3, "statements": [{"statement": "B", "relevant": False}, {"statement": "C"}]}
    text = render(".html", a_run(evidence=(item, nested)))
    cells = re.findall(r"<tr><td>(<span.*?)</td></tr>", text)
    assert [re.sub("<.*?>", "", one) for one in cells] == [
        "claim: A · verdict: not mentioned · right one: yes",
        "context: 0 · ratio: 0.3333 · statements: statement: B, relevant: no; statement: C",
    ]


def test_the_key_of_the_marks_stands_only_where_something_is_marked():
    assert 'class="key' in render(".html", a_run())
    assert 'class="key' not in render(".html", a_run(evidence=()))


@pytest.mark.parametrize("suffix", [".md", ".html"])
def test_answers_that_decline_stand_beside_the_means(suffix):
    answers = ("I don't know.", "The fee is 0.2 percent.", "The documents do not mention the fee.", "Yes.")
    rows = [
        Row(sample=Sample(id=str(n), started_at=0.0, response=one), evaluations={}) for n, one in enumerate(answers)
    ]
    run = Run(source="x", created_at=0.0, measures=(), rows=tuple(rows))
    assert "2 of 4 answers (50.0%) decline to answer" in render(suffix, run)
    assert run.to_dict()["abstained"] == 2
    assert Run.from_dict(run.to_dict()).abstained == 2
    assert "decline to answer" not in render(
        suffix, Run(source="x", created_at=0.0, measures=(), rows=tuple(rows[1:2]))
    )


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1")
_SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20\ufe66"
_LEADS = ("\n", " ", "\x00", "\xa0", "\u3000", "\u200b", "\ufeff", "\u202e", " \n\t")
FORMULAS = [*FORMULAS, *_SIGNS, *(f"{lead}{sign}1+1" for lead in _LEADS for sign in _SIGNS)]


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_text_that_looks_like_a_formula_begins_with_a_quote_in_the_csv(formula):
    table = list(csv.DictReader(io.StringIO(render(".csv", a_run(formula)), newline="")))
    assert table[0]["user_input"] == f"'{formula}"
    assert table[0]["faithfulness.reason"] == f"'{formula}"
    assert not [cell for row in table for cell in row.values() if cell.startswith(tuple("=+-@\t\r"))]


def test_the_csv_has_the_score_the_outcome_and_the_reason_of_every_sample():
    table = list(csv.DictReader(io.StringIO(render(".csv", a_run('a, "b"\nc')), newline="")))
    assert [row["user_input"] for row in table] == ['a, "b"\nc'] * 4
    assert [(row["faithfulness"], row["faithfulness.outcome"]) for row in table] == [
        ("0.25", "scored"),
        ("1.0", "scored"),
        ("", "skipped"),
        ("", "failed"),
    ]
    assert table[2]["faithfulness.reason"] == "no_claims"
    assert table[3]["faithfulness.reason"] == 'timeout: a, "b"\nc'


def test_the_csv_holds_every_field_of_the_sample_and_is_read_back(tmp_path):
    given = {
        "id": "1",
        "user_input": "And then?",
        "response": "It was sold.",
        "retrieved_contexts": ["a", "b"],
        "reference": "Sold.",
        "reference_contexts": ["c"],
        "tags": {"tenant": "x"},
        "app": "shop",
        "model": "m",
        "started_at": 5.0,
        "duration_s": 1.5,
        "retrieval_s": 0.5,
        "session": "s",
        "conversation_id": "k",
        "turn": 2,
        "hop": 1,
        "history": [{"role": "user", "content": "What?"}],
        "tool_calls": [{"name": "find", "arguments": "{}"}],
    }
    (tmp_path / "in.jsonl").write_text(json.dumps(given))
    (one,), _ = dataset.read(tmp_path / "in.jsonl")
    run = Run(source="x", created_at=0.0, measures=(), rows=(Row(sample=one, evaluations={}),))
    write(run, tmp_path / "out.csv")
    (row,) = csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text(), newline=""))
    assert {name for name in given if not row[name]} == set()
    assert json.loads(row["tool_calls"])[0]["name"] == "find"
    (again,), _ = dataset.read(tmp_path / "out.csv")
    assert again == one


def test_the_jsonl_is_a_data_set_with_scores(tmp_path):
    write(a_run("what = this?"), tmp_path / "rows.jsonl")
    records = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [next(iter(one["scores"]["faithfulness"])) for one in records] == ["value", "value", "skipped", "failed"]
    samples, notes = dataset.read(tmp_path / "rows.jsonl")
    assert notes == []
    assert [one.response for one in samples] == [row.sample.response for row in a_run("what = this?").rows]


@pytest.mark.parametrize("clustered", [False, True])
def test_the_tables_of_the_terminal_fit_80_columns(clustered):
    name = "geval:a_criterion_with_a_long_name_of_several_words"
    rows = [
        Row(
            sample=Sample(id=f"{n}", started_at=0.0, session=f"s{n // 2}" if clustered else None),
            evaluations={
                name: evaluation(name, Score(0.5 + 0.1 * (n % 3))),
                "mrr": evaluation("mrr", Skipped("no_ids")),
            },
        )
        for n in range(8)
    ]
    measures = (Measure(name=name, version="1", lower_is_better=True), Measure(name="mrr", version="1"))
    run = Run(source="data.jsonl", created_at=0.0, measures=measures, rows=tuple(rows))
    console = Console(file=io.StringIO(), width=80, highlight=False)
    progress.show_run(console, run)
    one = Comparison(metric=name, pairs=100_000, old_mean=0.5, new_mean=0.6, difference=0.1, low=-0.1, high=0.3, more=9)
    progress.show_comparison(console, [one], "old.json")
    text = console.file.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert [line for line in text.splitlines() if line.startswith(name) and ":" not in line[6:]] == [
        f"{name} (0 is best)",
        name,
    ]
    assert "-0.100 to +0.300" in text
    assert "mrr: skipped 8 no_ids" in text
    assert "needs about 9 more" in text
    assert ("n_eff" in text) == clustered


def test_a_metric_stands_beside_its_numbers_where_both_fit_and_zero_has_no_sign():
    one = Comparison(metric="mrr", pairs=9, old_mean=0.5, new_mean=0.5, difference=-0.0001, low=-0.0004, high=0.1)
    console = Console(file=io.StringIO(), width=80, highlight=False)
    progress.show_comparison(console, [one], "old.json", (1, 0))
    text = console.file.getvalue()
    assert "mrr         9   0.500  0.500   0.000  0.000 to +0.100  cannot tell" in text
    assert "1 sample is only in the old run, 0 only in the new one" in text


def test_one_is_singular():
    rows = (Row(sample=Sample(id="1", started_at=0.0), evaluations={}),)
    run = Run(source="x", created_at=0.0, measures=(), rows=rows, reused=1)
    console = Console(file=io.StringIO(), width=80, highlight=False)
    progress.show_run(console, run)
    for text in (console.file.getvalue(), run.to_markdown()):
        assert "1 sample" in text
        assert "1 evaluation reused" in text
        assert "1 samples" not in text
    assert str(run) == "1 sample"
    page = run.to_html()
    assert "1 sample ·" in page
    assert "1 evaluation known" in page
