"""A snapshot of the accepted configuration, separate from the file, which may be edited at any time."""

from __future__ import annotations

import os
from pathlib import Path

from gaugeway import settings


class Snapshot:
    """A copy of a configuration file in memory, which child processes read under `path` if they inherit `descriptor`.

    It includes the values of `${NAME}` and `${file:/path}`, so that a process that is restarted gets what was accepted,
    even if the file or its secrets have changed since. Only this process's children inherit the descriptor, and the
    text is in no file system. Without in-memory files (on any system but Linux) `path` is the file's own.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.path = file
        self.descriptor: int | None = None
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("gaugeway.toml")
            self.path = Path(f"/proc/self/fd/{self.descriptor}")

    @property
    def inherited(self) -> tuple[int, ...]:
        """What a child process must inherit."""
        return () if self.descriptor is None else (self.descriptor,)

    def take(self) -> None:
        """Copy the file and its placeholders' values. Raises OSError and ConfigError, and then keeps the old copy."""
        if self.descriptor is not None:
            self._write(settings.resolve(self.file))

    def replace(self, other: Snapshot) -> None:
        """Copy another snapshot."""
        if self.descriptor is not None:
            self._write(other.path.read_bytes())

    def close(self) -> None:
        """Free the memory."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def _write(self, text: bytes) -> None:
        assert self.descriptor is not None  # noqa: S101 - for the type checker
        os.posix_fallocate(self.descriptor, 0, max(1, len(text)))  # without memory it fails before anything is lost
        os.pwrite(self.descriptor, text, 0)
        os.ftruncate(self.descriptor, len(text))
