"""`gaugeway export`: writes captured exchanges with their scores in the format of `gaugeway evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

import msgspec

from monitors.analysis import captured
from monitors.storage.stores import Store


@dataclass(slots=True)
class Exported:
    """The number of exchanges written, and of what is left out.

    `left_out` exchanges hold no answer (errors, tool calls); `conversations` are the records of whole conversations,
    whose exchanges are written one by one.
    """

    written: int = 0
    left_out: int = 0
    conversations: int = 0


async def export(
    store: Store,
    file: IO[str],
    *,
    since: float,
    until: float,
    worst: int | None = None,
    metric: str | None = None,
) -> Exported:
    """Write one JSON object per line, oldest first; with `worst`, only that many exchanges, the worst first.

    `metric` selects the exchanges it was computed for and ranks them; without it each exchange ranks by its worst
    score.
    """
    if worst is not None:
        order = await captured.by_badness(store, since, until, metric)
    else:
        order = await captured.ids(store, since, until, metric=metric)
    exported = Exported()
    for sample_id in order:
        if exported.written == worst:
            break
        found = await store.sample(sample_id)
        if found is None:  # deleted by retention meanwhile
            continue
        sample, evaluations = found
        if sample.transcript:
            exported.conversations += 1
            continue
        if sample.skip_reason is not None:
            exported.left_out += 1
            continue
        record = captured.as_record(sample, {one.metric: one for one in evaluations})
        file.write(msgspec.json.encode(record).decode() + "\n")
        exported.written += 1
    return exported
