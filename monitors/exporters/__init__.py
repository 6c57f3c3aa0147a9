"""Exporters: send evaluations to other systems."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from gaugeway.records import Evaluation, Sample
from gaugeway.runtime.otlp_exporters import shut_down


class MinimalExporter(Protocol):
    """What an exporter plug-in must have; `adapted` gives it the rest of `Exporter`.

    The parameters of its constructor are the keys of its table in the configuration. `url`, `metrics`, `content`,
    `timeout_s`, `give_up_s` and `observe`, which counts what became of scores, are given to one that takes them.
    """

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Export the evaluations of `sample` that are new in the store; each is passed once. Must not block."""


class Exporter(ABC):
    """The port to another system. `export` never blocks: what takes time is buffered behind it.

    One with `takes_signals` gets the signals of an exchange among its evaluations, the others do not.
    """

    takes_signals = False

    @property
    def name(self) -> str:
        """What the exporter is called in logs."""
        return type(self).__name__

    @abstractmethod
    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Export the evaluations of `sample` that are new in the store; each is passed once."""

    async def aclose(self) -> None:  # noqa: B027 - a default, not an abstract method
        """Send what is buffered, for a bounded time, and release connections; nothing by default."""


class _PluginExporter(Exporter):
    """A user's exporter behind the whole port."""

    def __init__(self, plugin: MinimalExporter) -> None:
        self._plugin = plugin

    @property
    def name(self) -> str:
        return type(self._plugin).__name__

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        self._plugin.export(sample, evaluations)

    async def aclose(self) -> None:
        await getattr(self._plugin, "aclose", super().aclose)()
        if (shutdown := getattr(self._plugin, "shutdown", None)) is not None:
            await shut_down(shutdown)


def meets(value: float, threshold: float, lower_is_better: bool) -> bool:  # noqa: FBT001 - the pair of a metric
    """Return whether a score meets its metric's threshold; at the threshold it does.

    >>> meets(0.7, 0.7, False), meets(0.4, 0.3, True)
    (True, False)
    """
    return value <= threshold if lower_is_better else value >= threshold


def adapted(exporter: MinimalExporter) -> Exporter:
    """Return an exporter as an `Exporter`; for where exporters come from users, whose classes need only `export`."""
    return exporter if isinstance(exporter, Exporter) else _PluginExporter(exporter)
