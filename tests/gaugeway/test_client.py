"""`Client` and `AsyncClient` against the monitors' API on a real port; their types against the OpenAPI document."""

import asyncio
import inspect
import logging
import math
import subprocess
import sys
import time

import pytest

import gaugeway
from gaugeway import ApiError, AsyncClient, Client, client
from tests.support.incidents import incident
from tests.support.pages import world
from tests.support.running import tcp_server
from tools.client_types import STUB, openapi, stub

TOKEN = "of-the-page-4711-4711-4711-4711"
NOBODY = "http://127.0.0.1:1"


async def ask(w, do, **settings):
    """What a synchronous client gets, in a thread of its own."""

    def work():
        with Client(f"http://127.0.0.1:{w.port}", **settings) as opened:
            return do(opened)

    return await asyncio.to_thread(work)


def test_the_types_are_those_of_the_document():
    assert STUB.read_text("utf-8") == stub(), "run: python tools/client_types.py"


def test_every_parameter_of_the_document_is_a_parameter_of_the_method():
    document = openapi()
    for name, method in inspect.getmembers(client.Operations, lambda member: hasattr(member, "operation")):
        word, _, path = method.operation.partition(" ")
        operation = document["paths"][path][word]
        known = {parameter["name"] for parameter in operation.get("parameters", ())}
        assert known <= {*inspect.signature(method).parameters}, name


def test_both_clients_have_the_methods_of_the_stub():
    named = {name for name in dir(gaugeway.Client) if not name.startswith("_")} - {"close"}
    assert named == {name for name in dir(gaugeway.AsyncClient) if not name.startswith("_")} - {"aclose"}
    text = STUB.read_text("utf-8")
    assert [name for name in named - {"url"} if f"def {name}(" not in text] == []


async def test_an_incident_is_read_acknowledged_labelled_and_kept(tmp_path):
    async with world(tmp_path) as w:
        fired = await incident(w)

        def work(api):
            (alert,) = api.alerts()
            assert alert["fingerprint"] == fired.fingerprint
            whole = api.alert(alert["fingerprint"])
            assert whole["worst"][0]["faults"]
            assert api.acknowledge(alert["fingerprint"], by="ana", comment="reading")["by"] == "ana"
            assert api.unacknowledge(alert["fingerprint"]) is None
            worst = whole["worst"][0]["id"]
            assert api.label(worst, metric="faithfulness", label="fail", by="ana")["label"] == "fail"
            added = api.add_to_dataset("from-incident", alert=alert["fingerprint"], by="ana")
            assert api.dataset("from-incident")["rows"] == added["dataset"]["rows"] > 0
            assert api.compare(by="tag:release", a="41", b="42", app="shop")["rows"][0]["difference"] < 0
            assert api.exchange(worst)["sample"]["question"].startswith("How do I get")
            return (
                api.metrics(),
                api.series(app="shop", metric="faithfulness"),
                api.request("get", "/api/topics", app="shop"),
            )

        metrics, series, topics = await ask(w, work)
        assert {row["metric"] for row in metrics} == {"faithfulness"}
        assert series["groups"][0]["points"]
        assert topics["app"] == "shop"


async def test_results_become_data_frames(tmp_path):
    async with world(tmp_path) as w:
        await incident(w)
        metrics, points, series, sources = await ask(
            w,
            lambda api: (
                api.metrics().to_pandas(),
                api.exchanges(limit=7).to_pandas(),
                api.series(app="shop", metric="faithfulness").to_pandas(),
                api.sources(app="shop").to_pandas(),
            ),
        )
        assert list(metrics["metric"]) == ["faithfulness"]
        assert {"mean", "ci_low", "ci_high", "n"} <= {*metrics.columns}
        assert (len(points), str(points["started_at"].dt.tz)) == (7, "UTC")
        assert {"tags.release", "value"} <= {*points.columns}
        assert {"at", "n", "mean", "slice"} <= {*series.columns}
        assert {"faq.md", "handbook.md"} == {*sources["name"]}


async def test_unix_times_of_versions_and_silences_become_utc(tmp_path):
    def work(api):
        api.silence(matchers=[{"name": "app", "value": "another"}], by="ana", duration_s=60)
        return api.versions().to_pandas(), api.silences().to_pandas(), api.sources(app="shop").to_pandas()

    async with world(tmp_path) as w:
        await incident(w)
        versions, silences, sources = await ask(w, work)
    times = (versions["first_seen"], silences["starts"], silences["ends"], sources["first_used"], sources["last_used"])
    assert {str(column.dtype).partition(", ")[2] for column in times} == {"UTC]"}


async def test_a_name_with_an_escape_sequence_is_refused(tmp_path):
    async with world(tmp_path) as w:
        fired = await incident(w)
        with pytest.raises(ApiError) as raised:
            await ask(w, lambda api: api.acknowledge(fired.fingerprint, by="me\x1b[31m"))
        assert (raised.value.status, raised.value.field) == (400, "by")


async def test_without_pandas_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    async with world(tmp_path) as w:
        with pytest.raises(ImportError, match="pip install pandas"):
            await ask(w, lambda api: api.alerts().to_pandas())


async def test_an_asynchronous_client_has_the_same_methods(tmp_path):
    async with world(tmp_path) as w:
        fired = await incident(w)
        async with AsyncClient(f"http://127.0.0.1:{w.port}") as api:
            (alert,), status = await asyncio.gather(api.alerts(), api.status())
            assert alert["fingerprint"] == fired.fingerprint
            assert {rule["rule"] for rule in status["rules"]} >= {"answers"}
            given = [point["sample_id"] async for point in api.each_exchange(since_s=1e6)]
            assert len(given) == len({*given}) == 320


@pytest.mark.parametrize("limit", [None, 5, 0])
@pytest.mark.parametrize("moments", [1, 4, 11])
async def test_pages_give_every_evaluation_once_whatever_started_together(tmp_path, monkeypatch, moments, limit):
    monkeypatch.setattr(client, "PAGE", 3)
    async with world(tmp_path) as w:
        now = time.time() - 600
        for index in range(11):
            await w.add(0.9, at=now + index % moments, id=f"x{index:02}")
        given = await ask(w, lambda api: [point["sample_id"] for point in api.each_exchange(limit=limit)])
        assert len(given) == len({*given})
        # More evaluations of one moment than a page holds cannot be told apart by time: those of a page are given.
        assert len(given) == min(math.inf if limit is None else limit, {1: 3, 4: 11, 11: 11}[moments])


@pytest.mark.parametrize(
    ("do", "status", "code", "field"),
    [
        (lambda api: api.exchange("unknown"), 404, "not_found", None),
        (lambda api: api.exchanges(limit=0), 400, "bad_request", "limit"),
        (lambda api: api.exchanges(since_s=math.nan), 400, "bad_request", "since_s"),
        (lambda api: api.acknowledge("x", by=""), 400, "bad_request", "by"),
        (lambda api: api.exchange("../status"), 404, "not_found", None),
        (lambda api: api.exchange(".."), None, "invalid_value", "exchange_id"),
        (lambda api: api.exchange("\ud800"), None, "invalid_value", None),
        (lambda api: api.exchanges(app="\ud800"), None, "invalid_value", None),
        (lambda api: api.add_to_dataset("d", below=math.nan), None, "invalid_value", None),
        (lambda api: api.add_to_dataset("d", exchanges=[object()]), None, "invalid_value", None),
        (lambda api: api.request("get", "/nowhere"), 404, "not_found", None),
    ],
)
async def test_an_error_names_its_status_code_and_field(tmp_path, do, status, code, field):
    async with world(tmp_path) as w:
        with pytest.raises(ApiError) as raised:
            await ask(w, do)
        assert (raised.value.status, raised.value.code, raised.value.field) == (status, code, field)


async def test_the_token_is_an_argument_or_a_variable_and_stands_nowhere(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    async with world(tmp_path, token=TOKEN) as w:
        with pytest.raises(ApiError) as raised:
            await ask(w, lambda api: api.alerts())
        assert (raised.value.status, raised.value.code) == (401, "unauthorized")
        assert await ask(w, lambda api: api.alerts(), token=TOKEN) == []
        monkeypatch.setenv("GAUGEWAY_MONITORS_TOKEN", TOKEN)
        shown = await ask(w, lambda api: (api.alerts(), repr(api), str(api)))
        assert shown[0] == []
        assert TOKEN not in caplog.text + repr(shown) + repr(raised.value)


@pytest.mark.parametrize("url", ["127.0.0.1:9465", "ftp://x", "http://", "http://user:secret@127.0.0.1"])
def test_an_address_that_cannot_be_is_refused(url):
    with pytest.raises(ValueError, match="url:") as raised:
        Client(url)
    assert "secret" not in str(raised.value)


def test_a_token_that_no_header_may_have_is_refused_without_being_shown():
    with pytest.raises(ValueError, match="token:") as raised:
        Client(NOBODY, token="secret\r\nx: y")
    assert "secret" not in str(raised.value)


def of_nobody():
    with Client(NOBODY) as api:
        return api.alerts()


async def test_a_server_that_is_not_there_or_another_one_is_named():
    with pytest.raises(ApiError) as raised:
        await asyncio.to_thread(of_nobody)
    assert (raised.value.code, raised.value.status) == ("unreachable", None)

    async def other(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with tcp_server(other) as port, AsyncClient(f"http://127.0.0.1:{port}", token=TOKEN) as api:
        with pytest.raises(ApiError) as raised:
            await api.alerts()
        assert (raised.value.code, raised.value.status) == ("not_gaugeway", 302)


async def test_a_server_that_is_silent_is_given_up():
    gone = asyncio.Event()

    async def silent(reader, writer):
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    async with tcp_server(silent) as port:
        async with AsyncClient(f"http://127.0.0.1:{port}", timeout_s=0.2) as api:
            with pytest.raises(ApiError) as raised:
                await api.alerts()
        await gone.wait()
    assert raised.value.code == "timeout"


def test_the_import_of_the_package_loads_no_client():
    script = "import gaugeway, sys; print(*{'gaugeway.client', 'httpx', 'inspect', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
