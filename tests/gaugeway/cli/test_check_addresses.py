"""`gaugeway check` on addresses: hosts, the gateway's own ports, credentials."""

import socket

import pytest

from gaugeway.settings.endpoints import is_own, is_remote
from tests.support.commands import check, problems_of

pytestmark = pytest.mark.full

UPSTREAM = '[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"\n'


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.delenv("NOT_SET", raising=False)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "host", ["::1", "fe80::1%eth0", "localhost", "my_service", "bücher.example", "हिन्दी.example", "gw.example.", ""]
)
def test_what_may_be_a_host_is_left_to_the_system(host):
    answer = check(f'{UPSTREAM}[gateway]\nhost = "{host}"\n')
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("url", ["http://localhost:8080/v1", "http://127.0.0.1:8080"])
def test_a_judge_that_is_the_gateway_itself_is_named(url):
    judge = "base_url = '{}'\nmodel = 'm'\n"
    small = f"[judge]\n{judge.format('http://127.0.0.1:9/v1')}[judge.small]\n{judge.format(url)}"
    for text, key in ((f"[judge]\n{judge.format(url)}", "judge"), (small, "judge.small")):
        (problem,) = problems_of(f"{UPSTREAM}{text}")
        assert problem.startswith(f"{key}.base_url: this is Gaugeway itself (gateway.port)")


def test_a_judge_on_the_internet_without_a_key_is_a_warning_and_one_nearby_is_none():
    judge = "{}[judge]\nbase_url = '{}'\nmodel = 'm'\n"
    far = check(judge.format(UPSTREAM, "https://models.example.com/v1"))
    assert far.exit_code == 0
    assert "warning: judge.api_key: missing" in far.stderr
    for near in ("http://ollama:11434/v1", "http://10.0.0.7:8000/v1", "http://vllm.ml.svc.cluster.local/v1"):
        assert "warning" not in check(judge.format(UPSTREAM, near)).stderr
    assert [is_remote(f"http://{host}/") for host in ("8.8.8.8", "[::1]", "localhost", "a.example")] == [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("listener", "url"),
    [
        ("127.0.0.1", "http://localhost:8080/v1"),
        ("0.0.0.0", "http://127.0.0.1:8080/v1"),
        ("0.0.0.0", f"http://{socket.gethostname()}:8080"),
        ("::", "http://[::1]:8080"),
        ("gw.example", "http://GW.example:8080"),
    ],
)
def test_an_upstream_that_is_the_gateway_itself_is_named(listener, url):
    problems = problems_of(f'[gateway]\nhost = "{listener}"\n[[upstreams]]\nbase_url = "{url}"\n')
    assert problems == ["upstreams[0].base_url: this is Gaugeway itself (gateway.port), so that requests would loop"]


def test_another_machine_or_port_is_not_the_gateway_itself():
    assert not is_own("192.0.2.7", "0.0.0.0")
    assert not is_own("192.0.2.7", "127.0.0.1")
    assert check('[[upstreams]]\nbase_url = "http://localhost:8081/v1"\n').exit_code == 0


@pytest.mark.parametrize(
    ("keys", "url", "api_key", "warned"),
    [
        ("true", "https://api.example.com/v1", "", True),
        ("true", "https://api.example.com/v1", "api_key = 'sk-1'", False),
        ("true", "http://127.0.0.1:9/v1", "", False),
        ("false", "https://api.example.com/v1", "", False),
    ],
)
def test_keys_without_credentials_for_the_upstream_are_a_warning(keys, url, api_key, warned):
    answer = check(f"[keys]\nenabled = {keys}\n[[upstreams]]\nbase_url = '{url}'\n{api_key}\n")
    assert answer.exit_code == 0
    assert ("upstreams[0].api_key: missing: with keys.enabled" in answer.stderr) is warned


def test_short_tokens_are_a_warning():
    short = f"[gateway]\nadmin_token = 'hunter2'\n[monitors]\nhost = '0.0.0.0'\ntoken = 'hunter3'\n{UPSTREAM}"
    answer = check(short)
    assert answer.stdout.endswith(": ok, 2 warnings\n")
    for key in ("gateway.admin_token", "monitors.token"):
        assert f"warning: {key}: is short" in answer.stderr
    assert "hunter" not in answer.output
    assert check(short.replace("hunter2", "0f3c9a7be1d24586").replace("hunter3", "0f3c9a7be1d24586")).stderr == ""
