"""Secrets come from the environment or a file, and appear nowhere: log, metrics, API, errors, `check`."""

import re

import httpx
import pytest
from click.testing import CliRunner

from gateway import config as configuration
from gaugeway.cli.main import main
from gaugeway.settings import ConfigError, convert, read
from tests.support.llm_server import LLMServer, Reply
from tests.support.product import product
from tests.support.running import toml

CANARY = re.compile(r"canary-[a-z]+-4711")
NAMES = (
    *("upstream", "judge", "small", "embeddings", "webhook", "signature", "slack", "pagerduty", "smtp", "sink"),
    *("public", "private", "otlp", "admin", "monitors", "client"),
)


@pytest.fixture
def secrets(tmp_path):
    directory = tmp_path / "secrets"
    directory.mkdir()
    for name in NAMES:
        (directory / name).write_text(f"canary-{name}-4711\n")
    return directory


def filled(text, directory):
    return re.sub(r"<(\w+)>", lambda found: f"${{file:{directory / found[1]}}}", text)


WHOLE = """
[gateway]
admin_token = "<admin>"
[monitors]
token = "<monitors>"
[[upstreams]]
base_url = "URL"
api_key = "<upstream>"
[judge]
base_url = "URL"
model = "j"
api_key = "<judge>"
max_retries = 0
[embeddings]
base_url = "URL"
model = "e"
api_key = "<embeddings>"
[[notifiers]]
kind = "webhook"
url = "http://127.0.0.1:9/<webhook>"
secret = "<signature>"
[[notifiers]]
kind = "slack"
url = "http://127.0.0.1:9/services/<slack>"
[[notifiers]]
kind = "pagerduty"
url = "http://127.0.0.1:9"
routing_key = "<pagerduty>"
[[sinks]]
kind = "langfuse"
url = "http://127.0.0.1:9"
public_key = "<public>"
secret_key = "<private>"
"""


def test_a_file_stands_for_its_text_without_the_last_line_break(tmp_path):
    secret = tmp_path / "x"
    for text, meant in (
        ("s3cret\n", "s3cret"),
        ("a\r\n", "a"),
        ("a\n\n", "a\n"),
        (" a ", " a "),
        ("${HOME}", "${HOME}"),
    ):
        secret.write_bytes(text.encode())
        path = toml(tmp_path / "gaugeway.toml", f'a = "-${{file:{secret}}}-"\nb = ["${{file:{secret}}}"]')
        assert read(path) == {"a": f"-{meant}-", "b": [meant]}


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("/nowhere/at/all", "No such file"),
        ("relative/path", "absolute"),
        ("/", "directory"),
        ("/dev/zero", "not a regular file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_key(tmp_path, named, said):
    path = toml(tmp_path / "gaugeway.toml", f'[judge]\napi_key = "${{file:{named}}}"')
    with pytest.raises(ConfigError) as told:
        read(path)
    (problem,) = told.value.problems
    assert problem.startswith(f"judge.api_key: {named}")
    assert said.lower() in problem.lower()


def test_a_file_longer_than_any_secret_is_not_read_whole(tmp_path):
    (tmp_path / "long").write_text("x" * 70_000)
    path = toml(tmp_path / "gaugeway.toml", f'[judge]\napi_key = "${{file:{tmp_path}/long}}"')
    with pytest.raises(ConfigError, match=r"judge\.api_key: .* longer than 65536 characters"):
        read(path)


def test_a_value_that_is_a_word_of_a_message_or_of_a_placeholder_leaves_both_readable(tmp_path, monkeypatch):
    monkeypatch.setenv("SHORT", "a")
    monkeypatch.setenv("WORD", "file")
    monkeypatch.setenv("BROKEN", "canary\nbroken")
    monkeypatch.setenv("DATABASE", "postgresql://gaugeway@db/gaugeway")
    text = '[judge]\nmodel = "${SHORT}"\napi_key = "${BROKEN}"\n[monitors]\ntoken = "${WORD}"\nhost = "${SHORT}"'
    text += (
        '\n[store]\nurl = "${DATABASE}"\n[gateway]\nport = 4711\n[[upstreams]]\nbase_url = "http://127.0.0.1:4711/v1"'
    )
    answer = CliRunner().invoke(main, ["check", "--config", str(toml(tmp_path / "gaugeway.toml", text))])
    assert "judge.api_key: has a line break" in answer.output
    assert "this is Gaugeway itself (gateway.port)" in answer.output
    assert "canary" not in answer.output


def test_bytes_that_are_no_text_are_not_quoted(tmp_path):
    secret = tmp_path / "x"
    secret.write_bytes(b"canary-\xff-4711")
    with pytest.raises(ConfigError) as told:
        read(toml(tmp_path / "gaugeway.toml", f'a = "${{file:{secret}}}"'))
    assert "canary" not in str(told.value)


WRONG = {
    "gateway.admin_token": '[gateway]\nadmin_token = ["<admin>"]',
    "monitors.token": '[monitors]\ntoken = {a = "<monitors>"}',
    "judge.concurrency": '[judge]\nconcurrency = "<judge>"',
    "judge.mode": '[judge]\nmode = "<judge>"',
    "gateway.upstream_client": '[gateway]\nupstream_client = "<upstream>"',
    "monitors.public_url": '[monitors]\npublic_url = "<monitors>"',
    "monitors.grafana_url": '[monitors]\ngrafana_url = "<grafana>"',
    "alerts.slices": '[alerts]\nslices = ["<webhook>"]',
}


@pytest.mark.parametrize("key", WRONG)
def test_a_value_of_the_wrong_kind_is_not_quoted(tmp_path, secrets, key):
    path = toml(tmp_path / "gaugeway.toml", filled(WRONG[key], secrets))
    with pytest.raises(ConfigError) as told:
        convert(read(path), configuration.Config)
    assert not CANARY.search(str(told.value))


UPSTREAM = '[[upstreams]]\nbase_url = "http://h/v1"\n'
REFUSED = {
    "a password in a base URL": '[[upstreams]]\nbase_url = "http://u:<upstream>@h/v1"',
    "a proxy that is none": UPSTREAM + 'proxy = "ftp://u:<upstream>@h"',
    "a notifier's URL": UPSTREAM + '[[notifiers]]\nkind = "slack"\nurl = "ftp://h/<slack>"',
    "half a sink": UPSTREAM + '[[sinks]]\nkind = "langfuse"\nurl = "http://h"\nsecret_key = "<sink>"',
}


@pytest.mark.parametrize("name", REFUSED)
def test_check_says_what_is_wrong_without_the_secret(tmp_path, secrets, name):
    path = toml(tmp_path / "gaugeway.toml", filled(REFUSED[name], secrets))
    answer = CliRunner().invoke(main, ["check", "--config", str(path)])
    assert answer.exit_code in (1, 2), answer.output
    assert not CANARY.search(answer.output + repr(answer.exception))


JUDGE = UPSTREAM + '[judge]\nbase_url = "http://h"\nmodel = "m"\n'
UNFIT = {
    "judge.api_key": JUDGE + 'api_key = "<judge>\\u0007"',
    "upstreams[0].api_key": UPSTREAM + 'api_key = "<upstream>\\n"',
    "upstreams[0].base_url": '[[upstreams]]\nbase_url = "http://h/<upstream>\\r\\nx: y"',
    "judge.small.api_key": JUDGE + '[judge.small]\nbase_url = "http://h"\nmodel = "s"\napi_key = "a\\u0000<judge>"',
    "embeddings.api_key": UPSTREAM
    + '[embeddings]\nbase_url = "http://h"\nmodel = "m"\napi_key = "<embeddings>\\u00e9"',
    "gateway.admin_token": UPSTREAM + '[gateway]\nadmin_token = "<admin>\\t"',
    "monitors.token": UPSTREAM + '[monitors]\ntoken = "<monitors>\\u007f"',
    "notifiers[0].url": UPSTREAM + '[[notifiers]]\nkind = "slack"\nurl = "http://h/<slack>\\n"',
    "notifiers[0].token": UPSTREAM + '[[notifiers]]\nkind = "slack"\ntoken = "<slack>\\n"\nchannel = "c"',
    "sinks[0].secret_key": (
        UPSTREAM + '[[sinks]]\nkind = "langfuse"\nurl = "http://h"\npublic_key = "p"\nsecret_key = "<private>\\n"'
    ),
    "telemetry.otlp_headers.x-key": (
        UPSTREAM + '[telemetry]\notlp_endpoint = "http://h"\notlp_headers = {"x-key" = "<otlp>\\u0085"}'
    ),
}


@pytest.mark.parametrize("key", UNFIT)
@pytest.mark.parametrize("command", ["check", "monitors"])
def test_what_no_header_takes_is_told_by_its_key_and_not_quoted(tmp_path, secrets, key, command):
    path = toml(tmp_path / "gaugeway.toml", filled(UNFIT[key], secrets))
    answer = CliRunner().invoke(main, [command, "--config", str(path)])
    assert answer.exit_code in (1, 2)
    assert isinstance(answer.exception, SystemExit)
    assert f"{key}: has a " in answer.output
    assert not CANARY.search(answer.output)


def test_what_is_no_header_may_have_lines_and_any_letter(tmp_path):
    text = (
        UPSTREAM
        + """name = "M\u00fcller"
[capture]
redact_patterns = {order_key = "(?x)\\n [a-z]+ \\n - [0-9]{9}"}
[store]
url = "sqlite:////tmp/a b/\u00e9.db"
[[notifiers]]
kind = "webhook"
url = "http://127.0.0.1:9"
secret = "any \u00e9"
"""
    )
    loaded = configuration.load(toml(tmp_path / "gaugeway.toml", text))
    assert loaded.capture.redact_patterns == {"order_key": "(?x)\n [a-z]+ \n - [0-9]{9}"}


def test_check_and_the_records_of_a_whole_configuration_tell_no_secret(tmp_path, secrets):
    path = toml(tmp_path / "gaugeway.toml", filled(WHOLE.replace("URL", "http://127.0.0.1:9/v1"), secrets))
    answer = CliRunner().invoke(main, ["check", "--config", str(path)])
    assert answer.exit_code == 0, answer.output
    assert not CANARY.search(answer.output)
    loaded = configuration.load(path)
    assert not CANARY.search(repr(loaded.notifiers) + repr(loaded.sinks))


@pytest.mark.full
def test_a_running_product_tells_no_secret(tmp_path, secrets):
    def answer(request):
        said = f"you sent {request.headers}"  # an upstream that repeats the key in its error
        return Reply(status=401, body=said.encode())

    with (
        LLMServer(answer) as model,
        product(tmp_path, filled(WHOLE.replace("URL", model.url), secrets)) as running,
    ):
        admin = {"authorization": "Bearer canary-admin-4711"}
        entered = {"authorization": "Bearer canary-monitors-4711"}
        asked = {"model": "m", "messages": [{"role": "user", "content": "q"}], "gaugeway": {"contexts": ["c"]}}
        for _ in range(3):
            httpx.post(f"{running.base_url}/chat/completions", json=asked)
        httpx.post(f"http://127.0.0.1:{running.port}/gaugeway/v1/feedback", content=b"{")
        shown = [httpx.get(f"{running.admin}/metrics", headers=admin).text, httpx.get(f"{running.admin}/metrics").text]
        for path in (
            "/api/status",
            "/api/metrics",
            "/api/alerts",
            "/api/exchanges",
            "/metrics",
            "/",
            "/settings",
            "/login",
        ):
            for headers in (entered, {}):
                answered = httpx.get(running.monitors + path, headers=headers)
                shown.append(answered.text + str(answered.headers))
        assert httpx.get(f"{running.monitors}/api/status", headers=entered).status_code == 200
        assert running.stop() == 0
        for text in [*shown, running.log.read_text()]:
            assert not CANARY.search(text), CANARY.search(text)
