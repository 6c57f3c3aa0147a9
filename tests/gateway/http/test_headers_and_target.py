import pytest

from gateway.http.headers import for_client, for_upstream
from gateway.http.url import Target
from gaugeway.exchange import route_of


def test_hop_by_hop_headers_and_ours_stay_behind_and_everything_else_goes_on_in_order():
    headers = [
        (b"host", b"gateway:8080"),
        (b"authorization", b"Bearer k"),
        (b"connection", b"keep-alive, X-Private"),
        (b"x-private", b"1"),
        (b"te", b"trailers"),
        (b"x-custom", b"a"),
        (b"x-custom", b"b"),
        (b"x-gaugeway-app", b"shop"),
        (b"content-length", b"2"),
    ]
    assert for_upstream(headers, host=b"api.example") == [
        (b"host", b"api.example"),
        (b"authorization", b"Bearer k"),
        (b"x-custom", b"a"),
        (b"x-custom", b"b"),
        (b"content-length", b"2"),
    ]


def test_a_configured_key_replaces_the_clients_and_a_changed_body_its_length():
    sent = for_upstream(
        [(b"authorization", b"Bearer client"), (b"content-length", b"90")],
        host=b"h",
        content_length=40,
        authorization=b"Bearer ours",
    )
    assert sent == [(b"host", b"h"), (b"content-length", b"40"), (b"authorization", b"Bearer ours")]


def test_two_cookies_reach_the_client_as_two_headers():
    upstream = [(b"Set-Cookie", b"a=1"), (b"Set-Cookie", b"b=2"), (b"Connection", b"close"), (b"X-Request-Id", b"r")]
    assert for_client(upstream, b"id") == [
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"X-Request-Id", b"r"),
        (b"x-gaugeway-exchange-id", b"id"),
    ]


@pytest.mark.parametrize(
    ("base", "path", "query", "target"),
    [
        ("https://api.openai.com/v1", b"/v1/chat/completions", b"", b"/v1/chat/completions"),
        ("https://api.openai.com/v1/", b"/v1/models", b"", b"/v1/models"),
        ("https://api.groq.com/openai/v1", b"/v1/models", b"", b"/openai/v1/models"),
        ("http://localhost:11434", b"/v1/models", b"a=%2F&b=", b"/v1/models?a=%2F&b="),
        ("https://x.openai.azure.com", b"/openai/deployments/d%20e/x", b"", b"/openai/deployments/d%20e/x"),
        ("https://x.openai.azure.com/openai", b"/openai/deployments/d/x", b"", b"/openai/deployments/d/x"),
        ("https://gw.example/api/v3", b"/v1/x/../y", b"", b"/api/v3/x/../y"),
    ],
)
def test_the_base_url_stands_for_the_clients_v1(base, path, query, target):
    assert Target.parse(base).join(path, query) == target


@pytest.mark.parametrize("url", ["api.openai.com/v1", "ftp://x/v1", "http://", "http://u:p@h/v1", "http://h/v1?k=1"])
def test_what_is_no_base_url_is_refused(url):
    with pytest.raises(ValueError, match=r"base URL|http"):
        Target.parse(url)


def test_the_host_header_names_the_port_unless_it_is_the_schemes_own():
    assert Target.parse("https://h.example/v1").host_header == b"h.example"
    assert Target.parse("http://h.example:443/v1").host_header == b"h.example:443"
    assert Target.parse("http://[::1]:8000/v1").host_header == b"[::1]:8000"


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/chat/completions", "chat_completions"),
        ("/v1/chat/completions/", "chat_completions"),
        ("/openai/deployments/gpt/chat/completions", "chat_completions"),
        ("/openai/v1/responses", "responses"),
        ("/v1/files/file-1/content", "files"),
        ("/v1/anything", "other"),
        ("/openai/deployments", "other"),
    ],
)
def test_routes_are_a_closed_set(path, route):
    assert route_of("POST", path) == route
