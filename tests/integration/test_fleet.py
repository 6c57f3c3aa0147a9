"""Two gateways and three monitors on one PostgreSQL do what one of each does on SQLite, with the same traffic."""

from __future__ import annotations

import asyncio
import contextlib
import math

from tests.support.fleet import ALERTS, CONFIG, Drop, Fleet, Leaders, evaluated, told, wait_closed
from tests.support.in_thread import in_thread
from tests.support.postgres import postgres
from tests.support.product import Webhook
from tests.support.scenario import Script
from tests.support.traffic import Sent, request_of, send

RATES = {"capture": 0.8, "faithfulness": 0.7, "relevancy": 0.3}
AT_ONCE = 80
DROP = Drop(bucket_s=1.0, healthy=6, broken=6, per_bucket=14, first=AT_ONCE)
KILLED_AFTER = 2


def test_a_fleet_scores_alike_is_led_by_one_and_tells_a_drop_once_even_when_its_leader_is_killed(tmp_path):
    script = Script()
    script.means["shop"], script.roaming = 0.95, 0.3
    server = postgres()
    shared = server.database()
    hooks, sent, stores = [Webhook(), Webhook()], [Sent(), Sent()], [f"sqlite:///{tmp_path}/store.db", shared]
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(in_thread(script))

        def fleet(number, queue, gateways, monitors):
            stack.enter_context(contextlib.closing(hooks[number]))
            values = {"url": url, "queue": queue, "store": stores[number], "hook": hooks[number].url}
            config = (CONFIG + ALERTS).format(**values, **RATES, bucket_s=DROP.bucket_s, budget=600)
            return stack.enter_context(Fleet(tmp_path / str(number), config, gateways=gateways, monitors=monitors))

        fleets = [fleet(0, f"sqlite:///{tmp_path}/queue.db", 1, 1), fleet(1, shared, 2, 3)]
        many = fleets[1]
        leaders = stack.enter_context(Leaders(server, shared, many.monitors))
        requests = [request_of(number, app="other") for number in range(AT_ONCE)]
        for one, count in zip(fleets, sent, strict=True):
            asyncio.run(send(one.ports, requests, count))
        for one, store in zip(fleets, stores, strict=True):
            one.settle(AT_ONCE, 60)
            rows = evaluated(store)
            assert one.reach(len(rows), "evaluations_total") == len(rows)
            assert one.counted("requests_total") == AT_ONCE
        first, term = leaders.holder()

        def kill(bucket):
            if bucket == KILLED_AFTER:
                many.kill(first)

        broken_at = DROP.play(fleets, sent, kill)
        for one, count, store in zip(fleets, sent, stores, strict=True):
            assert count.unharmed
            one.settle(count.count, 60)
            wait_closed(store, broken_at + DROP.broken * DROP.bucket_s)
        second, next_term = leaders.holder()
        findings = [told(store, hook, broken_at) for store, hook in zip(stores, hooks, strict=True)]
    assert (next_term, second != first) == (term + 1, True)
    assert (leaders.many, leaders.acting_many) == (0, 0)
    assert leaders.longest_without < 2.0
    assert evaluated(stores[0]) == evaluated(stores[1])
    assert [one.alerts for one in findings] == [1, 1]
    assert findings[0].same_as(findings[1]), findings
    assert not math.isinf(findings[0].evidence_log10)
