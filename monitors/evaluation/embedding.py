"""The embeddings that the configuration names."""

from __future__ import annotations

import msgspec

from monitors.config import Shared
from monitors.exporters.instruments import Instruments
from monitors.metrics.embeddings import Embeddings
from monitors.metrics.embeddings import opening as embeddings_opening
from monitors.runtime.settings import ConfigError


def open_embeddings(config: Shared, instruments: Instruments) -> Embeddings | None:
    """Build the embeddings of the configuration, if it names any. Raises ConfigError."""
    try:
        return embeddings_opening.open_embeddings(**msgspec.structs.asdict(config.embeddings), observer=instruments)
    except ValueError as error:
        raise ConfigError([str(error)]) from error
