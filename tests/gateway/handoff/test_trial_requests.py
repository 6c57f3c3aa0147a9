"""Which requests a gateway keeps for trials, and what of them."""

import asyncio
import gzip
import json
import time

import pytest

from gateway.handoff import trial_requests as module
from gateway.handoff.trial_requests import TrialRequests
from gaugeway.exchange import GENERATION_ROUTES, Recording
from gaugeway.records import Sample
from gaugeway.redaction import Redactor
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.trials import MAX_REQUEST_BYTES, MAX_WAITING, Trials, sealer
from tests.gaugeway.storage.test_trials import trial

KEY = "GAUGEWAY_TRIALS_KEY"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]}


def recording(number=0, body=BODY, headers=(), route="chat_completions"):
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    given = {"started_at": 1.0, "method": "POST", "path": "/v1/x", "route": route, "request_body": raw}
    return Recording(id=f"x{number}", request_headers=list(headers), **given)


def sample(number=0, app="shop", **more):
    return Sample(id=f"x{number}", started_at=1.0, duration_s=1.0, app=app, question="Why?", response="So.", **more)


def without_digits(text):
    return "".join("#" if character.isdigit() else character for character in text)


class Gateway:
    """A gateway's side of trials over a real store."""

    def __init__(self, folder, redact=lambda _: None, **how):
        self.trials = Trials(SQLiteDocuments(folder))
        self.requests = TrialRequests(self.trials, redact, **how)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.requests.aclose()

    async def begin(self, *trials):
        for one in trials:
            await self.trials.start(one)
        await self.requests.sync()

    async def take(self, *exchanges):
        for made, about in exchanges:
            self.requests.offer(made, about)
        await self.requests.sync()

    async def kept(self):
        _, waiting = await self.trials.waiting(None)
        return {key: kept for key, (_, kept) in waiting.items()}

    async def left_out(self, name="t"):
        return (await self.trials.get(name)).left_out


async def test_the_requests_of_a_trials_app_are_kept_as_they_came(tmp_path):
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial(), trial("both"), trial("help", app="help"))
        await gateway.take((recording(), sample()), (recording(1), sample(1, app="other")))
        kept = await gateway.kept()
        assert set(kept) == {("t", "x0"), ("both", "x0")}
        one = kept["t", "x0"]
        assert (one.route, json.loads(one.body), one.headers, one.sealed) == ("chat_completions", BODY, {}, False)
        assert await gateway.left_out() == {}


async def test_no_trial_keeps_nothing(tmp_path):
    async with Gateway(tmp_path) as gateway:
        await gateway.take((recording(), sample()))
        assert await gateway.kept() == {}


async def test_about_the_share_that_a_trial_asks_for_is_kept_and_two_trials_choose_apart(tmp_path):
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial(rate=0.3, per_second=100.0), trial("other", rate=0.3, per_second=100.0))
        await gateway.take(*((recording(n), sample(n)) for n in range(300)))
        chosen = {name: {x for t, x in await gateway.kept() if t == name} for name in ("t", "other")}
        assert 60 <= len(chosen["t"]) <= 120
        assert chosen["t"] != chosen["other"]


async def test_no_more_is_read_and_kept_than_a_trial_can_send_however_much_traffic_there_is(tmp_path):
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial(per_second=0.001))
        await gateway.take(*((recording(n), sample(n)) for n in range(300)))
        assert (len(await gateway.kept()), await gateway.left_out()) == (50, {"no_room": 250})


@pytest.mark.parametrize(
    "name", ["authorization", "Api-Key", "X-API-KEY", "cookie", "x-gaugeway-key", "Proxy-Authorization"]
)
async def test_no_credential_is_kept_under_any_name(tmp_path, name):
    headers = [(name.encode(), b"sk-secret-4711"), (b"Anthropic-Version", b"2023-06-01"), (b"openai-beta", b"x=v1")]
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial())
        await gateway.take((recording(headers=headers), sample()))
        (one,) = (await gateway.kept()).values()
        assert one.headers == {"anthropic-version": "2023-06-01", "openai-beta": "x=v1"}
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert b"4711" not in stored


async def test_our_own_member_is_not_sent_on(tmp_path):
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial())
        await gateway.take((recording(body=BODY | {"gaugeway": {"app": "shop"}}), sample()))
        (one,) = (await gateway.kept()).values()
        assert json.loads(one.body) == BODY


async def test_after_a_failure_large_requests_that_were_written_are_not_read_again(tmp_path, monkeypatch):
    large = BODY | {"messages": [{"role": "user", "content": "x" * 600_000}]}
    read, written = [], []

    async def keep(requests, now, kept=Trials.keep):
        written.append(len(requests))
        if len(written) == 2:
            raise EngineError("the disk is full")
        return await kept(gateway.trials, requests, now)

    async with Gateway(tmp_path, lambda _: lambda text: read.append(text) or text) as gateway:
        await gateway.begin(trial())
        monkeypatch.setattr(gateway.trials, "keep", keep)
        with pytest.raises(EngineError):
            await gateway.take(*((recording(n, large), sample(n)) for n in range(3)))
        assert {exchange for _, exchange in await gateway.kept()} == {"x0"}
        await gateway.requests.sync()
        assert ({exchange for _, exchange in await gateway.kept()}, written) == ({"x0", "x1", "x2"}, [1, 1, 1, 1])
        assert sum(len(text) == 600_000 for text in read) == 4


@pytest.mark.parametrize(("coding", "packed"), [("gzip", gzip.compress), ("identity", bytes)])
async def test_a_compressed_body_is_kept_unpacked(tmp_path, coding, packed):
    made = recording(body=packed(json.dumps(BODY).encode()), headers=[(b"Content-Encoding", coding.encode())])
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial())
        await gateway.take((made, sample()))
        (one,) = (await gateway.kept()).values()
        assert json.loads(one.body) == BODY


@pytest.mark.parametrize(
    ("made", "about", "reason"),
    [
        (recording(route="embeddings"), {}, "route"),
        (recording(), {"skip_reason": "tool_call"}, "tool_call"),
        (recording(body=b"x" * (MAX_REQUEST_BYTES + 1)), {}, "too_large"),
        (recording(body=b"{"), {}, "unreadable"),
        (recording(body=[1]), {}, "unreadable"),
        (recording(body=None), {}, "unreadable"),
        (recording(body=b'{"a":' * 3000 + b"1" + b"}" * 3000), {}, "unreadable"),
        (recording(body=b"\xff\xfe"), {}, "unreadable"),
        (recording(headers=[(b"content-encoding", b"gzip")]), {}, "unreadable"),
        (recording(headers=[(b"content-encoding", b"unheard-of")]), {}, "unreadable"),
        (
            recording(body=gzip.compress(b" " * 3 * MAX_REQUEST_BYTES), headers=[(b"content-encoding", b"gzip")]),
            {},
            "unreadable",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_tried_is_counted(tmp_path, made, about, reason):
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial())
        await gateway.take((made, sample(**about)), (recording(1), sample(1)))
        assert set(await gateway.kept()) == {("t", "x1")}
        assert await gateway.left_out() == {reason: 1}


async def test_every_route_that_answers_is_tried(tmp_path):
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial())
        await gateway.take(*((recording(n, route=r), sample(n)) for n, r in enumerate(sorted(GENERATION_ROUTES))))
        routes = {one.route for one in (await gateway.kept()).values()}
        assert routes == {"chat_completions", "completions", "responses", "messages"}


async def test_an_exchange_that_redaction_would_change_is_left_out(tmp_path):
    inner = {"messages": [{"role": "user", "content": [{"type": "text", "text": "My number is 4711."}]}]}
    async with Gateway(tmp_path, lambda app: without_digits if app == "shop" else None) as gateway:
        await gateway.begin(trial(), trial("open", app="help"))
        await gateway.take(
            (recording(0, inner), sample(0)), (recording(1), sample(1)), (recording(2, inner), sample(2, app="help"))
        )
        assert set(await gateway.kept()) == {("t", "x1"), ("open", "x2")}
        assert (await gateway.left_out(), await gateway.left_out("open")) == ({"redacted": 1}, {})


async def test_an_original_is_sealed_and_opens_with_the_key_alone(tmp_path, monkeypatch):
    monkeypatch.setenv(KEY, "a key of the gateways and the monitors")
    async with Gateway(tmp_path, lambda _: without_digits) as gateway:
        await gateway.begin(trial(send="original"))
        body = {"prompt": "My number is 4711."}
        await gateway.take((recording(body=body), sample()))
        (one,) = (await gateway.kept()).values()
        assert one.sealed
        assert b"4711" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert json.loads(sealer().decrypt(one.body.encode())) == body


async def test_an_original_without_a_key_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial(send="original"))
        await gateway.take((recording(), sample()))
        assert (await gateway.kept(), await gateway.left_out()) == ({}, {"no_key": 1})


async def test_a_full_store_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("gaugeway.storage.trials.MAX_WAITING", 2)
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial())
        await gateway.take(*((recording(n), sample(n)) for n in range(5)))
        assert (len(await gateway.kept()), await gateway.left_out()) == (2, {"no_room": 3})


async def test_a_store_that_fails_stops_nothing_and_what_is_pending_stays_bounded(tmp_path, monkeypatch):
    async with Gateway(tmp_path) as gateway:
        await gateway.begin(trial())

        async def away(*_):
            raise EngineError("away")

        with monkeypatch.context() as patch:
            patch.setattr(SQLiteDocuments, "update", away)
            patch.setattr(SQLiteDocuments, "changed", away)
            large = {"prompt": "x" * (module.MAX_PENDING_BYTES // 20)}
            for n in range(MAX_WAITING + 100):
                gateway.requests.offer(recording(n, large if n % 2 else BODY), sample(n))
            with pytest.raises(EngineError):
                await gateway.requests.sync()
        await gateway.requests.sync()
        kept, left = await gateway.kept(), await gateway.left_out()
        assert left["no_room"] + len(kept) == MAX_WAITING + 100
        assert sum(len(one.body) for one in kept.values()) <= module.MAX_PENDING_BYTES
        assert len(kept) <= MAX_WAITING


async def test_it_goes_on_after_an_outage_and_says_when_it_ends(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="gaugeway")
    gateway = Gateway(tmp_path, every_s=0.01)
    await gateway.trials.start(trial())

    async def away(*_):
        raise EngineError("away")

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteDocuments, "changed", away)
        gateway.requests.start()
        await until(lambda: "requests are not kept for trials" in caplog.text)
    await until(lambda: "kept for trials again" in caplog.text)
    gateway.requests.offer(recording(), sample())
    await gateway.requests.aclose()
    assert set(await gateway.kept()) == {("t", "x0")}
    await gateway.trials.aclose()


async def test_the_end_of_the_gateway_keeps_what_is_pending(tmp_path):
    gateway = Gateway(tmp_path, every_s=60.0)
    await gateway.trials.start(trial())
    await gateway.requests.sync()
    gateway.requests.start()
    await asyncio.sleep(0.05)
    for n in range(20):
        gateway.requests.offer(recording(n), sample(n))
    await gateway.requests.aclose()
    assert len(await gateway.kept()) == 20
    await gateway.trials.aclose()


async def test_a_trial_is_seen_when_it_starts_and_when_it_ends(tmp_path):
    async with Gateway(tmp_path) as gateway:
        await gateway.begin()
        await gateway.take((recording(0), sample(0)))
        await gateway.begin(trial())
        await gateway.take((recording(1), sample(1)))
        assert set(await gateway.kept()) == {("t", "x1")}
        gateway.requests.offer(recording(2), sample(2))
        await gateway.trials.end("t", "stopped", time.time())
        await gateway.requests.sync()
        await gateway.take((recording(3), sample(3)))
        assert (await gateway.kept(), await gateway.left_out()) == ({}, {"ended": 1})


async def until(is_so):
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - a log line sets no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("more", "left_out"),
    [
        ({"api_key": "sk-own"}, {"credentials": 1}),
        ({"password": "hunter2"}, {"credentials": 1}),
        ({"mcp_servers": [{"url": "https://x.example", "authorization_token": "t"}]}, {"credentials": 1}),
        ({"extra_headers": {"x": "y"}}, {"credentials": 1}),
        ({"api_base": "https://elsewhere.example/v1"}, {"credentials": 1}),
        ({"metadata": {"jane.roe@example.com": "x"}}, {"redacted": 1}),
        ({"max_tokens": 9, "user": "u1", "metadata": {"tier": "gold"}}, {}),
        ({"tools": [{"function": {"name": "f", "parameters": {"properties": {"token": {"type": "string"}}}}}]}, {}),
    ],
)
async def test_a_credential_or_a_persons_name_for_a_member_is_never_kept(tmp_path, more, left_out):
    body = {"model": "m", "messages": [{"role": "user", "content": "Why?"}]} | more
    redact = Redactor(("email",), (), "k").redact
    async with Gateway(tmp_path, redact=lambda _: redact) as gateway:
        await gateway.begin(trial())
        await gateway.take((recording(0, body=json.dumps(body).encode()), sample(0)))
        assert (await gateway.left_out(), len(await gateway.kept())) == (left_out, 0 if left_out else 1)
