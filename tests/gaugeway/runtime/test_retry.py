"""The buffer that repeats what could not be sent: its bounds, its order, what it drops, and how it closes."""

import asyncio

from gaugeway.runtime.retry import Backoff, Capacity, RetryBuffer, Sink


class Receiver(Sink):
    """Accepts items, refuses those below zero, and is down for the next `down` attempts."""

    def __init__(self, down=0):
        self.down = down
        self.batches, self.counted, self.lost, self.failures = [], [], [], 0
        self.attempted = asyncio.Event()

    async def send(self, items):
        self.attempted.set()
        if self.down:
            self.down -= 1
            raise OSError("gone")
        if any(item < 0 for item in items):
            raise ValueError("below zero")
        self.batches.append(list(items))

    def refuses(self, error):
        return isinstance(error, ValueError)

    def sent(self, item):
        self.counted.append(item)

    def dropped(self, item, error):
        self.lost.append((item, type(error)))

    def failed(self, count, error):
        self.failures += 1


def buffer(receiver, *, capacity=None, backoff=None, batch=3, **options):
    capacity = capacity or Capacity(1000, 1000)
    return RetryBuffer("test", receiver, capacity, backoff or Backoff(0.001, 0.001), batch=batch, **options)


async def test_items_arrive_in_order_and_in_batches():
    receiver = Receiver(down=2)
    one = buffer(receiver)
    assert all(one.offer(number, 1) for number in range(7))
    one.start()
    assert await one.aclose(5.0) == 0
    assert receiver.batches == [[0, 1, 2], [3, 4, 5], [6]]
    assert receiver.counted == list(range(7))
    assert (receiver.failures, receiver.lost) == (2, [])


async def test_a_batch_is_bounded_in_bytes_and_a_large_item_goes_alone():
    receiver = Receiver()
    one = buffer(receiver, batch=4, batch_bytes=10)
    assert all(one.offer(size, size) for size in (4, 4, 4, 30, 1, 1, 1, 1, 1))
    one.start()
    assert await one.aclose(5.0) == 0
    assert receiver.batches == [[4, 4], [4], [30], [1, 1, 1, 1], [1]]


async def test_beyond_the_items_or_the_bytes_nothing_is_taken_and_room_is_freed():
    for capacity in (Capacity(2, 100), Capacity(100, 2)):
        one = buffer(Receiver(), capacity=capacity)
        assert [one.offer(number, 1) for number in range(3)] == [True, True, False]
        one.start()
        await one.aclose(5.0)
        assert (capacity.items, capacity.bytes) == (0, 0)
        assert one.offer(4, 1)


async def test_only_what_is_refused_is_dropped():
    receiver = Receiver()
    one = buffer(receiver)
    for number in (1, -1, 2, 3):
        one.offer(number, 1)
    one.start()
    await one.aclose(5.0)
    assert receiver.counted == [1, 2, 3]
    assert receiver.lost == [(-1, ValueError)]


async def test_what_is_left_at_the_end_is_dropped_and_counted():
    receiver, capacity = Receiver(down=1_000_000), Capacity(10, 10)
    one = buffer(receiver, capacity=capacity)
    one.offer(1, 1)
    one.offer(2, 1)
    one.start()
    assert await one.aclose(0.05) == 2
    assert receiver.lost == [(1, type(None)), (2, type(None))]
    assert (len(one), capacity.items) == (0, 0)


async def test_closing_ends_a_long_wait_with_one_more_attempt():
    receiver = Receiver(down=1)
    one = buffer(receiver, backoff=Backoff(3600.0, 3600.0))
    one.offer(1, 1)
    one.start()
    await receiver.attempted.wait()
    assert await one.aclose(60.0) == 0
    assert receiver.counted == [1]


def test_delays_double_up_to_the_longest_and_start_again_after_a_success():
    backoff = Backoff(0.5, 3.0)
    assert [backoff.failed() for _ in range(4)] == [0.5, 1.0, 2.0, 3.0]
    backoff.reset()
    assert backoff.failed() == 0.5
    assert [Backoff(1.0, 8.0, draw=lambda: 0.25).failed()] == [0.25]
