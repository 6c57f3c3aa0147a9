import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.account import OverLimit
from gateway.access.concurrency import ConcurrencyLimiter
from gateway.access.gate import Gate, Holder, limits_of, needs_gate
from gateway.access.keys import Keyring
from gateway.access.token_bucket import SharedBucket, TokenBucket
from gateway.config import AppLimits, Keys, Limits
from gateway.http.errors import Rejection
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.keys import Quota, VirtualKey, digest
from tests.support.clock import Clock

NOON = 20_000 * 86400 + 43200.0


class Bench:
    """A gate whose time is set by hand."""

    def __init__(self, limits=None, *, keys=None, **gate):
        self.clock = Clock(NOON)
        self.gate = Gate(limits or Limits(), needs_key=keys is not None, clock=self.clock, wall=self.clock, **gate)
        if keys is not None:
            self.gate.use_keys(Keyring(keys))

    async def ask(self, app="shop", key=None, model="gpt-4o", **more):
        headers = [(b"accept", b"*/*")] + ([(b"api-key", key)] if key else [])
        return await self.gate.admit(headers, model, app, **more)

    async def refused(self, **request):
        with pytest.raises(OverLimit) as caught:
            await self.ask(**request)
        return caught.value

    async def admitted(self, tries, **request):
        count = 0
        for _ in range(tries):
            try:
                (await self.ask(**request)).release()
            except OverLimit:
                continue
            count += 1
        return count


def key(name, app="shop", **fields):
    return VirtualKey(id=name, digest=digest(b"gw-" + name.encode()), app=app, created_at=0.0, **fields)


rates = st.floats(0.01, 1e5)
pauses = st.lists(st.floats(0, 30), max_size=150)


@given(rates, rates, pauses)
def test_a_bucket_never_gives_more_than_its_burst_and_what_filled_in_meanwhile(per_min, burst, pauses):
    bucket, now, given_out = TokenBucket(per_min, burst, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        while bucket.wait_s(now) == 0 and given_out < 10_000:
            bucket.take(1.0, now)
            given_out += 1
        assert given_out <= burst + per_min / 60 * now + 1e-6


@given(rates, st.floats(1, 1e5), st.floats(0, 1e6))
def test_after_the_time_it_names_a_bucket_has_one_again(per_min, burst, taken):
    bucket = TokenBucket(per_min, burst, 0.0)
    bucket.take(taken, 0.0)
    wait_s = bucket.wait_s(0.0)
    if wait_s > 1e-6:
        assert bucket.wait_s(wait_s * 0.99) > 0
    assert bucket.wait_s(wait_s) <= wait_s * 1e-9


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 500)), min_size=1))
def test_tokens_charged_afterwards_exceed_the_rate_by_no_more_than_the_last_charge(charges):
    bucket, now, charged, last = TokenBucket(600, 600, 0.0), 0.0, 0.0, 0.0
    for pause, tokens in charges:
        now += pause
        if bucket.wait_s(now) == 0:
            bucket.take(tokens, now)
            charged, last = charged + tokens, tokens
        assert charged <= 600 + 10 * now + last + 1e-6


def test_a_clock_that_goes_back_gives_nothing_away():
    bucket = TokenBucket(60, 1, 100.0)
    bucket.take(1, 100.0)
    assert bucket.wait_s(50.0) == pytest.approx(1.0)
    assert bucket.wait_s(100.5) == pytest.approx(0.5)


def test_requests_per_minute_are_refused_with_the_time_to_come_again():
    async def scenario():
        bench = Bench(Limits(requests_per_min=6))
        assert await bench.admitted(10) == 6
        bench.clock.now += 3
        refusal = await bench.refused()
        assert (refusal.status, refusal.code, refusal.type) == (429, "rate_limit_exceeded", "requests")
        assert dict(refusal.headers) == {b"retry-after": b"7", b"retry-after-ms": b"7000"}
        bench.clock.now += 7
        assert await bench.admitted(3) == 1

    asyncio.run(scenario())


def test_a_refusal_tells_the_limit_of_the_caller_and_when_to_come_again():
    async def scenario():
        own = Quota(requests_per_min=2)
        limits = Limits(requests_per_min=500, apps={"other": AppLimits(requests_per_min=77)})
        bench = Bench(limits, keys=[key("key_x", quota=own), key("key_y")])
        assert await bench.admitted(2, key=b"gw-key_x") == 2
        refusal = await bench.refused(key=b"gw-key_x")
        assert refusal.message == "Rate limit for key key_x exceeded: 2 requests per minute. Retry in 30 s."
        bench = Bench(Limits(tokens_per_min=1_000_000, usd_per_day=5.5), workers=4)
        permit = await bench.ask()
        bench.gate.charge(permit, 2_000_000, None, None)
        refusal = await bench.refused()
        assert refusal.message == "Rate limit for app shop exceeded: 1,000,000 tokens per minute. Retry in 421 s."
        bench.clock.now += 600
        bench.gate.charge(permit, None, None, 6.0)
        message = (await bench.refused()).message
        assert message == "The budget of app shop for today is spent: 5.5 USD per day. It resets at 00:00 UTC."

    asyncio.run(scenario())


@pytest.mark.parametrize(("queue_s", "waited"), [(0.02, "; waited 0.02 s"), (0, "")])
def test_a_refusal_tells_the_concurrency_limit_and_how_long_it_waited(queue_s, waited):
    async def scenario():
        bench = Bench(Limits(max_concurrency=4, queue_s=queue_s), workers=4)
        await bench.ask("a")
        assert (await bench.refused(app="a")).message == f"Concurrency limit of app a reached (4){waited}."

    asyncio.run(scenario())


def test_apps_that_share_an_account_are_told_the_limit_of_such_apps():
    async def scenario():
        bench = Bench(Limits(requests_per_min=1, apps={"named": AppLimits(requests_per_min=9)}), max_apps=1)
        assert await bench.admitted(1, app="one") == 1
        assert await bench.admitted(1, app="two") == 1
        assert "Rate limit for other apps exceeded: 1 request per minute." in (await bench.refused(app="three")).message

    asyncio.run(scenario())


def test_tokens_are_charged_afterwards_and_a_debt_is_waited_out():
    async def scenario():
        bench = Bench(Limits(tokens_per_min=60))
        permit = await bench.ask()
        bench.gate.charge(permit, 100, 20, None)
        refusal = await bench.refused()
        assert refusal.type == "tokens"
        assert refusal.wait_s == pytest.approx(61)
        bench.clock.now += 61.1
        await bench.ask()

    asyncio.run(scenario())


def test_a_spent_budget_is_refused_until_midnight_utc_and_not_to_be_retried():
    async def scenario():
        bench = Bench(Limits(usd_per_day=1.0))
        bench.gate.charge(await bench.ask(), 1, 1, 0.99)
        bench.gate.charge(await bench.ask(), 1, 1, 0.5)
        refusal = await bench.refused()
        assert refusal.type == "insufficient_quota"
        assert dict(refusal.headers)[b"retry-after"] == b"43200"
        assert dict(refusal.headers)[b"x-should-retry"] == b"false"
        bench.clock.now += 43200
        await bench.ask()

    asyncio.run(scenario())


def test_apps_do_not_share_and_their_own_table_beats_the_defaults_key_by_key():
    async def scenario():
        own = AppLimits(requests_per_min=2, usd_per_day=float("inf"))
        limits = Limits(requests_per_min=5, usd_per_day=9.0, apps={"small": own, "free": AppLimits(queue_s=1)})
        bench = Bench(limits)
        assert await bench.admitted(9, app="small") == 2
        assert await bench.admitted(9, app="shop") == 5
        assert await bench.admitted(9, app="free") == 5
        assert await bench.admitted(9, app=None) == 5
        assert limits_of(limits, "small") == AppLimits(requests_per_min=2, usd_per_day=float("inf"), queue_s=10.0)

    asyncio.run(scenario())


def test_an_infinite_limit_is_none():
    async def scenario():
        bench = Bench(Limits(requests_per_min=1, apps={"shop": AppLimits(requests_per_min=float("inf"))}))
        assert await bench.admitted(50) == 50

    asyncio.run(scenario())


def test_a_key_has_its_own_limits_beside_those_of_its_app():
    async def scenario():
        keys = [key("a", quota=Quota(requests_per_min=2)), key("b"), key("c", app="other")]
        bench = Bench(Limits(requests_per_min=5), keys=keys)
        assert await bench.admitted(9, key=b"gw-a") == 2
        assert await bench.admitted(9, key=b"gw-b") == 3
        assert await bench.admitted(9, key=b"gw-c") == 5

    asyncio.run(scenario())


def test_what_the_app_refuses_the_key_does_not_pay_for():
    async def scenario():
        bench = Bench(Limits(requests_per_min=1), keys=[key("a", quota=Quota(requests_per_min=3))])
        assert await bench.admitted(20, key=b"gw-a") == 1
        bench.gate.use(Limits())
        assert await bench.admitted(20, key=b"gw-a") == 2

    asyncio.run(scenario())


def test_the_key_s_app_beats_what_the_client_says_and_its_secret_goes_no_further():
    async def scenario():
        bench = Bench(keys=[key("a")])
        permit = await bench.ask(app="pretended", key=b"gw-a")
        assert permit.holder == Holder("a", "shop")
        assert (permit.app, permit.key_id) == ("shop", "a")
        assert permit.headers == [(b"accept", b"*/*")]

    asyncio.run(scenario())


def test_without_keys_the_headers_stay_and_credentials_are_nobody_s_business():
    async def scenario():
        permit = await Bench(Limits(requests_per_min=1)).ask(key=b"sk-own")
        assert permit.headers == [(b"accept", b"*/*"), (b"api-key", b"sk-own")]
        assert permit.key_id is None

    asyncio.run(scenario())


def test_a_key_for_certain_models_may_read_without_naming_one():
    async def scenario():
        bench = Bench(keys=[key("a", models=("gpt-*",))])
        await bench.ask(key=b"gw-a", model="gpt-4o")
        await bench.ask(key=b"gw-a", model=None, reading=True)
        for model in ("o3", None):
            with pytest.raises(Rejection) as caught:
                await bench.ask(key=b"gw-a", model=model)
            assert caught.value.code == "model_not_allowed"

    asyncio.run(scenario())


def test_a_stranger_is_turned_away_by_the_headers_alone():
    gate = Bench(keys=[key("a")]).gate
    assert gate.identify([(b"api-key", b"gw-a")]).id == "a"
    with pytest.raises(Rejection):
        gate.identify([])
    assert Bench().gate.identify([]) is None


def test_a_refused_key_costs_its_app_nothing():
    async def scenario():
        bench = Bench(Limits(requests_per_min=1), keys=[key("a", models=("gpt-*",))])
        for _ in range(3):
            with pytest.raises(Rejection):
                await bench.ask(key=b"gw-a", model="o3")
        await bench.ask(key=b"gw-a")

    asyncio.run(scenario())


def test_every_worker_gives_its_share_and_at_least_one():
    async def scenario():
        for limit, workers, share in ((60, 4, 15), (2, 4, 1)):
            bench = Bench(Limits(requests_per_min=limit), workers=workers)
            assert await bench.admitted(100) == share
            bench.clock.now += 60
            assert await bench.admitted(100) == min(share, max(limit // workers, 0))

    asyncio.run(scenario())


def test_beyond_the_concurrency_requests_wait_and_come_in_by_turns():
    async def scenario():
        bench = Bench(Limits(max_concurrency=2, queue_s=5))
        first, second = await bench.ask(), await bench.ask()
        order = []

        async def one(number):
            permit = await bench.ask()
            order.append(number)
            return permit

        waiting = [spawn(one(number), name=str(number)) for number in range(4)]
        await asyncio.sleep(0.01)
        assert order == []
        await bench.ask(app="other")  # has a turnstile of its own
        first.release()
        first.release()
        permit = await waiting[0]
        await asyncio.sleep(0.01)
        assert order == [0]
        second.release()
        permit.release()
        permits = [await waiting[1], await waiting[2]]
        await asyncio.sleep(0.01)
        assert order == [0, 1, 2]
        for permit in permits:
            permit.release()
        (await waiting[3]).release()
        assert order == [0, 1, 2, 3]

    asyncio.run(scenario())


def test_who_waited_too_long_is_refused_and_the_place_goes_to_the_next():
    async def scenario():
        bench = Bench(Limits(max_concurrency=1, queue_s=0.02))
        permit = await bench.ask()
        refusal = await bench.refused()
        assert refusal.type == "requests"
        assert dict(refusal.headers) == {b"retry-after": b"1", b"retry-after-ms": b"1000"}
        permit.release()
        (await bench.ask()).release()

    asyncio.run(scenario())


def test_without_a_queueing_time_nobody_waits():
    async def scenario():
        bench = Bench(Limits(max_concurrency=1, queue_s=0))
        await bench.ask()
        await bench.refused()

    asyncio.run(scenario())


def test_a_client_that_leaves_the_queue_takes_nobody_s_place():
    async def scenario():
        turnstile = ConcurrencyLimiter(1)
        assert await turnstile.enter(5)
        leaver = spawn(turnstile.enter(5), name="leaver")
        stayer = spawn(turnstile.enter(5), name="stayer")
        await asyncio.sleep(0)
        leaver.cancel()
        turnstile.leave()  # in the same moment
        assert await stayer
        late = spawn(turnstile.enter(5), name="late")
        await asyncio.sleep(0)
        turnstile.leave()
        late.cancel()  # its turn has come, but it has not heard of it
        await asyncio.wait([late])
        assert (turnstile.inside, turnstile.waiting) == (0, 0)

    asyncio.run(scenario())


class Guests:
    """Those who came to a turnstile; who is in has a task that is done."""

    def __init__(self, turnstile):
        self.turnstile = turnstile
        self.tasks = []

    async def do(self, step):
        outside = [task for task in self.tasks if not task.done()]
        inside = [task for task in self.tasks if task.done()]
        if step == "come":
            self.tasks.append(spawn(self.turnstile.enter(60), name="guest"))
        elif step == "leave" and inside:
            self.tasks.remove(inside[0])
            self.turnstile.leave()
        elif step == "cancel" and outside:
            self.tasks.remove(outside[0])
            outside[0].cancel()
        for _ in range(3):
            await asyncio.sleep(0)

    async def go_home(self):
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)


@given(st.lists(st.sampled_from(["come", "leave", "cancel", 2, 4]), max_size=60))
def test_a_turnstile_never_loses_or_invents_a_place(steps):
    async def scenario():
        limit, turnstile = 2, ConcurrencyLimiter(2)
        guests = Guests(turnstile)
        for step in steps:
            if isinstance(step, int):
                turnstile.resize(limit := step)
            await guests.do(step)
            inside = sum(task.done() for task in guests.tasks)
            assert turnstile.inside == inside <= 4
            assert turnstile.waiting == len(guests.tasks) - inside
            assert not turnstile.waiting or inside >= limit
        await guests.go_home()

    asyncio.run(scenario())


def test_who_waited_for_a_place_still_needs_what_is_left_of_the_minute():
    async def scenario():
        bench = Bench(Limits(max_concurrency=1, queue_s=5, tokens_per_min=10))
        permit = await bench.ask()
        waiting = spawn(bench.refused(), name="waiting")
        await asyncio.sleep(0.01)
        bench.gate.charge(permit, 100, 0, None)
        bench.gate.unsaved()  # settles
        permit.release()
        assert (await waiting).type == "tokens"
        bench.clock.now += 600
        await bench.ask()

    asyncio.run(scenario())


def test_charges_from_other_threads_all_arrive():
    async def scenario():
        bench = Bench(Limits(usd_per_day=1e9))

        def charge():
            for _ in range(500):
                bench.gate.charge(Holder("k", "shop"), 1, 1, 1.0)

        await asyncio.gather(*(asyncio.to_thread(charge) for _ in range(4)))
        day = int(NOON // 86400)
        assert bench.gate.unsaved() == {(day, "app:shop"): 2000.0, (day, "key:k"): 2000.0}

    asyncio.run(scenario())


def test_other_limits_apply_at_once_and_forget_nothing():
    async def scenario():
        bench = Bench(Limits(requests_per_min=5))
        assert await bench.admitted(4) == 4
        bench.gate.use(Limits(requests_per_min=2))
        assert await bench.admitted(4) == 1
        bench.gate.use(Limits(max_concurrency=1, queue_s=0))
        permit = await bench.ask()
        await bench.refused()
        permit.release()

    asyncio.run(scenario())


def test_apps_thought_up_by_clients_neither_fill_the_memory_nor_evade_the_limit():
    async def scenario():
        bench = Bench(Limits(requests_per_min=1, apps={"named": AppLimits()}), max_apps=10)
        assert await bench.admitted(1, app="named") == 1
        assert sum([await bench.admitted(1, app=f"app-{number}") for number in range(100)]) == 10
        bench.clock.now += 120
        # those that are idle make room for as many others
        assert sum([await bench.admitted(1, app=f"later-{number}") for number in range(100)]) == 11

    asyncio.run(scenario())


def test_keys_that_are_gone_leave_nothing_behind():
    async def scenario():
        both = [key(name, quota=Quota(requests_per_min=1)) for name in "ab"]
        bench = Bench(keys=both)
        await bench.ask(key=b"gw-a")
        await bench.ask(key=b"gw-b")
        bench.gate.use_keys(Keyring(both[1:]))
        bench.gate.use_keys(Keyring(both))
        await bench.ask(key=b"gw-a")  # as if it were new
        await bench.refused(key=b"gw-b")

    asyncio.run(scenario())


def test_a_gate_is_needed_only_where_there_is_a_limit():
    assert not needs_gate(Keys(), Limits())
    assert not needs_gate(Keys(), Limits(queue_s=3, apps={"shop": AppLimits(queue_s=1)}))
    assert needs_gate(Keys(), Limits(max_concurrency=1))
    assert needs_gate(Keys(), Limits(apps={"shop": AppLimits(usd_per_day=1)}))


@given(
    st.floats(1, 1e7),
    st.integers(1, 4),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**9)), max_size=5),
)
def test_hidden_tokens_leave_an_hour_of_debt_at_most_and_visible_ones_are_taken_whole(
    rate, processes, together, charges
):
    bucket = SharedBucket(rate, 0.0, processes=processes, together=together)
    floor = -60 * (rate if together else rate / processes)
    for visible, hidden in charges:
        before = bucket.level(0.0)
        whole = bucket.take_reported(visible + hidden, hidden, 0.0)
        taken = before - bucket.level(0.0)
        if whole:
            assert taken == pytest.approx(visible + hidden, abs=1e-3)
        else:
            assert visible - 1e-3 <= taken < visible + hidden
            assert bucket.level(0.0) == pytest.approx(min(before - visible, floor), rel=1e-6)
