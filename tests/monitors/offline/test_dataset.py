"""Files become samples; every bad line is told with its number."""

import csv
import json

import pytest

from monitors.offline import dataset as reading
from monitors.offline.data_errors import DataError

ROWS = [
    {"id": "a", "question": "Who?", "answer": "Ann, 3.5 m tall.", "contexts": ["Ann.", 'He said "no".']},
    {"id": "b", "question": "¿Quién?", "answer": "Ana", "contexts": []},
]


def problems(path):
    with pytest.raises(DataError) as caught:
        reading.read(path)
    return caught.value.problems


def jsonl(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_jsonl(tmp_path):
    samples, notes = reading.read(jsonl(tmp_path / "a.jsonl", "\ufeff" + json.dumps(ROWS[0]), "", ROWS[1]))
    assert [sample.id for sample in samples] == ["a", "b"]
    assert notes == []


def test_every_bad_line_is_told_with_number_and_field(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ROWS[0], '{"id": "x",', {"answer": 3}, ROWS[1], {**ROWS[1], "tags": 1}, "[1]")
    found = problems(path)
    assert [one.removeprefix(f"{path}:").split(": ")[0] for one in found] == ["2", "3", "5", "6"]
    assert found[1] == f"{path}:3: answer: expected a text, got a number"


def test_no_more_than_fifty_problems_are_told(tmp_path):
    found = problems(jsonl(tmp_path / "a.jsonl", *[{"answer": 1}] * 80))
    assert len(found) == 51
    assert found[-1] == "... and 30 more"


def test_the_limit_stops_reading(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ROWS[0], "broken")
    assert len(reading.read(path, limit=1)[0]) == 1


def test_a_list_of_objects_in_one_json(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ROWS))
    assert len(reading.read(path)[0]) == 2
    path.write_text("{}")
    assert problems(path) == [f"{path}: expected a list of objects"]


@pytest.mark.parametrize("write", [json.dumps, repr], ids=["json", "python"])
def test_csv_with_lists_as_json_or_as_pandas_writes_them(tmp_path, write):
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        rows = csv.DictWriter(file, ["id", "question", "answer", "contexts"])
        rows.writeheader()
        rows.writerows({**row, "contexts": write(row["contexts"])} for row in ROWS)
    as_jsonl, _ = reading.read(jsonl(tmp_path / "a.jsonl", *ROWS))
    assert reading.read(path)[0] == as_jsonl


def test_bad_cells_of_a_csv_are_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('answer,contexts\nfine,"[""a""]"\nbad,"[""cut off"\nshort\nlong,[],1,2\n')
    assert problems(path) == [
        f"{path}:3: contexts: expected a JSON list, got a text",
        f"{path}:4: contexts: this line has too few cells",
        f"{path}:5: more cells than columns: 2 too many",
    ]


@pytest.mark.parametrize("text", ["Refunds take 14 days.", "[1] Refunds, see {terms}.", "14"])
def test_a_cell_with_plain_text_is_one_passage(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(f'answer,contexts\nfine,"{text}"\n')
    (sample,), _ = reading.read(path)
    assert [passage.text for passage in sample.contexts] == [text]


@pytest.mark.full
def test_parquet(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.Table.from_pylist([*ROWS, {"id": "c", "question": "What?"}]), path)
    samples, _ = reading.read(path)
    assert samples[:2] == reading.read(jsonl(tmp_path / "a.jsonl", *ROWS))[0]
    assert samples[2].response == ""
    path.write_bytes(b"no parquet")
    assert "not Parquet" in problems(path)[0]


def test_parquet_without_the_extra_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    path = tmp_path / "a.parquet"
    path.write_bytes(b"")
    assert problems(path) == [f"{path}: Parquet needs an extra: pip install 'gaugeway[datasets]'"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt", b"", "expected a file name ending in"),
        ("a.jsonl", b"\n\n", "contains no record"),
        ("a.csv", b"answer\n\xff\xfe\n", "not UTF-8"),
    ],
)
def test_files_that_are_no_data_set(tmp_path, name, content, problem):
    path = tmp_path / name
    path.write_bytes(content)
    assert problem in problems(path)[0]


def test_a_file_that_is_not_there(tmp_path):
    assert problems(tmp_path / "a.jsonl") == [f"{tmp_path / 'a.jsonl'}: No such file or directory"]


def test_times_in_a_csv_are_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("answer,started_at\nx,12.5\ny,noon\n")
    assert problems(path) == [f"{path}:3: started_at: expected a number (Unix seconds), got a text"]
    assert reading.read(path, limit=1)[0][0].started_at == 12.5


def test_durations_are_read_and_one_that_is_none_is_told(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("answer,duration_s\nx,0.25\ny,\nz,-1\n")
    assert problems(path) == [f"{path}:4: duration_s: expected a number (seconds, 0 or more), got -1.0"]
    assert [one.duration_s for one in reading.read(path, limit=2)[0]] == [0.25, None]
    path = tmp_path / "data.jsonl"
    path.write_text('{"answer": "x", "duration_s": 2}\n{"answer": "y", "duration_s": "2 s"}\n')
    assert problems(path) == [f"{path}:2: duration_s: expected a number (seconds, 0 or more), got a text"]
    assert reading.read(path, limit=1)[0][0].duration_s == 2.0
    path.write_text('{"answer": "x", "retrieval_s": 0.5}\n{"answer": "y", "retrieval_s": -1}\n')
    assert problems(path) == [f"{path}:2: retrieval_s: expected a number (seconds, 0 or more), got -1"]
    assert reading.read(path, limit=1)[0][0].retrieval_s == 0.5


def test_a_csv_with_mapped_columns(tmp_path):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["query", "said", "docs", "took", "ground_truths"])
        rows.writerow(["Who?", "Ann.", '["Ann did it."]', "1.5", '["Ann", "Ann Lee"]'])
        rows.writerow(["What?", "It.", "[]", "2", "plain"])
    renamed = {"user_input": "query", "response": "said", "retrieved_contexts": "docs", "duration_s": "took"}
    (first, second), notes = reading.read(path, renamed=renamed)
    assert notes == []
    assert (first.question, [one.text for one in first.contexts], first.duration_s) == ("Who?", ["Ann did it."], 1.5)
    assert (first.reference, second.reference) == ("Ann\nAnn Lee", "plain")


@pytest.mark.parametrize("name", ["reference", "ground_truth", "ground_truths", "gt"])
def test_a_list_of_references_is_joined_under_any_name_in_any_format(tmp_path, name):
    renamed = {"reference": "gt"} if name == "gt" else None
    (tmp_path / "d.csv").write_text(f'question,answer,{name}\nQ,A,"[""24 months"",""two years""]"\n')
    (tmp_path / "d.jsonl").write_text(json.dumps({"question": "Q", "answer": "A", name: ["24 months", "two years"]}))
    for file in ("d.csv", "d.jsonl"):
        (sample,), _ = reading.read(tmp_path / file, renamed=renamed)
        assert sample.reference == "24 months\ntwo years"


def test_only_a_list_of_texts_in_a_cell_is_a_list_of_references(tmp_path):
    (tmp_path / "d.csv").write_text('question,answer,reference\nQ,A,"[1, 2]"\nR,A,[see] below\n')
    samples, _ = reading.read(tmp_path / "d.csv")
    assert [one.reference for one in samples] == ["[1, 2]", "[see] below"]


def test_an_item_of_a_list_of_references_that_is_no_text_is_named(tmp_path):
    (tmp_path / "d.jsonl").write_text(json.dumps({"question": "Q", "answer": "A", "ground_truths": ["x", None]}))
    with pytest.raises(DataError) as caught:
        reading.read(tmp_path / "d.jsonl")
    assert caught.value.problems == [f"{tmp_path / 'd.jsonl'}:1: ground_truths: [1] expected a text, got null"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl", b'{"answer": "x"}\n{"answer": "M\xfcller"}\n', ":2: not UTF-8: invalid start byte 0xfc"),
        ("a.json", b'[\n{"answer": "M\xfcller"}]', ":2: not UTF-8: invalid start byte 0xfc"),
        ("a.csv", b"answer\nx\nM\xfcller\n", ":3: not UTF-8: invalid start byte 0xfc"),
        ("a.jsonl", b'{"answer": "x"}\n{"n": NaN}\n', ":2: not JSON: NaN is no JSON number, write null"),
        ("a.json", b'[{"answer": "x"},\n{"n": Infinity}]', ":2: not JSON: Infinity is no JSON number, write null"),
    ],
)
def test_what_is_not_utf_8_or_json_is_named_with_its_line(tmp_path, name, content, problem):
    (tmp_path / name).write_bytes(content)
    assert problems(tmp_path / name)[0].startswith(f"{tmp_path / name}{problem}")
