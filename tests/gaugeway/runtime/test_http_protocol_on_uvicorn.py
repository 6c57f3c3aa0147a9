"""What `ServerProtocol` relies on inside uvicorn. A failure here means: uvicorn changed, adapt it."""

import asyncio
import inspect
import re

import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from gaugeway.runtime.http_protocol import ServerProtocol


def test_the_server_makes_a_protocol_and_shuts_it_down_as_expected():
    server = inspect.getsource(uvicorn.Server)
    made = set(re.findall(r"(\w+)=", server[server.index("http_protocol_class(") :].split(")")[0]))
    assert made == {"config", "server_state", "app_state", "_loop"}
    assert made == inspect.signature(ServerProtocol).parameters.keys()
    assert set(re.findall(r"\bconnection\.(\w+)", server)) == {"shutdown"}
    assert set(re.findall(r"\bt\.(\w+)", server)) == {"cancel"}
    assert isinstance(ServerState().tasks, set)
    assert isinstance(ServerState().connections, set)


def test_a_websocket_is_handed_over_as_expected():
    names = list(inspect.signature(WebSocketsSansIOProtocol).parameters)
    assert names[:3] == ["config", "server_state", "app_state"]


def test_flow_control_and_status_lines_are_there():
    assert {"read_paused", "write_paused"} <= vars(FlowControl(asyncio.Transport())).keys()
    assert callable(FlowControl.resume_reading)
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert HIGH_WATER_LIMIT == 64 * 1024
