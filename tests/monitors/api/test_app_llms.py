"""`/llms.txt` of a running product, for agents that know only its address."""

import re

from tests.support.pages import world

TOKEN = "of-the-page-4711-4711-4711"


async def test_an_agent_that_knows_the_address_learns_the_routes_and_the_words(tmp_path):
    async with world(tmp_path) as w:
        answer = await w.client.get("/llms.txt", headers={"accept": "text/html"})
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
        assert answer.text.startswith("# Gaugeway\n\n> ")
        for link in re.findall(r"\]\((/[^)]+)\)", answer.text):
            assert (await w.client.get(link)).status_code == 200
        assert "never 0" in answer.text


async def test_it_needs_the_token_like_everything_else(tmp_path):
    async with world(tmp_path, token=TOKEN) as w:
        assert (await w.client.get("/llms.txt")).status_code == 401
        assert (await w.client.get("/llms.txt", headers={"authorization": f"Bearer {TOKEN}"})).status_code == 200
