"""Log lines of the commands."""

from __future__ import annotations

import logging


def configure_logs(log_format: str) -> None:
    """Write log lines to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler()
    if log_format == "json":
        from pythonjsonlogger.json import JsonFormatter  # noqa: PLC0415 - only when asked for

        names = {"asctime": "time", "levelname": "level", "name": "logger"}
        handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for chatty in ("httpx", "httpx2", "httpcore", "openai", "aiosqlite", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # It would call every response that the upstream cut an error of ours; those are counted.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
