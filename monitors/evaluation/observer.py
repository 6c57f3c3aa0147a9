"""The port through which the worker's events are counted."""

from __future__ import annotations

from collections.abc import Sequence

from gaugeway.records import Evaluation, Sample


class WorkerObserver:
    """Receives the worker's events; each method does nothing unless a subclass overrides it."""

    def failed(self, operation: str) -> None:
        """An operation of the queue, the store or an exporter failed, perhaps to be retried."""

    def stored(self, sample: Sample, before: Sample | None) -> None:
        """A sample was stored; `before` is what was stored until supplements completed it, None the first time."""

    def scored(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """These evaluations are new in the store."""

    def supplement(self, source: str, result: str) -> None:
        """A supplement from the channel `source` was handled.

        `result` is "joined", "waiting" (its exchange has not arrived yet), "expired" (an exchange waited for it in
        vain) or "cut" (to `runtime.bounds`, counted besides one of the others).
        """

    def linked(self, result: str, count: int) -> None:
        """`count` samples were looked for in conversations; `result` is one of `storage.conversations.Result`."""

    def expired(self) -> None:
        """A sample was too old to be judged: its judged metrics were skipped."""
