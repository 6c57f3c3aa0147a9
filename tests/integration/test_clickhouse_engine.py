"""The product with its store in ClickHouse and its queue, which elects the leader, in PostgreSQL."""

from __future__ import annotations

from tests.integration.test_faults import CONFIG, Traffic, scored, sent
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres
from tests.support.product import product
from tests.support.scripted_model import Model, serve

ENGINES = """
[queue]
url = "{queue}"

[store]
url = "{store}"

[monitors]
join_window_s = 0
"""


def test_every_exchange_is_stored_once_and_the_queue_knows_who_leads(tmp_path):
    store, queue = clickhouse().database(), postgres().database()
    database = store.rpartition("/")[2].partition("?")[0]

    def stored(what):
        return int(clickhouse().ask(f"SELECT count() FROM {what}", database)[0][0])

    with serve(Model()) as upstream:
        config = CONFIG.format(upstream=upstream, judge=upstream) + ENGINES.format(store=store, queue=queue)
        with product(tmp_path, config) as running:
            with Traffic(running.base_url, per_s=20) as traffic:
                running.until(lambda: scored(running) >= 40, 60, what="samples are scored")
            assert traffic.unharmed
            count = len(traffic.statuses)
            running.until(lambda: sent(running, traffic), 60, what="every exchange has its outcome")
            wanted = "evaluations FINAL WHERE metric = 'faithfulness'"
            running.until(lambda: stored(wanted) == count, 60, what=f"{count} evaluations are stored")
            assert stored("samples FINAL") == stored("samples") == count
            assert postgres().ask(queue, "SELECT count(*) FROM terms") == [(1,)]
            running.until(
                lambda: postgres().ask(queue, "SELECT count(*) FROM waiting") == [(0,)], 60, what="nothing waits"
            )
        assert "secret" not in running.log.read_text(), "the password of a URL"
