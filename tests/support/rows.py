"""What a store answers from its rows, to compare with what it has added up before."""

from dataclasses import replace

from gaugeway.storage.stores.rollup_windows import HOUR_S, add_outcomes, add_scored, add_summaries


class Rows:
    """Asks a store for half an hour at a time, as sums are kept of whole hours; only rows of [since, until) count."""

    def __init__(self, store, since, until):
        self._store, self._since, self._until = store, since, until

    async def summary(self, query, by=""):
        return add_summaries([one for part in self._halves(query) for one in await self._store.summary(part, by)])

    async def scored(self, query):
        return add_scored([one for part in self._halves(query) for one in await self._store.scored(part)])

    async def spread(self, query, by):
        found = [one for part in self._halves(query) for one in (await self._store.spread(part, by)).parts]
        return [replace(one, since=query.since, until=query.until) for one in found]

    async def outcomes(self, query):
        return add_outcomes([one for part in self._halves(query) for one in await self._store.outcomes(part)])

    def _halves(self, query):
        at, end = max(query.since, self._since), min(query.until, self._until)
        while at < end:
            yield replace(query, since=at, until=min(at + HOUR_S / 2, end))
            at += HOUR_S / 2


def watched(rows):
    """Have all that is asked of rows listed; return both."""
    asked = []

    def watching(read):
        async def reading(query, *others, **named):
            asked.append(query)
            return await read(query, *others, **named)

        return reading

    for name in ("summary", "scored", "spread", "outcomes"):
        setattr(rows, name, watching(getattr(rows, name)))
    return rows, asked
