"""Serves an ASGI app from a thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from gaugeway.demo.servers import address_of, prepared

_START_S = 10.0


@contextlib.contextmanager
def in_thread(app: Any, port: int = 0) -> Iterator[str]:
    """Serve `app` from a thread; yields its address without a path. `port` 0 takes a free one."""
    server, listener = prepared(app, port)
    thread = threading.Thread(target=server.run, args=([listener],), name="demo-server", daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _START_S
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.005)
        yield address_of(listener)
    finally:
        server.should_exit = True
        thread.join(_START_S)
        listener.close()
