"""One answer of several exchanges: the last one is judged, once, with what all of them retrieved."""

import asyncio
import json
import time
from dataclasses import replace

import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway.capture.exchange_reader import Capture
from gateway.capture.factory import extractors_of
from gateway.config import Capture as Settings
from gaugeway.exchange import Recording, Trace
from gaugeway.records import Score, Skipped
from gaugeway.redaction import Redactor
from gaugeway.sampling import MetricSampler
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores.hashing_store import HashingStore
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.metrics.registry import Enabled

PASSAGES = {
    "warranty": "The warranty of the drill lasts two years from the day of purchase and covers parts and labour.",
    "battery": "The battery of the drill is covered for six months only, unless it was registered on the website.",
}
TOOLS = [{"type": "function", "name": "search_docs", "function": {"name": "search_docs"}}]


class Seen:
    """A metric that keeps what it is given."""

    name, version = "seen", "1"

    def __init__(self):
        self.samples = {}

    async def score(self, sample):
        self.samples[sample.id] = sample
        return Score(1.0)


class App:
    """Sends requests through a gateway's capture, a second apart."""

    def __init__(self, route="chat_completions"):
        self.capture = Capture(extractors_of(Settings()), rate=1.0, salt="s", limit=1_000_000)
        self.route, self.samples, self.at = route, {}, time.time() - 100.0

    def send(self, name, request, response, trace=None):
        self.at += 2.0
        json_headers = [(b"content-type", b"application/json")]
        recording = Recording(
            id=name,
            method="POST",
            path="/v1/x",
            route=self.route,
            started_at=self.at,
            duration_s=1.0,
            status=200,
            request_headers=json_headers,
            request_body=json.dumps({"model": "m", **request}).encode(),
            response_headers=json_headers,
            chunks=[json.dumps(response).encode()],
            trace=Trace(trace, "b" * 16) if trace else None,
        )
        self.samples[name] = self.capture.make(self.capture.read(recording))


def retrieved(*names):
    return json.dumps({"results": [{"id": name, "content": PASSAGES[name], "score": 0.9} for name in names]})


def judged(path, samples, *, content=True, batches=None):
    """Evaluate samples batch by batch; what the metric saw, and the stored samples with their outcome."""

    async def run():
        queue, real, metric = MemoryQueue(), SQLiteStore(path / "store.db"), Seen()
        store = real if content else HashingStore(real, Redactor([], salt="s"), window_s=60.0)
        worker = Worker(
            queue,
            store,
            Evaluator([Enabled(metric=metric, rate=1.0, threshold=0.5, objective=0.9)], MetricSampler("s")),
            settings=WorkerSettings(concurrency=8, poll_s=0.01),
        )
        running = asyncio.ensure_future(worker.run())
        for batch in batches or [list(samples)]:
            await queue.put([samples[name] for name in batch])
            async with asyncio.timeout(30):
                while (await queue.depth()).ready + (await queue.depth()).leased:  # noqa: ASYNC110 - as a queue is
                    await asyncio.sleep(0.01)
        worker.stop()
        await asyncio.wait([running], timeout=10)
        stored = {name: await real.sample(name) for name in samples}
        await real.aclose()
        return metric.samples, {name: (one, found[0].outcome) for name, (one, found) in stored.items()}

    return asyncio.run(run())


def message(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def calling(number, query):
    arguments = json.dumps({"query": query})
    return {"type": "function_call", "call_id": f"call_{number:016}", "name": "search_docs", "arguments": arguments}


@pytest.fixture
def stored_loop():
    """A turn of three exchanges that the provider holds together, after a turn of one."""
    app = App("responses")
    app.send("t1", {"input": "Is it sturdy?"}, {"id": "resp_000000000001", "output": [message("It is, quite.")]})
    before = {"previous_response_id": "resp_000000000001", "tools": TOOLS}
    first = calling(1, "warranty")
    app.send("h1", {"input": "How long is the warranty?", **before}, {"id": "resp_000000000002", "output": [first]})
    output = {"type": "function_call_output", "call_id": first["call_id"], "output": retrieved("warranty")}
    before = {"previous_response_id": "resp_000000000002", "tools": TOOLS}
    second = calling(2, "battery")
    app.send("h2", {"input": [first, output], **before}, {"id": "resp_000000000003", "output": [second]})
    output = {"type": "function_call_output", "call_id": second["call_id"], "output": retrieved("battery")}
    before = {"previous_response_id": "resp_000000000003", "tools": TOOLS}
    answer = {"id": "resp_000000000004", "output": [message("Two years; the battery half a year.")]}
    app.send("h3", {"input": [second, output], **before}, answer)
    return app.samples


@pytest.mark.parametrize("batches", [None, [["t1"], ["h1"], ["h2"], ["h3"]], [["h3", "h2", "h1", "t1"]]])
def test_an_answer_is_judged_with_the_passages_of_all_its_hops(tmp_path, stored_loop, batches):
    seen, stored = judged(tmp_path, stored_loop, batches=batches)
    assert set(seen) == {"t1", "h3"}
    assert [one.text for one in seen["h3"].contexts] == [PASSAGES["battery"], PASSAGES["warranty"]]
    assert [(one.hop, one.tool) for one in seen["h3"].contexts] == [(2, "search_docs"), (1, "search_docs")]
    assert [(one.name, one.hop) for one in seen["h3"].calls] == [("search_docs", 1), ("search_docs", 2)]
    assert seen["h3"].question == "How long is the warranty?"
    assert [(one.role, one.text) for one in seen["h3"].history] == [
        ("user", "Is it sturdy?"),
        ("assistant", "It is, quite."),
    ]
    assert {name: outcome for name, (_, outcome) in stored.items() if name in ("h1", "h2")} == {
        "h1": Skipped("tool_call"),
        "h2": Skipped("tool_call"),
    }
    places = {name: (sample.conversation, sample.turn, sample.hop) for name, (sample, _) in stored.items()}
    assert places == {"t1": ("t1", 1, 1), "h1": ("t1", 2, 1), "h2": ("t1", 2, 2), "h3": ("t1", 2, 3)}
    assert [one.name for one in stored["h1"][0].calls] == ["search_docs"]
    assert all(sample.links is None for sample, _ in stored.values())


def test_without_content_the_passages_of_hops_are_judged_and_never_stored(tmp_path, stored_loop):
    seen, stored = judged(tmp_path, stored_loop, content=False)
    assert [one.text for one in seen["h3"].contexts] == [PASSAGES["battery"], PASSAGES["warranty"]]
    assert all(one.text.startswith("blake2b:") for one in stored["h3"][0].contexts)
    assert stored["h3"][0].history == ()


@pytest.fixture
def sub_agent():
    """An agent that asks another one, which searches; only the trace is common."""
    app, trace = App(), "a" * 32

    def chat(text, *calls):
        return {"choices": [{"message": {"role": "assistant", "content": text, "tool_calls": list(calls)}}]}

    def call(number, name, **arguments):
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"id": f"call_{number:016}", "type": "function", "function": function}

    ask, search = call(1, "research", input="warranty and battery of the drill"), call(2, "search_docs", query="drill")
    outer = [{"role": "system", "content": "Delegate."}, {"role": "user", "content": "What is covered for how long?"}]
    app.send("a1", {"messages": outer}, chat(None, ask), trace)
    inner = [{"role": "system", "content": "Search."}, {"role": "user", "content": "warranty and battery of the drill"}]
    app.send("b1", {"messages": inner}, chat(None, search), trace)
    inner += [{"role": "assistant", "content": None, "tool_calls": [search]}]
    inner += [{"role": "tool", "tool_call_id": search["id"], "content": retrieved("warranty", "battery")}]
    app.send("b2", {"messages": inner}, chat("Drill two years, battery six months."), trace)
    outer += [{"role": "assistant", "content": None, "tool_calls": [ask]}]
    outer += [{"role": "tool", "tool_call_id": ask["id"], "content": "Drill two years, battery six months."}]
    app.send("a2", {"messages": outer}, chat("The drill two years, its battery six months."), trace)
    return app.samples


def test_the_answer_of_a_sub_agent_is_a_hop_and_its_passages_are_those_of_the_answer(tmp_path, sub_agent):
    seen, stored = judged(tmp_path, sub_agent)
    assert set(seen) == {"a2"}
    assert {one.text for one in seen["a2"].contexts} == set(PASSAGES.values())
    assert seen["a2"].context_source == "hops"
    assert {(one.hop, one.tool) for one in seen["a2"].contexts} == {(2, "search_docs")}
    assert seen["a2"].question == "What is covered for how long?"
    assert stored["b2"][1] == Skipped("hop")
    assert {sample.conversation for sample, _ in stored.values()} == {"a1"}
    assert {sample.turn for sample, _ in stored.values()} == {1}


def test_what_the_app_says_about_an_answer_stays(tmp_path, stored_loop):
    said = replace(stored_loop["h3"], context_source="explicit", contexts=())
    seen, _ = judged(tmp_path, stored_loop | {"h3": said})
    assert (seen["h3"].contexts, seen["h3"].context_source) == ((), "explicit")


def test_an_answer_whose_hops_were_not_captured_is_judged_by_itself(tmp_path, stored_loop):
    seen, stored = judged(tmp_path, {"h3": stored_loop["h3"]})
    assert [one.text for one in seen["h3"].contexts] == [PASSAGES["battery"]]
    assert stored["h3"][0].conversation == "h3"


PROMPT = "Use these passages to answer.\n\n{passages}\n\nQuestion: {question}\nHelpful Answer:"


def test_earlier_prompts_become_the_questions_that_were_found_in_them(tmp_path):
    app, messages = App(), [{"role": "system", "content": "You help customers."}]
    passages = "\n\n".join(PASSAGES.values())
    for number, question in enumerate(
        ("How long is the warranty?", "And the battery?", "Who pays for parts of the drill?")
    ):
        prompt = PROMPT.format(passages=passages, question=question)
        messages = [*messages, {"role": "user", "content": prompt}]
        said = f"Answer number {number}, which is long enough to be told from the others by its own words."
        answer = {"choices": [{"message": {"role": "assistant", "content": said}}]}
        app.send(f"e{number}", {"messages": messages}, answer)
        messages = [*messages, {"role": "assistant", "content": said}]
    for sample in app.samples.values():
        assert sample.question in ("How long is the warranty?", "And the battery?", "Who pays for parts of the drill?")
    seen, _ = judged(tmp_path, app.samples)
    assert [one.text for one in seen["e2"].history if one.role == "user"] == [
        "How long is the warranty?",
        "And the battery?",
    ]
    assert [one.text[:15] for one in seen["e2"].history if one.role == "assistant"] == [
        "Answer number 0",
        "Answer number 1",
    ]


@pytest.mark.parametrize("kept_upstream", [True, False])
def test_a_conversation_that_the_upstream_keeps_has_its_history_from_the_store(tmp_path, kept_upstream):
    app = App("responses")
    named = {"conversation": {"id": "conv_1"}} if kept_upstream else {"metadata": {"chat_id": "conv_1"}}
    for name, asked, said in (
        ("e0", "What is the blue plan?", "It costs 5."),
        ("e1", "And the red one?", "It costs 9."),
    ):
        app.send(name, {"input": asked, **named}, {"id": f"resp_00000000000{name}", "output": [message(said)]})
    seen, _ = judged(tmp_path, app.samples, batches=[["e0"], ["e1"]])
    shown = [one.text for one in seen["e1"].history]
    # A session that the app only names was not shown to the model: the answer is judged alone.
    assert shown == (["What is the blue plan?", "It costs 5."] if kept_upstream else [])


def test_a_prompt_whose_exchange_is_not_stored_is_read_for_its_question(tmp_path):
    app = App()
    long = PROMPT.format(passages="\n\n".join(PASSAGES.values()), question="How long is the warranty?")
    messages = [
        {"role": "user", "content": long},
        {"role": "assistant", "content": "Two years, says the manual of it."},
    ]
    messages += [{"role": "user", "content": "And the battery?"}]
    app.send("e", {"messages": messages}, {"choices": [{"message": {"role": "assistant", "content": "Six months."}}]})
    seen, _ = judged(tmp_path, app.samples)
    assert seen["e"].history[0].text == "How long is the warranty?"
