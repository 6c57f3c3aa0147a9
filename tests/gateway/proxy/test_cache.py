import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.cache import HIT, Cache, CacheRecorder, _is_harmless, cache_key

JSON = [(b"content-type", b"application/json"), (b"content-length", b"2")]
LONG = b'{"x":"' + b"x" * 360 + b'"}'
SSE = [
    (b"content-type", b"text/event-stream"),
    (b"date", b"Mon"),
    (b"x-request-id", b"r1"),
    (b"transfer-encoding", b"chunked"),
]
REQUEST = {
    "app": "shop",
    "key_id": None,
    "route": "chat_completions",
    "method": "POST",
    "path": b"/v1/chat/completions",
    "query": b"",
    "headers": [(b"authorization", b"Bearer a"), (b"accept-encoding", b"gzip"), (b"user-agent", b"x")],
    "body": b'{"model":"m"}',
}


def key(**parts):
    return cache_key(**{**REQUEST, **parts})


def cache(max_bytes=1_000_000, ttl_s=300.0):
    return Cache(["shop"], ttl_s=ttl_s, max_bytes=max_bytes)


def with_header(name, value):
    return [header for header in REQUEST["headers"] if header[0] != name] + [(name, value)]


def test_the_same_request_is_answered_again_chunk_by_chunk():
    kept = cache()
    chunks = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"]
    assert kept.store(key(), 200, SSE, chunks, 10.0)
    cached = kept.lookup(key(), 17.9)
    assert cached.status == 200
    assert cached.chunks == tuple(chunks)
    assert cached.headers == [*SSE, (b"age", b"7"), HIT]


@pytest.mark.parametrize(
    "other",
    [
        {"app": "other"},
        {"key_id": "key_1"},
        {"path": b"/v1/completions"},
        {"query": b"a=1"},
        {"body": b'{"model": "m"}'},
        {"headers": []},
        {"headers": with_header(b"authorization", b"Bearer b")},
        {"headers": with_header(b"accept-encoding", b"br")},
        {"headers": [*REQUEST["headers"], (b"api-key", b"a")]},
        {"headers": [*REQUEST["headers"], (b"openai-organization", b"o")]},
        {"headers": [*REQUEST["headers"], (b"cookie", b"c=1")]},
        {"headers": [*REQUEST["headers"], (b"x-gaugeway-upstream", b"canary")]},
        {"headers": [*REQUEST["headers"], REQUEST["headers"][0]]},
    ],
)
def test_any_difference_that_may_matter_is_a_miss(other):
    kept = cache()
    kept.store(key(), 200, JSON, [b"{}"], 0.0)
    assert kept.lookup(key(**other), 0.0) is None


CREDENTIALS = [
    b"ocp-apim-subscription-key",
    b"x-goog-api-key",
    b"x-auth-token",
    b"x-amz-security-token",
    b"x-amz-date",
    b"cf-access-client-secret",
    b"x-forwarded-user",
    b"x-forwarded-for",
    b"x-tenant-id",
    b"cookie",
    b"a-header-of-next-year",
]


@pytest.mark.parametrize("name", CREDENTIALS)
def test_an_answer_to_one_credential_is_not_given_to_another_or_to_none(name):
    kept = cache()
    kept.store(key(headers=[(name, b"secret of A")]), 200, JSON, [b"{}"], 0.0)
    assert kept.lookup(key(headers=[(name, b"secret of A")]), 0.0)
    assert kept.lookup(key(headers=[(name, b"secret of B")]), 0.0) is None
    assert kept.lookup(key(headers=[(name, b"secret of A"), (name, b"secret of B")]), 0.0) is None
    assert kept.lookup(key(headers=[]), 0.0) is None


texts = st.binary(max_size=12)
names = st.from_regex(rb"[a-z][a-z0-9-]{2,30}", fullmatch=True)


@given(names, texts, texts)
def test_every_header_is_part_of_the_key_unless_it_is_known_to_be_harmless(name, one, other):
    same = key(headers=[(name, one)]) == key(headers=[(name, other)])
    assert same == (one == other or _is_harmless(name))


@given(st.lists(st.tuples(names, st.binary(min_size=8, max_size=40)), max_size=5), st.binary(min_size=8))
def test_nothing_of_a_request_can_be_read_in_its_key(headers, body):
    digest = key(headers=headers, body=body).digest
    assert len(digest) == 32
    assert not any(value in digest for _, value in headers)


def test_headers_that_say_nothing_about_the_answer_do_not_matter():
    kept = cache()
    kept.store(key(), 200, JSON, [b"{}"], 0.0)
    harmless = [
        (b"traceparent", b"00-1"),
        (b"x-stainless-retry-count", b"1"),
        (b"user-agent", b"another"),
        (b"x-request-id", b"r2"),
        (b"date", b"today"),
        (b"host", b"gw:8080"),
        (b"content-length", b"13"),
        (b"x-gaugeway-session", b"s"),
    ]
    assert kept.lookup(key(headers=[*harmless, *reversed(REQUEST["headers"])]), 0.0)


requests = st.fixed_dictionaries(
    {
        "app": st.text(max_size=4),
        "key_id": st.none() | st.text(max_size=4),
        "path": texts,
        "query": texts,
        "body": texts,
        "headers": st.lists(
            st.tuples(st.sampled_from([b"authorization", b"api-key", b"accept-encoding"]), texts), max_size=3
        ),
    }
)


def identity(request):
    headers = tuple(sorted(request["headers"], key=lambda header: header[0]))
    return (*(request[name] for name in ("app", "key_id", "path", "query", "body")), headers)


@given(requests, requests)
def test_two_requests_have_one_key_exactly_when_they_are_the_same(one, other):
    assert (key(**one) == key(**other)) == (identity(one) == identity(other))


@given(requests, texts, texts)
def test_moving_bytes_from_one_part_into_the_next_is_another_request(request, left, right):
    moved = {**request, "path": request["path"] + left, "query": right}
    back = {**request, "path": request["path"], "query": left + right}
    assert (key(**moved) == key(**back)) == (not left)


@pytest.mark.parametrize(
    "other",
    [{"method": "GET"}, {"method": "DELETE"}, {"route": "files"}, {"route": "models"}, {"route": "other"}],
)
def test_only_posts_to_generation_and_embeddings_are_kept(other):
    assert key(**other) is None
    assert key(route="embeddings") is not None


@pytest.mark.parametrize(("said", "stored"), [(b"no-store", False), (b"max-age=0, No-Cache", True)])
def test_a_client_that_wants_no_old_answer_gets_none(said, stored):
    kept = cache()
    kept.store(key(), 200, JSON, [b'{"n":1}'], 0.0)
    wish = key(headers=[*REQUEST["headers"], (b"cache-control", said)])
    assert kept.lookup(wish, 1.0) is None
    assert kept.store(wish, 200, JSON, [b'{"n":2}'], 1.0) == stored
    assert kept.lookup(key(), 1.0).chunks == ((b'{"n":2}',) if stored else (b'{"n":1}',))


@pytest.mark.parametrize(
    ("status", "headers", "chunks"),
    [
        (201, JSON, [b"{}"]),
        (429, JSON, [b"{}"]),
        (500, JSON, [b"{}"]),
        (200, [*JSON, (b"Set-Cookie", b"a=1")], [b"{}"]),
        (200, [*JSON, (b"Vary", b"accept-encoding, user-agent")], [b"{}"]),
        (200, [*JSON, (b"vary", b"*")], [b"{}"]),
        (200, SSE, [b'data: {"id":1}\n\n', b'data: {"err', b'or":{"message":"overloaded"}}\n\n']),
        (200, SSE, [b"event: error\ndata: {}\n\n"]),
        (200, JSON, [b'{"x":"' + b"x" * 2_000_000 + b'"}']),
        (200, JSON, [b'{"error":{"message":"overloaded"}}']),
        (200, JSON, [b'{"object":"response","status":"failed","error":null}']),
        (200, JSON, [b'{"object":"response","status":"in_progress"}']),
        (200, JSON, [b'{"choices":[']),
        (200, JSON, []),
        (200, [(b"content-type", b"text/html"), JSON[1]], [b"<html>busy</html>"]),
        (200, JSON[1:], [b"{}"]),
        (200, SSE, []),
        (200, SSE, [b'data: {"id":1}\n\ndata: {"ch']),
        (200, SSE, [b'data: {"type":"message_start"}\n\n']),
        (200, SSE, [b'data: {"type":"response.created"}\n\n']),
        (200, SSE, [b'data: {"type":"response.failed"}\n\n']),
    ],
)
def test_what_is_no_good_answer_for_anybody_else_is_not_kept(status, headers, chunks):
    kept = cache()
    assert not kept.store(key(), status, headers, chunks, 0.0)
    assert (len(kept), kept.size) == (0, 0)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (JSON, b'{"choices":[],"error":null,"status":"completed"}'),
        (JSON, b'{"object":"list","data":[]}'),
        ([(b"Content-Type", b"Application/JSON; charset=utf-8"), JSON[1]], b"{}"),
        (SSE, b'data: {"id":1}\r\n\r\ndata: [DONE]\r\n\r\n'),
        (SSE, b'data: {"type":"message_start"}\n\ndata: {"type":"message_stop"}\n\n'),
        (SSE, b'data: {"type":"response.created"}\n\ndata: {"type":"response.completed"}\n\n'),
        ([*SSE, (b"content-encoding", b"gzip")], b"\x1f\x8b"),
    ],
)
def test_a_whole_answer_is_kept(headers, said):
    kept = cache()
    assert kept.store(key(), 200, headers, [said], 0.0)
    assert kept.lookup(key(), 1.0).chunks == (said,)


def test_an_answer_that_speaks_of_errors_is_kept():
    kept = cache()
    said = b'data: {"choices":[{"delta":{"content":"\\nevent: error\\ndata: {\\"error\\""}}]}\n\n'
    assert kept.store(key(), 200, [*SSE, (b"Vary", b"Origin, Accept-Encoding")], [said], 0.0)


def test_counts_of_the_moment_are_left_out_and_all_other_headers_stay():
    kept = cache()
    stale = [(b"X-RateLimit-Remaining-Requests", b"3"), (b"retry-after", b"1"), (b"Age", b"9")]
    stay = [*JSON, (b"openai-processing-ms", b"7"), (b"agent", b"a"), (b"x-request-id", b"r"), (b"date", b"d")]
    kept.store(key(), 200, [*stale, *stay], [b"{}"], 0.0)
    assert kept.lookup(key(), 0.0).headers == [*stay, (b"age", b"0"), HIT]


def test_after_its_time_an_answer_is_gone():
    kept = cache(ttl_s=10)
    kept.store(key(), 200, JSON, [b"{}"], 100.0)
    assert kept.lookup(key(), 109.9)
    assert kept.lookup(key(), 110.0) is None
    assert (len(kept), kept.size) == (0, 0)


def test_the_answer_asked_for_longest_ago_makes_room():
    kept = cache(max_bytes=6000)
    for name in (b"a", b"b", b"c"):
        kept.store(key(body=name), 200, JSON, [LONG], 0.0)
    assert len(kept) == 3
    kept.lookup(key(body=b"a"), 0.0)
    kept.store(key(body=b"d"), 200, JSON, [LONG], 0.0)
    assert [bool(kept.lookup(key(body=name), 0.0)) for name in (b"a", b"b", b"c", b"d")] == [True, False, True, True]


actions = st.tuples(
    st.sampled_from(["store", "lookup"]), st.integers(0, 6), st.lists(st.integers(0, 3000), max_size=5), st.floats(0, 9)
)


@given(st.lists(actions, max_size=80), st.integers(1, 20_000))
def test_the_cache_never_holds_more_bytes_than_it_may_nor_an_old_answer(actions, max_bytes):
    kept, now, newest = cache(max_bytes, ttl_s=20), 0.0, {}
    for action, number, sizes, pause in actions:
        now += pause
        name = key(body=str(number).encode())
        if action == "store":
            chunks = [b'{"x":"', *(bytes([65 + number]) * size for size in sizes), b'"}']
            if kept.store(name, 200, JSON, chunks, now):
                newest[number] = (now, tuple(chunk for chunk in chunks if chunk))
        elif cached := kept.lookup(name, now):
            stored_at, chunks = newest[number]
            assert now - stored_at < 20
            assert cached.chunks == chunks
        assert kept.size <= max_bytes
    size = kept.size
    found = [one for number in newest if (one := kept.lookup(key(body=str(number).encode()), now))]
    assert sum(sum(map(len, one.chunks)) for one in found) <= size


def test_only_the_apps_that_asked_for_it_are_served():
    assert cache().serves("shop")
    assert not cache().serves("other")
    assert Cache(["*"], ttl_s=1, max_bytes=1).serves("other")
    assert not Cache([], ttl_s=1, max_bytes=1).serves("default")


def test_a_tape_lets_go_of_what_is_too_large_to_be_kept():
    tape = CacheRecorder(5)
    tape.add(b"abc")
    tape.add(b"de")
    assert tape.whole
    assert tape.chunks == [b"abc", b"de"]
    tape.add(b"f")
    tape.add(b"g")
    assert not tape.whole
    assert tape.chunks == []


def test_an_answer_that_only_the_end_of_the_connection_ends_is_not_kept():
    """TLS upstreams that are cut off look the same: asyncio takes a missing close_notify for an end."""
    assert not cache().store(key(), 200, [(b"content-type", b"application/json")], [b"{}"], 1.0)
