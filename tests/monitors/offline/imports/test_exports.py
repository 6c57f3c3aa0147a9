"""Exports of Langfuse, LangSmith and Helicone, in the shapes that their sources write."""

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.offline import dataset
from monitors.offline.data_errors import DataError
from monitors.offline.imports import exports, sources
from monitors.offline.imports.result import check, data_set

PROMPT = (
    "Answer from the context.\n\nContext:\n[1] Returns are free within 30 days.\n\n"
    "[2] The customer pays the postage.\n\nQuestion: Who pays for a return?"
)


@pytest.fixture
def import_(tmp_path):
    """Import rows that are written as lines, a list or a page, and read the result as `gaugeway evaluate` does."""

    def load(tool, *rows, name="export.jsonl", **mapped):
        path = tmp_path / name
        lines = name.endswith(".jsonl")
        path.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows[0]), "utf-8")
        found = exports.load(tool, [path], mapped)
        if found.records:
            check(found)
            (tmp_path / "made.jsonl").write_text(data_set(found), "utf-8")
            dataset.read(tmp_path / "made.jsonl")
        return found

    return load


def reasons(found):
    return dict(list(found.unmapped))


# Langfuse

ITEM = {
    "id": "item-1",
    "status": "ACTIVE",
    "input": {"question": "Who pays?", "context": ["Returns are free."]},
    "expectedOutput": "The shop.",
    "metadata": {"area": "returns", "weight": 2},
    "sourceTraceId": "trace-1",
    "sourceObservationId": None,
    "datasetId": "d",
    "datasetName": "support",
    "createdAt": "2026-08-01T00:00:00Z",
    "updatedAt": "2026-08-01T00:00:00Z",
    "mediaReferences": [],
}


def test_items_of_a_langfuse_data_set(import_):
    archived = ITEM | {"id": "item-2", "status": "ARCHIVED"}
    text = ITEM | {"id": "item-3", "input": "How long?", "expectedOutput": {"answer": "30 days", "source": "faq"}}
    meta = {"page": 1, "limit": 50, "totalItems": 60, "totalPages": 2}
    found = import_("langfuse", {"data": [ITEM, archived, text], "meta": meta}, name="items.json")
    assert found.records == [
        {
            "id": "item-1",
            "user_input": "Who pays?",
            "retrieved_contexts": ["Returns are free."],
            "reference": "The shop.",
            "tags": {"area": "returns", "weight": "2", "datasetName": "support"},
        },
        {
            "id": "item-3",
            "user_input": "How long?",
            "reference": "30 days",
            "tags": {"area": "returns", "weight": "2", "datasetName": "support", "outputs.source": "faq"},
        },
    ]
    assert reasons(found) == {
        "page 2 of 2 of support": "is in none of these files",
        "an item of a data set": "is archived",
    }


@pytest.mark.parametrize(
    ("pages", "last", "missing"),
    [
        ([1, 2], 2, []),
        ([2, 1], 2, []),
        ([2], 2, ["page 1 of 2 of support"]),
        ([3, 7], 10**12, ["pages 1 to 2", "pages 4 to 6", "pages 8 to 1000000000000"]),
        ([5], -1, []),
    ],
)
def test_pages_that_no_file_has_are_named(tmp_path, pages, last, missing):
    paths = [tmp_path / f"q{page}.json" for page in pages]
    for page, path in zip(pages, paths, strict=True):
        item = ITEM | {"id": f"item-{page}"}
        path.write_text(json.dumps({"data": [item], "meta": {"page": page, "totalPages": last}}), "utf-8")
    found = exports.load("langfuse", paths, {})
    assert len(found.records) == len(pages)
    assert [what.split(" of ")[0] for what in reasons(found)] == [what.split(" of ")[0] for what in missing]


def test_pages_of_two_data_sets_do_not_complete_each_other(tmp_path):
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for page, (name, path) in enumerate(zip(("shop", "help"), paths, strict=True), 1):
        item = ITEM | {"id": name, "datasetName": name}
        path.write_text(json.dumps({"data": [item], "meta": {"page": page, "totalPages": 2}}), "utf-8")
    assert list(reasons(exports.load("langfuse", paths, {}))) == ["page 2 of 2 of shop", "page 1 of 2 of help"]


def test_a_langfuse_export_as_csv_has_json_in_its_cells(tmp_path):
    path = tmp_path / "items.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ITEM), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerow(
            {key: json.dumps(value) if isinstance(value, (dict, list)) else value for key, value in ITEM.items()}
        )
    (record,) = exports.load("langfuse", [path], {}).records
    assert record["user_input"] == "Who pays?"
    assert record["retrieved_contexts"] == ["Returns are free."]
    assert record["tags"]["area"] == "returns"


def test_a_langfuse_trace_has_the_passages_of_its_retrievers(import_):
    document = {"page_content": "Returns are free.", "metadata": {"source": "faq.md"}}
    trace = {
        "id": "trace-1",
        "timestamp": "2026-08-01T00:00:00Z",
        "name": "answer",
        "input": '{"question": "Who pays?"}',
        "output": {"answer": "The shop."},
        "sessionId": "s-1",
        "tags": ["beta", "de"],
        "latency": 1.5,
        "observations": [{"type": "RETRIEVER", "output": [document]}, {"type": "SPAN", "output": "x"}],
    }
    (record,) = import_("langfuse", trace).records
    assert record == {
        "id": "trace-1",
        "user_input": "Who pays?",
        "response": "The shop.",
        "retrieved_contexts": [{"text": "Returns are free.", "source": "faq.md"}],
        "session": "s-1",
        "duration_s": 1.5,
        "tags": {"tags": "beta,de", "name": "answer"},
    }


def test_a_langfuse_generation_is_read_as_the_gateway_reads_a_request(import_):
    generation = {
        "id": "gen-1",
        "traceId": "trace-1",
        "type": "GENERATION",
        "startTime": "2026-08-01T00:00:00Z",
        "providedModelName": "gpt-6-luna",
        "latencyMs": "820",
        "input": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": PROMPT}],
        "output": {"role": "assistant", "content": "The customer."},
    }
    tool = {"id": "t", "type": "TOOL", "traceId": "trace-1", "input": "x", "output": "y"}
    found = import_("langfuse", generation, tool)
    (record,) = found.records
    assert record["user_input"] == "Who pays for a return?"
    assert [passage["text"] for passage in record["retrieved_contexts"]] == [
        "Returns are free within 30 days.",
        "The customer pays the postage.",
    ]
    assert (record["response"], record["model"], record["duration_s"]) == ("The customer.", "gpt-6-luna", 0.82)
    assert reasons(found) == {"an observation of type TOOL": "is a step of a trace: import traces or generations"}


def test_passages_whose_trace_is_missing_are_counted(import_):
    found = import_("langfuse", {"id": "o", "type": "RETRIEVER", "traceId": "t", "output": ["a", "b"]})
    assert found.unmapped == {("passages of a retriever", "their trace is not in these files"): 2}


# LangSmith


def test_examples_of_a_langsmith_data_set(import_):
    rows = [
        {"inputs": {"question": "Who pays?"}, "outputs": {"answer": "The shop."}},
        {
            "inputs": {"question": "How long?"},
            "outputs": {"answer": "30 days", "pages": [1, 2]},
            "id": "e-2",
            "split": "test",
        },
    ]
    found = import_("langsmith", rows, name="dataset.json")
    assert found.records[0] == {"user_input": "Who pays?", "reference": "The shop."}
    assert found.records[1] == {
        "id": "e-2",
        "user_input": "How long?",
        "reference": "30 days",
        "tags": {"split": "test"},
    }
    assert list(reasons(found)) == ["field 'outputs.pages'"]


def test_a_langsmith_data_set_in_openais_format(import_):
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Who pays?"},
        {"role": "assistant", "content": "The shop."},
    ]
    found = import_("langsmith", {"messages": messages}, {"messages": messages[:1]})
    assert found.records == [{"user_input": "Who pays?", "reference": "The shop."}]
    assert reasons(found) == {"a row with messages": "has no question and answer in them"}


def test_runs_of_langsmith_are_joined_by_trace(import_):
    human = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "HumanMessage"],
        "kwargs": {"content": "Who pays?", "type": "human"},
    }
    rows = [
        {
            "run_id": "r-2",
            "trace_id": "r-1",
            "name": "VectorStoreRetriever",
            "run_type": "retriever",
            "parent_run_id": "r-1",
            "inputs": {"query": "Who pays?"},
            "outputs": {
                "documents": [
                    {"page_content": "Returns are free.", "type": "Document", "metadata": {"source": "faq.md"}},
                    {"kwargs": {"page_content": "Postage is not.", "metadata": {"source": ["x"]}}},
                ]
            },
        },
        {
            "run_id": "r-3",
            "trace_id": "r-1",
            "run_type": "llm",
            "parent_run_id": "r-1",
            "inputs": {"messages": [[human]]},
            "outputs": {"generations": [[{"text": "The shop."}]]},
        },
        {
            "run_id": "r-1",
            "trace_id": "r-1",
            "name": "rag",
            "run_type": "chain",
            "parent_run_id": None,
            "duration_ms": 900,
            "custom_metadata": {"revision_id": "7"},
            "inputs": {"input": "Who pays?"},
            "outputs": {"output": "The shop."},
        },
        {
            "run_id": "r-9",
            "trace_id": "r-9",
            "run_type": "llm",
            "parent_run_id": None,
            "inputs": {"messages": [[human]]},
            "outputs": {"generations": [[{"text": "Nobody knows."}]]},
        },
        {"run_id": "r-8", "trace_id": "r-8", "run_type": "chain", "start_time": "2026-08-01T00:00:00Z"},
    ]
    found = import_("langsmith", *rows)
    assert found.records == [
        {
            "id": "r-1",
            "user_input": "Who pays?",
            "response": "The shop.",
            "retrieved_contexts": [{"text": "Returns are free.", "source": "faq.md"}, "Postage is not."],
            "duration_s": 0.9,
            "tags": {"name": "rag", "revision_id": "7"},
        },
        {"id": "r-9", "user_input": "Who pays?", "response": "Nobody knows."},
    ]
    assert reasons(found) == {
        "a run of type llm": "is a step of a trace: its root is imported",
        "a row": "has no inputs: export runs with --include-io",
    }


@pytest.mark.parametrize("failed", [{"error": "Timeout"}, {"status": "error"}])
def test_a_run_that_failed_is_counted(import_, failed):
    run = {"run_id": "r", "trace_id": "r", "run_type": "chain", "inputs": {"question": "Who pays?"}}
    found = import_("langsmith", run | failed, run | {"run_id": "s", "error": None, "outputs": {"output": "The shop."}})
    assert [record["id"] for record in found.records] == ["s"]
    assert reasons(found) == {"a run": "ended with an error"}


@pytest.mark.parametrize(
    ("cells", "mapped", "record"),
    [
        (
            {"question": "Who?", "answer": "Ann"},
            {},
            {"user_input": "Who?", "reference": "Ann"},
        ),
        (
            {"id": "7", "inputs.question": "Who?", "outputs.answer": "Ann", "metadata": '{"area": "people"}'},
            {},
            {"id": "7", "user_input": "Who?", "reference": "Ann", "tags": {"area": "people"}},
        ),
        (
            {"question": "Who?", "context": '["Ann is."]', "answer": "Ann", "ground_truth": "Ann Lee"},
            {},
            {"user_input": "Who?", "retrieved_contexts": ["Ann is."], "response": "Ann", "reference": "Ann Lee"},
        ),
        (
            {"run_id": "r", "run_type": "chain", "inputs.input": "Who?", "outputs.output": "Ann"},
            {},
            {"id": "r", "user_input": "Who?", "response": "Ann"},
        ),
        (
            {"question": "Who?", "answer": "Ann", "ground_truth": ""},
            {},
            {"user_input": "Who?", "response": "Ann"},
        ),
        (
            {"question": "Who?", "answer": "Ann", "gold": "Ann Lee"},
            {"reference": "gold"},
            {"user_input": "Who?", "response": "Ann", "reference": "Ann Lee"},
        ),
        (
            {"ticket": "Who?", "answer": "Ann"},
            {"user_input": "ticket", "response": "answer"},
            {"user_input": "Who?", "response": "Ann"},
        ),
    ],
)
def test_columns_of_a_langsmith_csv_are_read_by_their_names(tmp_path, cells, mapped, record):
    path = tmp_path / "d.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(cells))
        writer.writeheader()
        writer.writerow(cells)
    found = exports.load("langsmith", [path], mapped)
    assert (found.records, reasons(found)) == ([record], {})


# Helicone

CALL = {
    "request_id": "q-1",
    "request_created_at": "2026-08-01T00:00:00Z",
    "request_path": "https://api.openai.com/v1/chat/completions",
    "request_user_id": "user-7",
    "request_properties": {"Helicone-Session-Id": "s-1", "environment": "production"},
    "request_body": {
        "model": "gpt-6-luna",
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi, how can I help?"},
            {"role": "user", "content": PROMPT},
        ],
    },
    "response_id": "a-1",
    "response_status": 200,
    "response_body": {
        "model": "gpt-6-luna-08",
        "choices": [{"message": {"role": "assistant", "content": "The customer."}}],
    },
    "delay_ms": 640,
    "provider": "OPENAI",
}


def test_requests_of_helicone(import_):
    (record,) = import_("helicone", CALL).records
    assert record.pop("retrieved_contexts") == [
        {"text": "Returns are free within 30 days.", "id": "1"},
        {"text": "The customer pays the postage.", "id": "2"},
    ]
    assert record == {
        "id": "q-1",
        "user_input": "Who pays for a return?",
        "history": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi, how can I help?"}],
        "response": "The customer.",
        "model": "gpt-6-luna-08",
        "session": "s-1",
        "duration_s": 0.64,
        "tags": {"environment": "production", "provider": "OPENAI"},
    }


def test_a_call_of_anthropics_api(import_):
    call = CALL | {
        "request_path": "https://api.anthropic.com/v1/messages",
        "request_body": {"model": "c", "system": "Be kind.", "messages": [{"role": "user", "content": "Who pays?"}]},
        "response_body": {"model": "c", "content": [{"type": "text", "text": "The shop."}]},
    }
    (record,) = import_("helicone", call).records
    assert (record["user_input"], record["response"]) == ("Who pays?", "The shop.")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"response_body": None}, "has no request_body and response_body: export JSONL with --include-body"),
        ({"response_status": 500}, "was answered with status 500"),
        ({"response_status": "500"}, "was answered with status 500"),
        ({"response_status": None}, "was answered with status None"),
    ],
)
def test_a_request_without_an_answer_is_counted(import_, changes, why):
    found = import_("helicone", CALL | changes)
    assert (found.records, reasons(found)) == ([], {"a request": why})


def test_a_status_may_be_a_text(import_):
    found = import_("helicone", CALL | {"response_status": "200"})
    assert (len(found.records), reasons(found)) == (1, {})


def test_a_name_cannot_be_mapped_where_records_have_no_variables(import_):
    with pytest.raises(DataError, match="--map user_input=zzz: no record has variables"):
        import_("helicone", CALL, user_input="zzz")


def test_a_row_that_cannot_be_evaluated_is_left_out_with_its_place(import_, tmp_path):
    rows = [CALL, CALL | {"request_id": "q-2", "delay_ms": -5}, CALL, CALL | {"request_id": "q-4"}]
    found = import_("helicone", *rows)
    assert [record["id"] for record in found.records] == ["q-1", "q-4"]
    path = tmp_path / "export.jsonl"
    assert reasons(found)[f"{path}:3"] == "id: 'q-1' is a duplicate"
    assert reasons(found)[f"{path}:2"].startswith("duration_s: ")
    found = import_("langfuse", [ITEM, ITEM], name="items.json")
    assert list(reasons(found)) == [f"{tmp_path / 'items.json'}: [1]"]


def test_many_rows_that_are_left_out_are_counted_without_their_places(import_):
    found = import_("helicone", *[CALL] * 60)
    assert (len(found.unmapped), sum(found.unmapped.values()), len(found.records)) == (51, 59, 1)


def test_a_column_that_is_not_known_is_counted(import_):
    found = import_("helicone", CALL | {"mystery": 1}, CALL | {"request_id": "q-2", "mystery": 2})
    assert found.unmapped == {("column 'mystery'", "is no field of this export that is known"): 2}


# All of them


def test_a_variable_with_a_name_of_its_own_is_mapped(import_):
    rows = [{"inputs": {"ticket": "Who pays?", "lang": "en"}, "outputs": {"gold": "The shop.", "by": "me"}}]
    found = import_("langsmith", rows, name="d.json", user_input="ticket", reference="outputs.gold")
    (record,) = found.records
    assert (record["user_input"], record["reference"]) == ("Who pays?", "The shop.")
    assert "outputs have outputs.gold, outputs.by: --map reference=NAME says which is the reference" in found.notes


@pytest.mark.parametrize("tool", exports.TOOLS)
def test_lines_that_cannot_be_read_are_all_named(tmp_path, tool):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\n{"id":\n\n[1]\n', "utf-8")
    with pytest.raises(DataError) as caught:
        exports.load(tool, [path], {})
    first, second = caught.value.problems
    assert first.startswith(f"{path}:2: ")
    assert second == f"{path}:4: expected an object, got a list"


NAMES = sorted(
    {*CALL, *ITEM, *("output", "observations", "type", "traceId", "sessionId", "latency", "latencyMs", "tags", "meta")}
    | {"inputs", "outputs", "messages", "run_id", "run_type", "trace_id", "parent_run_id", "duration_ms", "split"}
    | {"role", "content", "kwargs", "data", "choices", "message", "documents", "page_content", "generations", "text"}
    | {"model", "prompt", "system", "tool_calls", "question", "contexts", "history", "answer", "page", "totalPages"}
)
WORDS = (
    "",
    "x",
    "[",
    '{"a": 1}',
    "user",
    "human",
    "retriever",
    "chain",
    "GENERATION",
    "RETRIEVER",
    PROMPT,
    "/v1/messages",
)
VALUES = st.none() | st.booleans() | st.sampled_from([0, 1.5, 10**30]) | st.sampled_from(WORDS)
ANY = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
)
ROWS = st.lists(st.dictionaries(st.sampled_from(NAMES), ANY, min_size=1, max_size=8), min_size=1, max_size=3)


@given(tool=st.sampled_from(exports.TOOLS), rows=ROWS)
def test_whatever_a_row_holds_it_is_imported_or_refused_with_a_reason(tmp_path_factory, tool, rows):
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    try:
        found = exports.load(tool, [path], {})
        if found.records:
            check(found)
    except DataError:
        return
    assert found.records or found.unmapped


def test_what_an_import_reads_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([json.dumps(CALL)] * 3), "utf-8")
    monkeypatch.setattr(sources, "MAX_ROWS", 2)
    with pytest.raises(DataError, match="more than 2 records"):
        exports.load("helicone", [path], {})
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 100)
    with pytest.raises(DataError, match="larger than 0 MiB"):
        exports.load("helicone", [path], {})


def test_an_output_may_be_nested_as_deep_as_json_may(import_):
    deep = "the answer"
    for _ in range(400):
        deep = {"output": [deep]}
    row = {"run_id": "r", "run_type": "chain", "inputs": {"question": "?"}, "outputs": deep}
    (record,) = import_("langsmith", row).records
    assert record["response"] == "the answer"


def test_tags_of_any_number_and_length_are_evaluated(import_):
    row = {"inputs": {"question": "?"}, "metadata": {f"k{number}" * 40: "v" for number in range(200)}}
    assert import_("langsmith", row).records
