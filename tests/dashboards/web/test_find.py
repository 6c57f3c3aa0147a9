"""The search box: ids lead to their exchange, everything else to Explore."""

from __future__ import annotations

import time

import pytest

from gaugeway.records import Message, Sample
from tests.support.pages import world

TRACE = "0af7651916cd43dd8448eb211c80319c"


async def led(w, text):
    answer = await w.client.get("/find", params={"q": text}, headers={"accept": "text/html"}, follow_redirects=False)
    assert answer.status_code in (302, 303)
    return answer.headers["location"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (TRACE, "trace_id"),
        ("my-key-1", "context_key"),
        ("session-77", "session"),
        ("chatcmpl-abc", "response_id"),
        ("conv-1", "conversation"),
    ],
)
async def test_an_id_leads_to_its_exchange(tmp_path, text, field):
    async with world(tmp_path) as w:
        for index in range(30):
            await w.add(0.5, id=f"other-{index}", at=time.time() - 60.0 * index)
        await w.add(0.5, id="old", at=time.time() - 5 * 86_400.0, **{field: text})
        first = await led(w, text)
        await w.add(0.5, id="new", at=time.time() - 3600.0, **{field: text})
        assert (first, await led(w, f"  {text} ")) == ("/exchanges/old", "/exchanges/new")


async def test_the_id_of_an_exchange_comes_first_and_is_quoted(tmp_path):
    async with world(tmp_path) as w:
        await w.add(0.5, id="a/b?c")
        await w.store.add(
            Sample(id="conversation-1", started_at=time.time(), transcript=(Message(role="user", text="Hello"),)), []
        )
        assert (await led(w, "a/b?c"), await led(w, "conversation-1")) == (
            "/exchanges/a%2Fb%3Fc",
            "/conversations/conversation-1",
        )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("return policy", "/explore?text=return+policy"),
        ("nothing-has-this-id", "/explore?text=nothing-has-this-id"),
        ("x\"'<&\x00", "/explore?text=x%22%27%3C%26%00"),
        ("", "/explore"),
        ("y" * 400, f"/explore?text={'y' * 300}"),
    ],
)
async def test_other_text_is_searched_for(tmp_path, text, address):
    async with world(tmp_path) as w:
        await w.add(0.5)
        assert (await led(w, text)) == address


async def test_part_of_an_id_or_a_quoted_one_is_no_id(tmp_path):
    async with world(tmp_path) as w:
        await w.add(0.5, session="session-77", question='"session":"session-7" and "response_id":"r1"')
        assert all(
            one.startswith("/explore?text=") for one in [await led(w, text) for text in ("session-7", "r1", "sess")]
        )
