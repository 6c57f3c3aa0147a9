"""What the fast path and `ServerProtocol` rely on inside uvicorn. A failure here means: uvicorn changed, adapt them."""

import asyncio
import inspect
import re

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gateway.proxy.fast_path import FastPathExchange

CYCLE_ARGUMENTS = """scope transport flow logger access_logger access_log default_headers message_event
expect_100_continue keep_alive on_response"""
OVERRIDDEN = """connection_made data_received connection_lost pause_writing resume_writing on_message_begin
on_headers_complete on_message_complete handle_websocket_upgrade send_400_response _start_asgi_task"""
USED = """app access_log access_logger config connections cycle expect_100_continue flow headers logger loop parser
pipeline scope server_state tasks transport url"""
METHODS = "on_response_complete shutdown"


@pytest.fixture
def protocol():
    async def make():
        config = uvicorn.Config(lambda: None, lifespan="off", log_config=None)
        config.load()
        made = HttpToolsProtocol(config, ServerState(), {})
        transport = asyncio.Transport({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        made.connection_made(transport)
        made.on_message_begin()
        return made

    return asyncio.run(make())


def test_the_request_cycle_takes_the_same_arguments():
    assert list(inspect.signature(RequestResponseCycle).parameters) == CYCLE_ARGUMENTS.split()
    assert inspect.iscoroutinefunction(RequestResponseCycle.run_asgi)


def test_the_protocol_has_the_attributes_and_methods_that_are_used(protocol):
    assert [name for name in USED.split() if not hasattr(protocol, name)] == []
    missing = [name for name in (OVERRIDDEN + " " + METHODS).split() if not callable(getattr(protocol, name, None))]
    assert missing == []
    assert isinstance(protocol.tasks, set)
    assert isinstance(protocol.server_state.default_headers, list)


def test_the_protocol_uses_nothing_of_a_cycle_that_an_exchange_of_the_fast_path_lacks():
    used = set(re.findall(r"\bself\.cycle\.(\w+)", inspect.getsource(HttpToolsProtocol)))
    assert used == {"body", "disconnected", "keep_alive", "message_event", "more_body", "response_complete"}
    source = inspect.getsource(FastPathExchange)
    assert [name for name in used if f"self.{name} = " not in source and not hasattr(FastPathExchange, name)] == []


def test_between_two_packets_a_parser_only_takes_bytes():
    outside = inspect.getsource(HttpToolsProtocol.data_received) + inspect.getsource(HttpToolsProtocol.eof_received)
    assert set(re.findall(r"\bself\.parser\.(\w+)", outside)) == {"feed_data"}
    assert list(inspect.signature(HttpToolsProtocol._start_asgi_task).parameters) == ["self", "cycle", "app"]
    assert "self.pipeline.appendleft((self.cycle, app))" in inspect.getsource(HttpToolsProtocol.on_headers_complete)


def test_a_task_of_the_server_is_only_cancelled_or_waited_for():
    server = inspect.getsource(uvicorn.Server)
    assert set(re.findall(r"\bt\.(\w+)", server)) == {"cancel"}
    assert "for t in self.server_state.tasks:" in server
    assert FastPathExchange.cancel


def test_flow_control_and_status_lines_are_there():
    assert {"read_paused", "write_paused"} <= vars(FlowControl(asyncio.Transport())).keys()
    assert callable(FlowControl.resume_reading)
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert httptools_impl.HIGH_WATER_LIMIT == 64 * 1024
