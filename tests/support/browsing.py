"""Visits the page in a real Chromium, beside the server."""

from __future__ import annotations

import asyncio

from benchmarks.page.browser import chromium
from tests.support.clock import Patience
from tests.support.pages import world
from tests.support.product import needs


def browse(path, prepare, visit, **options):
    """Prepare the world, then visit it in a browser; `visit` runs beside the server, in a thread."""
    needs("chromium")

    async def main():
        async with world(path, **options) as w:
            found = await prepare(w)
            loop = asyncio.get_running_loop()

            def soon(step):
                return asyncio.run_coroutine_threadsafe(step, loop).result(30)

            def run():
                with chromium(path) as tab:
                    tab.look(1080, "light")
                    return visit(tab, f"http://127.0.0.1:{w.port}", found, soon, w)

            return await asyncio.to_thread(run)

    return asyncio.run(main())


def until(tab, expression, within_s=60.0):
    patience = Patience(within_s)
    while not tab.run(f"document.readyState === 'complete' && ({expression})"):
        assert not patience.is_over(), tab.run("document.body.innerText")
        tab.run("new Promise(done => setTimeout(done, 100))")
