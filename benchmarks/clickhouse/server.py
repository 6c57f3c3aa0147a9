"""ClickHouse's HTTP interface over chdb, the same engine as a library: as much of it as clickhouse-connect uses.

PEERS_PYTHON benchmarks/clickhouse/server.py PORT DIRECTORY

Runs in the environment of chdb, so it uses nothing of ours. A request is a statement in the body, in the parameter
`query`, or in a form; other parameters are settings, `param_*` what stands in it.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import chdb
from lz4 import frame

# What the HTTP interface takes for itself.
OURS = {
    "query", "database", "session_id", "query_id", "quota_key", "compress", "decompress", "wait_end_of_query",
    "client_protocol_version", "role", "send_progress_in_http_headers", "http_headers_progress_interval_ms",
    "enable_http_compression", "user", "password", "default_format", "buffer_size",
    "cancel_http_readonly_queries_on_client_close",
}  # fmt: skip
MOST_BYTES = 2**17  # as a server takes for one parameter
INSERT = re.compile(rb"INSERT INTO .*? FORMAT Native\n", re.DOTALL | re.IGNORECASE)
FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
CODE = re.compile(r"Code: (\d+)")
NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Engine:
    """The engine of this process; a connection to it for each thread, with its database and settings."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._first = chdb.connect(directory)  # the engine lives as long as one connection does
        self._local = threading.local()

    def run(self, text: str, fields: dict[str, str], body: bytes = b"") -> bytes:
        """Run a statement; `body` is what it inserts."""
        connection = self._connection(fields)
        bound = {name.removeprefix("param_"): one for name, one in fields.items() if name.startswith("param_")}
        if body:
            with tempfile.NamedTemporaryFile(suffix=".native") as file:
                file.write(body)
                file.flush()
                into = FORMAT.sub("", text)
                return (
                    connection.query(f"{into} FROM INFILE '{file.name}' FORMAT Native", "TabSeparated").bytes() or b""
                )
        named = FORMAT.search(text)
        found = connection.query(text, named[1] if named else "TabSeparated", params=bound)
        return found.bytes() or b""

    def _connection(self, fields: dict[str, str]) -> chdb.Connection:
        local = self._local
        if not hasattr(local, "connection"):
            local.connection, local.said = chdb.connect(self._directory), {}
        wanted = {name: one for name, one in fields.items() if name not in OURS and not name.startswith("param_")}
        database = fields.get("database", "default")
        if local.said.get("") != database:
            local.connection.query(f"USE `{database}`", "TabSeparated")
        for name in local.said.keys() - wanted.keys() - {""}:
            local.connection.query(f"SET {name} = DEFAULT", "TabSeparated")
        for name, value in wanted.items():
            if local.said.get(name) != value and NAMED.fullmatch(name):
                quoted = value.replace("\\", "\\\\").replace("'", "\\'")
                local.connection.query(f"SET {name} = '{quoted}'", "TabSeparated")
        local.said = wanted | {"": database}
        return local.connection


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    engine: Engine

    def do_GET(self) -> None:
        """The statement is in the URL; without one it is a question whether the server is there."""
        fields = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        if "query" in fields:
            self._run(fields["query"], fields)
        else:
            self._answer(200, b"Ok.\n")

    def do_POST(self) -> None:
        """The statement is in the body, in a form, or in the URL with its data in the body."""
        fields = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = self._body()
        if self.headers.get("Content-Encoding") == "lz4":
            body = frame.decompress(body)
        kind = self.headers.get("Content-Type", "")
        if kind.startswith("multipart/form-data"):
            fields |= _form(kind, body)
            body = b""
        if any(len(one.encode()) > MOST_BYTES for name, one in fields.items() if name.startswith("param_")):
            self._answer(400, b"Field value too long")
            return
        if (into := INSERT.match(body)) is not None:
            self._run(into[0].decode(), fields, body[into.end() :])
        elif "query" in fields:
            self._run(fields["query"], fields, body)
        else:
            self._run(body.decode(), fields)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        whole = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(whole)

    def _run(self, text: str, fields: dict[str, str], body: bytes = b"") -> None:
        try:
            found = self.engine.run(text, fields, body)
        except Exception as error:  # noqa: BLE001 - whatever the engine says, the client is told
            said = str(error)
            code = CODE.search(said)
            self._answer(500, said.encode(), {"X-ClickHouse-Exception-Code": code[1] if code else "1002"})
        else:
            self._answer(200, found, {"X-ClickHouse-Format": "Native"} if found else {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _form(kind: str, body: bytes) -> dict[str, str]:
    message = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
    return {
        str(part.get_param("name", header="content-disposition")): (part.get_payload(decode=True) or b"").decode()
        for part in message.get_payload()
    }


def main(port: int, directory: str) -> None:
    """Serve until the process ends."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    Handler.engine = Engine(directory)
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
