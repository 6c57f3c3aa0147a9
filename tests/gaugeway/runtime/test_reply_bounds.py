"""Replies without end, packed or not: whoever asks stops reading at a limit, says so, and holds little."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import math
import tracemalloc
import zlib

import httpx
import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gaugeway.runtime import otlp_exporters as telemetry
from gaugeway.runtime.replies import MAX_REPLY_BYTES, ReplyError, ReplyTooLargeError, limited
from monitors.alerting.notifiers import NotDeliveredError
from monitors.alerting.notifiers.http import Address
from monitors.exporters.outbox import Api, RefusedError
from monitors.judges import JudgeError, Prompt
from monitors.judges import structured_output as likelihood
from monitors.judges import structured_output as reading
from monitors.judges.openai import OpenAIJudge
from monitors.judges.openai_client import Token
from monitors.metrics.embeddings.openai import OpenAIEmbeddings
from tests.support.running import serving

pytestmark = pytest.mark.full

BOMB = gzip.compress(b'{"choices": ' + b" " * (64 * 1024 * 1024), 1)
GZIP = (b"content-encoding", b"gzip")
HELD = MAX_REPLY_BYTES + 8 * 1024 * 1024
PROMPT = Prompt(task="t", version="1", system="s", user="u")


class Answer(msgspec.Struct):
    """What the judge is asked for."""

    value: int


@contextlib.asynccontextmanager
async def answering(body, head=(), *, chunks=1, status=200):
    """A server that answers everything with `body`, with its length, or `chunks` times after each other without."""

    async def app(_, receive, send):
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json"), *head]
        if chunks == 1:
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for left in reversed(range(chunks)):
            await send({"type": "http.response.body", "body": body, "more_body": left > 0})

    async with serving(app) as port:
        yield f"http://127.0.0.1:{port}"


def span():
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    provider.get_tracer("x").start_span("a").end()
    return memory.get_finished_spans()


async def judge(url):
    asked = OpenAIJudge(url, "k", "m", max_retries=0)
    try:
        with pytest.raises(JudgeError) as caught:
            await asked.ask(PROMPT, Answer)
    finally:
        await asked.aclose()
    assert (caught.value.kind, "larger than" in caught.value.detail) == ("too_large", True)


async def embeddings(url):
    asked = OpenAIEmbeddings(url, "k", "m", max_retries=0)
    try:
        with pytest.raises(JudgeError) as caught:
            await asked.embed(["a"])
    finally:
        await asked.aclose()
    assert caught.value.kind == "too_large"


async def webhook(url):
    with pytest.raises(NotDeliveredError, match="larger than"):
        await Address(url, what="webhook", timeout_s=30).post({})


async def sink(url):
    api = Api(url, timeout_s=30)
    with pytest.raises(RefusedError, match="larger than"):
        await api.call("GET", "/x")
    await api.aclose()


async def collector(url):
    exporter, spans = telemetry.span_exporter(url), span()
    assert await asyncio.to_thread(exporter.export, spans) == SpanExportResult.SUCCESS
    exporter.shutdown()


@pytest.mark.parametrize("ask", [judge, embeddings, webhook, sink, collector])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "plain"])
async def test_a_reply_without_end_is_read_up_to_a_limit(ask, packed):
    head, body, chunks = ([GZIP], BOMB, 1) if packed else ([], b" " * 65536, 1024)
    async with answering(body, head, chunks=chunks) as url:
        await asyncio.wait_for(ask(url), 60)  # whatever is imported on the way
        tracemalloc.start()
        try:
            await asyncio.wait_for(ask(url), 60)
            assert tracemalloc.get_traced_memory()[1] < 2 * HELD
        finally:
            tracemalloc.stop()


async def fetched(limit, body, coding):
    head = [(b"content-encoding", coding)] if coding else []
    async with answering(body, head) as url, httpx.AsyncClient(**limited(limit)) as client:
        return (await client.post(url, content=b"x")).content


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        (b"", bytes),
        (b"identity", bytes),
        (b"gzip", gzip.compress),
        (b"X-GZIP", gzip.compress),
        (b"deflate", zlib.compress),
        (b"deflate", raw_deflate),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 65_536, 200_000])
def test_a_reply_at_the_limit_is_read_and_one_byte_more_is_not(coding, pack, size):
    text = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert asyncio.run(fetched(size, pack(text), coding)) == text
    with pytest.raises(ReplyTooLargeError):
        asyncio.run(fetched(size, pack(text + b"x"), coding))


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (b"x", b"br"),
        (gzip.compress(gzip.compress(b"x", mtime=0), mtime=0), b"gzip, gzip"),
        (b"not packed", b"gzip"),
        (b"\xff" * 20, b"deflate"),
    ],
)
def test_a_reply_that_cannot_be_unpacked_is_refused(body, coding):
    with pytest.raises(ReplyError):
        asyncio.run(fetched(100, body, coding))


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_an_error_of_a_judge_with_megabytes_of_text_is_read_in_parts(status):
    body = msgspec.json.encode({"error": {"message": "response_format a " * 700_000}})
    async with answering(body, status=status) as url:
        asked = OpenAIJudge(url, "k", "m", max_retries=0)
        with pytest.raises(JudgeError) as caught:
            await asked.ask(PROMPT, Answer)
        await asked.aclose()
    assert len(caught.value.detail) <= 500


class Tokens(list):
    """Tokens that count how often they are gone through."""

    read = 0

    def __iter__(self):
        self.read += 1
        return super().__iter__()


def test_many_verdicts_with_probabilities_are_read_in_linear_time():
    schema = {"enum": ["yes", "no"]}
    tokens = Tokens(Token(token=text, logprob=-0.5) for _ in range(500) for text in ('{"a":', '"', "y", "es", '"}'))
    assert likelihood.sureness(tokens, schema) == pytest.approx(math.exp(-1.0))
    assert tokens.read < 5


def test_an_answer_of_megabytes_is_not_searched():
    with pytest.raises(reading.UnreadableError) as caught:
        reading.read('{"value":[' * 200_000, Answer)
    assert caught.value.reason == "wrong_shape"
