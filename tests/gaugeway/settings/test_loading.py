"""OpenTelemetry's environment variables, where the configuration is silent."""

import subprocess
import sys
import time

import httpx
import pytest

from gateway import config as gateway_config
from gaugeway.demo.servers import free_ports
from gaugeway.settings import child_environment, loading
from gaugeway.settings import loading as monitors_config
from gaugeway.settings.loading import otlp_endpoint
from tests.support.scripted_model import Model, serve

UPSTREAM = '[[upstreams]]\nbase_url = "http://127.0.0.1:9/v1"\n'
ENDPOINT, PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"


@pytest.fixture
def set_variables(monkeypatch):
    for name in (ENDPOINT, PROTOCOL, "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    return lambda **given: [monkeypatch.setenv(name, value) for name, value in given.items()]


@pytest.mark.parametrize("load", [gateway_config.load, monitors_config.load])
def test_the_endpoint_of_the_environment_is_used_unless_the_file_names_one(tmp_path, set_variables, load):
    path = tmp_path / "gaugeway.toml"
    path.write_text(UPSTREAM)
    assert load(path).telemetry.otlp_endpoint is None
    set_variables(OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318")
    assert load(path).telemetry.otlp_endpoint == "http://collector:4318"
    path.write_text(UPSTREAM + '[telemetry]\notlp_endpoint = "http://mine:4318"\ncontent = true\n')
    assert load(path).telemetry.otlp_endpoint == "http://mine:4318"


def test_other_keys_of_the_table_stay(tmp_path, set_variables):
    path = tmp_path / "gaugeway.toml"
    path.write_text(UPSTREAM + "[telemetry]\ncontent = true\n")
    set_variables(OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318")
    found = gateway_config.load(path).telemetry
    assert (found.otlp_endpoint, found.content) == ("http://collector:4318", True)


@pytest.mark.parametrize(
    ("variables", "warning"),
    [
        ({ENDPOINT: "http://c:4318", PROTOCOL: "http/protobuf"}, None),
        ({ENDPOINT: "http://c:4317", PROTOCOL: "grpc"}, f"{PROTOCOL} is not http/protobuf"),
        ({ENDPOINT: "http://c:4318", PROTOCOL: "http/json"}, f"{PROTOCOL} is not http/protobuf"),
        ({ENDPOINT: "c:4318"}, "expected an http(s) URL such as http://127.0.0.1:4318"),
        ({ENDPOINT: "http://300.1.1.1"}, "its host looks like an IP address and is none"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_a_warning_and_no_error(set_variables, variables, warning):
    """A platform may set the variables for every container: that must not keep the gateway from starting."""
    set_variables(**variables)
    config, problems = gateway_config.examine(None, upstream="http://127.0.0.1:9/v1")
    assert not problems.lines
    assert problems.warnings == ([f"{ENDPOINT} is not used: {warning}"] if warning else [])
    assert config.telemetry.otlp_endpoint == (None if warning else variables[ENDPOINT])


def test_a_missing_extra_is_named(set_variables, monkeypatch):
    monkeypatch.setattr(loading, "_EXPORTER", "no_such_package")
    set_variables(OTEL_EXPORTER_OTLP_ENDPOINT="http://c:4318")
    assert "pip install 'gaugeway[otlp]'" in otlp_endpoint().warning


@pytest.mark.parametrize("variables", [{}, {ENDPOINT: " "}, {ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}])
def test_nothing_is_exported_without_an_endpoint_or_with_the_sdk_disabled(set_variables, variables):
    set_variables(**variables)
    assert otlp_endpoint() == (None, None)


@pytest.mark.full
@pytest.mark.parametrize(
    "variable",
    ["OTEL_BSP_MAX_QUEUE_SIZE=100", "OTEL_BSP_SCHEDULE_DELAY=-1", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=abc"],
)
def test_traffic_does_not_depend_on_what_the_sdk_accepts(tmp_path, variable):
    """The SDK reads its variables when it is imported, too: in a process of its own."""
    name, _, value = variable.partition("=")
    (port,) = free_ports(1)
    with serve(Model()) as url, (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "gateway", "--upstream", url, "--port", str(port), "--admin-port", "0"]
        process = subprocess.Popen(
            [*command, "--data-dir", str(tmp_path / "data")],
            env=child_environment({name: value, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}),
            stdout=log,
            stderr=log,
        )
        try:
            deadline = time.monotonic() + 60
            while not answered(port):
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            process.terminate()
            process.wait(30)
    said = (tmp_path / "log").read_text()
    assert said.count("nothing is exported over OpenTelemetry: the SDK does not accept an OTEL_* variable") == 1
    assert "Traceback" not in said


@pytest.mark.full
def test_what_the_sdk_ignores_is_warned_of_once_and_counted_by_check(tmp_path):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    path = tmp_path / "gaugeway.toml"
    path.write_text(UPSTREAM + '[telemetry]\notlp_endpoint = "http://127.0.0.1:9"\n')
    found = subprocess.run(
        [sys.executable, "-m", "gaugeway", "check", "--config", str(path), "--data-dir", str(tmp_path)],
        env=child_environment({"OTEL_EXPORTER_OTLP_HEADERS": "x-key=a,torn s3cr3t"}),
        capture_output=True,
        text=True,
        check=False,
    )
    said = found.stdout + found.stderr
    assert said.count("OTEL_EXPORTER_OTLP_HEADERS") == 1
    assert "gaugeway: warning: OTEL_EXPORTER_OTLP_HEADERS: ignoring" in said
    assert "ok, 1 warning" in said
    assert "s3cr3t" not in said


def answered(port):
    body = {"model": "handbook-1", "messages": [{"role": "user", "content": "hi"}]}
    try:
        return httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body).status_code == 200
    except httpx.TransportError:
        return False


def test_trials_keep_the_names_of_their_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("CANDIDATE_KEY", "sk-candidate-4711")
    file = tmp_path / "gaugeway.toml"
    file.write_text('[[trials]]\nname = "t"\narms = [{ api_key = "${CANDIDATE_KEY}" }]\n', "utf-8")
    (trial,) = loading.load(file).trials
    assert trial["arms"] == [{"api_key": "${CANDIDATE_KEY}"}], "else the key itself would be stored"
