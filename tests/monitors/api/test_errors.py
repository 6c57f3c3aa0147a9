"""What the monitors' port says of parameters that are wrong."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import httpx
import pytest
from litestar import Litestar, get
from litestar.exceptions import HTTPException
from litestar.params import FromQuery, QueryParameter

from monitors.api.errors import on_error
from monitors.api.reports import source_handlers
from tests.support.running import serving


@get("/api/things")
async def things(
    *,
    order: Annotated[str, QueryParameter(pattern="^(newest|lowest)$")] = "newest",
    code: Annotated[str, QueryParameter(pattern="^[a-z]{2}$")] = "en",
    kind: FromQuery[Literal["big", "small"]] = "big",
    limit: Annotated[int, QueryParameter(ge=1, le=2000)] = 1,
    since_s: Annotated[float, QueryParameter(gt=0)] = 1.0,
    delta: Annotated[float, QueryParameter(ge=0, lt=1)] = 0.5,
    width: Annotated[float | None, QueryParameter(gt=0, le=0.5)] = None,
    full: FromQuery[bool] = False,
) -> dict[str, Any]:
    return {}


def details(handlers, *requests):
    async def main():
        app = Litestar(handlers, exception_handlers={HTTPException: on_error(None, ())}, logging_config=None)
        async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            answers = [await client.get(path, params=params) for path, params in requests]
            return [(one.status_code, one.json()["detail"]) for one in answers]

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"order": "size"}, "order: expected newest or lowest"),
        ({"limit": "0"}, "limit: expected a whole number from 1 to 2000"),
        ({"limit": "many"}, "limit: expected a whole number from 1 to 2000"),
        ({"limit": "1.5"}, "limit: expected a whole number from 1 to 2000"),
        ({"since_s": "nan"}, "since_s: expected a number above 0"),
        ({"delta": "1"}, "delta: expected a number of at least 0 and below 1"),
        ({"width": "x"}, "width: expected a number above 0 and of at most 0.5"),
        ({"full": "7"}, "full: expected true or false"),
        (
            {"limit": "0", "order": ""},
            "order: expected newest or lowest; limit: expected a whole number from 1 to 2000",
        ),
    ],
)
def test_a_wrong_parameter_is_told_with_all_that_is_expected_of_it(query, detail):
    assert details([things], ("/api/things", query)) == [(400, detail)]


def test_the_orders_of_sources_are_named():
    found = details(source_handlers(None), ("/api/sources", {"app": "shop", "order": "size"}))
    assert found == [(400, "order: expected named, uses, bad, contradicted or unused")]
