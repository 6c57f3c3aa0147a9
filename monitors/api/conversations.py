"""`/api/conversations` on the admin port."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

from litestar import get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery, QueryParameter

from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Query, Store
from monitors.analysis.conversation_list import MAX_POINTS, ConversationTurn, Thread, read_threads, read_turns
from monitors.analysis.human_labels import Passings, default_passing

DAY_S = 86_400.0


def conversation_handlers(store: Store, passing: Passings = default_passing) -> list[Any]:
    """The handlers; the admin app guards them."""

    @get("/api/conversations")
    async def conversations(
        app: FromQuery[str | None] = None,
        since_s: Annotated[float, QueryParameter(gt=0, description="how far back, seconds")] = DAY_S,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_POINTS)] = 100,
    ) -> Sequence[Thread]:
        now = time.time()
        span: dict[str, Any] = {"since": now - since_s, "until": now + DAY_S, "app": app}
        query = Query(**span, without=tuple(SIGNALS), order="newest", limit=MAX_POINTS)
        return (await read_threads(store, query, passing))[:limit]

    @get("/api/conversations/{conversation_id:str}")
    async def conversation(
        conversation_id: FromPath[str], app: FromQuery[str | None] = None
    ) -> Sequence[ConversationTurn]:
        if not (turns := await read_turns(store, conversation_id, app)):
            raise NotFoundException(f"no conversation has the id {conversation_id}")
        return turns

    return [conversations, conversation]
