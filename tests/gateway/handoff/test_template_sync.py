"""What one gateway learned reaches the others, its own next process and nobody whom it must not reach."""

import asyncio
import io
import json
import re
import sqlite3

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway.capture.factory import template_form
from gateway.capture.stored_templates import learned_of
from gateway.config import Capture
from gateway.handoff.sampler_client import SamplerClient
from gateway.handoff.sampler_process import Answer, Setup, main
from gateway.handoff.template_sync import MAX_PENDING_TEMPLATES, TemplateSync
from gateway.telemetry.metrics import Instruments
from gaugeway.exchange import Explicit, Recording
from gaugeway.processes.worker_metrics import framed
from gaugeway.prompts.learning.learner import TemplateEvent
from gaugeway.prompts.learning.model import LearnedTemplate, Split
from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.templates import Templates
from monitors.evaluation.judge_marks import PromptMarking
from monitors.judges.scripted import Scripted
from tests.support import prompts

ANSWER = {"id": "c", "choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}
SETTINGS = Capture(redact=("email",))
LEARNS = 16
"""So many requests are enough."""


def recording(number, **how):
    body = {"model": "m", "messages": [{"role": "user", "content": prompts.prompt(number, **how)}]}
    return Recording(
        id=f"{number:032x}",
        started_at=100.0 + number,
        method="POST",
        path="/v1/chat/completions",
        route="chat_completions",
        request_headers=[(b"content-type", b"application/json")],
        request_body=json.dumps(body).encode(),
        status=200,
        response_headers=[(b"content-type", b"application/json")],
        chunks=[json.dumps(ANSWER).encode()],
        explicit=Explicit(app="shop"),
    )


class Gateway:
    """What of a gateway has to do with templates, with a sampling process of its own."""

    def __init__(self, directory, settings=SETTINGS):
        self.registry = CollectorRegistry()
        self.store = Templates(SQLiteDocuments(directory, busy_timeout_s=0.05))
        form = template_form(settings, "key")
        self.sync = TemplateSync(self.store, Instruments(self.registry, version=""), form, every_s=0.01)
        self.offload = SamplerClient(settings, "key", self.sync)

    async def send(self, numbers, **how):
        return [
            result.sample for result in await self.offload.capture([recording(number, **how) for number in numbers])
        ]

    def errors(self, reason):
        return self.registry.get_sample_value("gaugeway_template_errors_total", {"reason": reason}) or 0

    async def aclose(self):
        await self.offload.aclose()
        await self.sync.aclose()


def run(scenario, *gateways):
    async def all_of_it():
        try:
            async with asyncio.timeout(60):
                return await scenario(*gateways)
        finally:
            for gateway in gateways:
                await gateway.aclose()

    return asyncio.run(all_of_it())


def is_exact(sample, number):
    question, passages = prompts.asked(number)
    return (sample.context_source, sample.question, [one.text for one in sample.contexts]) == (
        "learned",
        question,
        passages,
    )


@pytest.mark.full
def test_what_one_gateway_learned_the_other_knows_at_its_first_request(tmp_path):
    async def scenario(one, other):
        before = await other.send([500])
        await one.send(range(LEARNS))
        assert is_exact((await one.send([501]))[0], 501)
        assert await one.sync.sync()
        assert await other.sync.sync()
        return before, await other.send([502])

    before, after = run(scenario, Gateway(tmp_path), Gateway(tmp_path))
    assert before[0].context_source != "learned"
    assert is_exact(after[0], 502)


@pytest.mark.full
def test_the_next_process_has_it_from_the_start(tmp_path):
    async def first(one):
        await one.send(range(LEARNS))

    async def second(one):
        assert await one.sync.sync()
        return await one.send([500])

    run(first, Gateway(tmp_path))
    assert is_exact(run(second, Gateway(tmp_path))[0], 500)


@pytest.mark.full
def test_in_the_background_it_takes_no_call(tmp_path):
    async def scenario(one, other):
        one.sync.start()
        other.sync.start()
        await other.send([500])
        await one.send(range(LEARNS))
        number = 501
        while not is_exact((await other.send([number]))[0], number):
            number += 1
            await asyncio.sleep(0.01)

    run(scenario, Gateway(tmp_path), Gateway(tmp_path))


def test_one_that_somebody_rejects_is_used_no_more_and_confirmed_again_it_is(tmp_path):
    async def scenario(one):
        await one.send(range(LEARNS))
        assert await one.sync.sync()
        (stored,) = await one.store.templates()
        said = []
        for state in ("rejected", "confirmed"):
            assert await one.store.set_template_state("shop", stored.version, state)
            assert await one.sync.sync()
            said += await one.send([500 if state == "rejected" else 501])
        return said

    rejected, confirmed = run(scenario, Gateway(tmp_path))
    assert rejected.context_source != "learned"
    assert is_exact(confirmed, 501)


def test_while_the_store_is_away_the_learner_goes_on_and_nothing_is_lost(tmp_path):
    async def scenario(one):
        (tmp_path / "templates.db").mkdir()
        await one.send(range(LEARNS))
        assert not await one.sync.sync()
        assert not await one.sync.sync()
        said = await one.send([500])
        (tmp_path / "templates.db").rmdir()
        assert await one.sync.sync()
        return said + await one.send([501]), await one.store.templates(), one.errors("store")

    said, stored, errors = run(scenario, Gateway(tmp_path))
    assert [is_exact(sample, number) for sample, number in zip(said, (500, 501), strict=True)] == [True, True]
    assert len(stored) == 1
    assert errors == 2


@pytest.mark.full
def test_a_killed_process_comes_back_with_what_was_learned(tmp_path):
    async def scenario(one):
        await one.send(range(LEARNS))
        one.offload.use(SETTINGS)  # the process is killed; nothing has been written yet
        return await one.send([500])

    assert is_exact(run(scenario, Gateway(tmp_path))[0], 500)


@pytest.mark.full
def test_a_process_started_before_the_templates_are_read_has_them_for_its_first_batch(tmp_path):
    async def learn(one):
        await one.send(range(LEARNS))
        await one.sync.sync()

    async def scenario(other):
        other.offload.start()
        await asyncio.sleep(0.2)
        await other.sync.sync()
        return await other.send([500])

    run(learn, Gateway(tmp_path))
    assert is_exact(run(scenario, Gateway(tmp_path))[0], 500)


OFFICE = "nord@geraetehaus.example"


@pytest.mark.full
def test_what_is_redacted_is_not_stored_and_the_template_still_fits(tmp_path):
    opening = prompts.OPENING.replace("hältst", f"schreibst an {OFFICE} und hältst")

    async def scenario(one, other):
        await one.send(range(LEARNS), opening=opening)
        assert await one.sync.sync()
        assert await other.sync.sync()
        return await one.store.templates(), await other.send([500], opening=opening)

    stored, said = run(scenario, Gateway(tmp_path), Gateway(tmp_path))
    assert len(stored) == 1
    assert OFFICE not in "".join(stored[0].literals)
    assert "other" in stored[0].slots
    assert is_exact(said[0], 500)
    for file in tmp_path.iterdir():
        assert OFFICE.encode() not in file.read_bytes()


@pytest.mark.full
@pytest.mark.parametrize("settings", [Capture(content=False), Capture(learn=False)])
def test_without_content_nothing_is_learned_stored_or_opened(tmp_path, settings):
    async def scenario(one):
        said = await one.send(range(LEARNS + 1))
        assert await one.sync.sync()
        return said

    said = run(scenario, Gateway(tmp_path, settings))
    assert {sample.context_source for sample in said} != {"learned"}
    assert list(tmp_path.iterdir()) == []


def template(version="v", **fields):
    return LearnedTemplate(
        **(
            {
                "app": "shop",
                "kind": "chat_completions:u",
                "version": version,
                "literals": ("\x02Facts: ", " Asked: ", "\x04"),
                "slots": ("passages", "question"),
                "split": Split(kind="lines"),
                "seen": 10,
                "learned_at": 1.0,
            }
            | fields
        )
    )


def test_what_is_reported_counts_at_once_and_a_confirmed_one_is_not_dropped(tmp_path):
    async def scenario(one):
        sync = one.sync
        sync.heard([TemplateEvent("learned", template())])
        assert [known.version for known in sync.known()] == ["v"]
        sync.heard([TemplateEvent("dropped", template())])
        assert await sync.sync()
        assert sync.known() == await one.store.templates() == []
        sync.heard([TemplateEvent("learned", template("w"))])
        assert await sync.sync()
        await one.store.set_template_state("shop", "w", "confirmed")
        sync.heard([TemplateEvent("dropped", template("w"))])
        assert await sync.sync()
        sync.heard([TemplateEvent("stale", template("w", stale=True))])
        assert await sync.sync()
        return sync.known()

    (known,) = run(scenario, Gateway(tmp_path))
    assert (known.version, known.state, known.stale) == ("w", "confirmed", True)


@pytest.mark.parametrize(
    "fields",
    [
        {"literals": ("\x02Facts: ", OFFICE, "\x04")},
        {"literals": ("\x02Facts: ", f"\n{OFFICE}", "\x04")},
        {"split": Split(kind="marker", words=f"\nby {OFFICE}\n")},
        {"split": Split(kind="marker", words="\n", header=(f"\nby {OFFICE}\n",))},
    ],
    ids=["all of a text", "at a border", "between passages", "in a passage"],
)
def test_one_that_cannot_be_stored_stays_with_its_process(tmp_path, fields):
    async def scenario(one, other):
        one.sync.heard([TemplateEvent("learned", template(**fields))])
        for _ in range(2):
            assert await one.sync.sync()
        assert await other.sync.sync()
        here = [learned_of(known) for known in one.sync.known()]
        one.sync.heard([TemplateEvent("dropped", template(**fields))])
        assert await one.sync.sync()
        return here, one.sync.known(), other.sync.known(), await one.store.templates(), one.errors("private")

    assert run(scenario, Gateway(tmp_path), Gateway(tmp_path)) == ([template(**fields)], [], [], [], 1)


def test_more_than_can_wait_is_counted(tmp_path):
    async def scenario(one):
        one.sync.heard([TemplateEvent("learned", template(f"{n}")) for n in range(MAX_PENDING_TEMPLATES + 3)])
        return len(one.sync.known()), one.errors("overflow")

    assert run(scenario, Gateway(tmp_path)) == (MAX_PENDING_TEMPLATES, 3)


def test_a_template_of_another_release_is_passed_over(tmp_path):
    async def scenario(one):
        await one.send(range(LEARNS))
        assert await one.sync.sync()
        with sqlite3.connect(tmp_path / "templates.db") as connection:
            connection.execute(
                """INSERT INTO templates SELECT app, 'new', state, learned_at,
                replace(replace(payload, '"split":{"kind":"', '"split":{"kind":"x-'), version, 'new') FROM templates"""
            )
        connection.close()
        assert await one.sync.sync()
        assert {learned_of(known) is None for known in one.sync.known()} == {True, False}
        return await one.send([500])

    assert is_exact(run(scenario, Gateway(tmp_path))[0], 500)


def test_the_process_answers_with_results_and_what_it_learned():
    many = [recording(number) for number in range(LEARNS)]
    sink = io.BytesIO()
    main(io.BytesIO(framed(Setup(SETTINGS, "key")) + framed(many)), sink)
    answer = msgspec.msgpack.decode(sink.getvalue()[4:], type=Answer)
    assert len(answer.results) == LEARNS
    assert [event.kind for event in answer.events] == ["learned"]


@pytest.mark.full
def test_a_prompt_that_only_the_judge_explains_is_learned_by_all_gateways(tmp_path):
    """Through the sampling processes, the store and what marks for them; no passage ever comes again."""
    settings = Capture(redact=("email",), ask_judge=True)
    # Sure of nothing by itself: passages in paragraphs, under a heading that names no role.
    words = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in ("ro", "len", "mit", "sun")]

    def said(number):
        pick = [words[(number * 37 + at * 11 + at * at) % len(words)] for at in range(60)]
        passages = [f"{' '.join(pick[k : k + 17]).capitalize()} {number}{k}." for k in range(0, 51, 17)]
        return passages, f"What of {pick[55]} and {pick[56]} {number}?"

    def one_of(number):
        passages, question = said(number)
        text = "\n\n".join(passages)
        body = f"You serve the guild.\n\nThe scribe brought:\n{text}\n\nA member writes: {question}\nWrite back:"
        made = recording(number)
        request = {"model": "m", "messages": [{"role": "user", "content": body}]}
        return msgspec.structs.replace(made, request_body=json.dumps(request).encode())

    def mark(prompt):
        number = int(re.search(r"(\d+)\?\nWrite back:", prompt.user)[1])
        passages, question = said(number)
        return {"question": question, "passages": [{"begins": one[:30], "ends": one[-30:]} for one in passages]}

    judge = Scripted({"prompt_marks": mark})

    async def scenario(one, other):
        marking = PromptMarking(one.store, judge, retention_s=1e9, clock=lambda: 0.0)
        for start in range(1, 60, 4):
            await one.offload.capture([one_of(number) for number in range(start, start + 4)])
            await one.sync.sync()
            await marking.tick()
            await one.sync.sync()
        await other.sync.sync()
        samples = [result.sample for result in await other.offload.capture([one_of(100)])]
        passages, question = said(100)
        assert len(judge.asked) == 1
        assert (samples[0].context_source, samples[0].question) == ("learned", question)
        assert [context.text for context in samples[0].contexts] == passages

    run(scenario, Gateway(tmp_path, settings), Gateway(tmp_path, settings))
