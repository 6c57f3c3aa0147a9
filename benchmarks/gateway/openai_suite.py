"""Run the `openai` package's own API tests directly and through Gaugeway: same requests out, same outcomes back.

The tests come with the package's source distribution. They are written for a mock of OpenAI's whole API; here a stub
answers everything alike, so many of them fail, directly as well as through Gaugeway. What counts is that no test can
tell the two apart, and that the upstream receives the same requests: method, target, headers and body.

    python benchmarks/gateway/openai_suite.py [--tests tests/api_resources]
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree as ET

HERE = Path(__file__).parent
SUITE = HERE / ".peers" / "openai-suite"
VERSION = "3.52.0"
NEEDS = ["pytest>=9", "pytest-asyncio>=1.4", "pytest-xdist", "inline-snapshot", "rich", "Pillow", "trio"]
ANSWER = json.dumps(
    {
        "id": "id",
        "object": "list",
        "data": [],
        "has_more": False,
        "deleted": True,
        "status": "completed",
        "created_at": 0,
    }
).encode()
# Not the client's: they belong to the address and to the connection, or name the gateways passed.
NOT_COMPARED = {"host", "connection", "gaugeway-via"}


class Stub(ThreadingHTTPServer):
    """Answers everything alike and remembers what it was asked."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: collections.Counter[str] = collections.Counter()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def taken(self) -> collections.Counter[str]:
        """What was asked since the last call."""
        seen, self.seen = self.seen, collections.Counter()
        return seen


class Handler(BaseHTTPRequestHandler):
    """Any method on any path."""

    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        length = self.headers.get("content-length")
        if length is not None:
            body = self.rfile.read(int(length))
        elif "chunked" in self.headers.get("transfer-encoding", ""):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = b""
        headers = [(k.lower(), v) for k, v in self.headers.items() if k.lower() not in NOT_COMPARED]
        asked = f"{self.command} {self.path} {sorted(headers)!r} {body!r}"
        self.server.seen[re.sub(r"boundary=\"?[\w'()+,./:=?-]+|--[0-9a-f]{32}", "BOUNDARY", asked)] += 1
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(ANSWER)

    do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = do_HEAD = handle_any  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        pass


def install() -> Path:
    """Fetch the source distribution and give it an environment of its own."""
    source = SUITE / f"openai-{VERSION}"
    if not source.exists():
        SUITE.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, f"openai=={VERSION}", "--dest", SUITE], check=True)
        subprocess.run(["tar", "xzf", SUITE / f"openai-{VERSION}.tar.gz", "-C", SUITE], check=True)
    if not (SUITE / "venv").exists():
        venv.create(SUITE / "venv", with_pip=True)
        wanted = [f"openai[aiohttp,realtime]=={VERSION}", *NEEDS]
        subprocess.run([SUITE / "venv/bin/pip", "install", "--quiet", *wanted], check=True)
    return source


@contextlib.contextmanager
def gateway(upstream: str) -> Iterator[str]:
    """Run `gaugeway gateway` in front of `upstream`."""
    with tempfile.TemporaryDirectory() as folder:
        port = 23456
        command = [sys.executable, "-m", "gateway", "--upstream", upstream, "--port", str(port), "--data-dir", folder]
        process = subprocess.Popen([*command, "--admin-port", str(port + 1)], cwd=HERE.parents[1])
        try:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").close()
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait()


def outcomes(source: Path, tests: str, base_url: str) -> dict[str, str]:
    """Run the tests against `base_url`; what came of each."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [SUITE / "venv/bin/python", "-m", "pytest", "-q", "-x", "--maxfail=100000", "-p", "no:cacheprovider"]
        subprocess.run(
            [*command, "--tb=no", "--no-header", f"--junitxml={report.name}", *tests.split()],
            cwd=source,
            env={"TEST_API_BASE_URL": base_url, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
        )
        found = {}
        for case in ET.parse(report.name).iter("testcase"):
            kinds = {child.tag for child in case}
            found[f"{case.get('classname')}::{case.get('name')}"] = next(
                iter(kinds & {"failure", "error", "skipped"}), "passed"
            )
        return found


def main() -> int:
    """Compare; exit 1 when anything differs."""
    options = argparse.ArgumentParser()
    options.add_argument("--tests", default="tests/api_resources")
    chosen = options.parse_args()
    source, stub = install(), Stub()
    direct = outcomes(source, chosen.tests, stub.url)
    asked_directly = stub.taken()
    with gateway(stub.url) as base_url:
        through = outcomes(source, chosen.tests, base_url)
    asked_through = stub.taken()
    differing = [name for name in direct if direct[name] != through.get(name)]
    print(
        f"openai {VERSION}, {chosen.tests}: {len(direct)} tests, {dict(collections.Counter(direct.values()))} directly"
    )
    print(f"through Gaugeway: {dict(collections.Counter(through.values()))}; outcomes that differ: {len(differing)}")
    print(f"requests received by the upstream: {asked_directly.total()} directly, {asked_through.total()} through it")
    missing, extra = asked_directly - asked_through, asked_through - asked_directly
    print(f"requests that differ in method, target, headers or body: {missing.total() + extra.total()}")
    for title, these in (("only directly", missing), ("only through Gaugeway", extra)):
        for asked in list(these)[:5]:
            print(f"  {title}: {asked[:600]}")
    for name in differing[:10]:
        print(f"  {name}: {direct[name]} directly, {through.get(name)} through Gaugeway")
    return int(bool(differing or missing or extra))


if __name__ == "__main__":
    sys.exit(main())
