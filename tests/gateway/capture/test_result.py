"""Samples made in groups: the same results as one after the other, and errors stay with their exchange."""

import gzip
import json
from collections import Counter

import msgspec
import pytest

from gateway.capture import result
from gateway.capture.factory import capture_of
from gateway.config import Capture as Settings
from gaugeway.exchange import Recording
from gaugeway.records import Sample

PARTS = {"wheel": 12, "shaft": 90, "stone": 140, "sieve": 200, "hoist": 4, "chute": 1}
PASSAGES = [f"The {name} of the mill turns {times} times a minute and is greased." for name, times in PARTS.items()]
PROMPT = "You help the miller. What we know:\n\n{}\n\nThe miller asks: {}"


def capture():
    return capture_of(Settings(redact=["email"]), "key", lambda event: None)


def recording(number, body=None, answer=None, **fields):
    passages = "\n\n".join(PASSAGES[(number + at) % 6] for at in (0, 2, 3))
    body = body or {"model": "m", "messages": [{"role": "user", "content": PROMPT.format(passages, f"Why {number}?")}]}
    choice = {"index": 0, "message": {"role": "assistant", "content": answer or f"Because of {number}."}}
    response = json.dumps({"id": f"c{number}", "choices": [choice | {"finish_reason": "stop"}]}).encode()
    fields = {"status": 200, "chunks": [response]} | fields
    return Recording(
        id=f"e{number}",
        started_at=100.0 + number,
        method="POST",
        path="/v1/chat/completions",
        route="chat_completions",
        request_headers=[],
        request_body=json.dumps(body).encode() if isinstance(body, dict) else body,
        response_headers=[(b"content-type", b"application/json"), *fields.pop("headers", [])],
        **fields,
    )


def comparable(results):
    return [msgspec.structs.replace(one, read_s=0.0) for one in results]


def test_a_group_gives_what_one_after_the_other_gives():
    secret = "Write to ada.north@example.com."
    some = [recording(number, answer=secret if number % 7 == 0 else None) for number in range(80)]
    some[10] = recording(10, body=b"no JSON")
    some[20] = recording(20, chunks=[b"no JSON"])
    some[30] = some[29]
    some[40] = recording(40, status=500)
    alone = capture()
    expected = comparable([result.capture(alone, one) for one in some])
    assert comparable(result.capture_all(capture(), some)) == expected
    sources = Counter(one.sample.context_source for one in expected if one.sample is not None)
    assert sources["learned"] > 40
    assert [one.unreadable for one in expected if one.unreadable] == ["invalid_json"] * 2
    assert "example.com" not in repr(expected)


class Stepwise:
    """A capture with other steps."""

    def __init__(self, change):
        capturing = capture()
        self.read, self.make, self.session = capturing.read, capturing.make, capturing.session
        self.steps = change(list(capturing.steps))


@pytest.mark.parametrize("step", range(7))
def test_an_error_in_a_step_stays_with_its_exchange(step):
    def change(steps):
        whole = steps[step]

        def fails(draft):
            if draft.exchange.id == "e1":
                raise LookupError
            whole(draft)

        steps[step] = fails
        return steps

    first, failed, last = result.capture_all(Stepwise(change), [recording(number) for number in range(3)])
    assert isinstance(first.sample, Sample)
    assert isinstance(last.sample, Sample)
    assert (failed.sample, failed.error, failed.unreadable) == (None, "LookupError", None)
    assert failed.summary is not None
    assert failed.summary.id == "e1"


def test_few_large_exchanges_are_held_at_once():
    groups = []

    def change(steps):
        def begins(draft):
            if not groups or groups[-1][1]:
                groups.append([0, 0])
            groups[-1][0] += 1

        def ends(draft):
            groups[-1][1] += 1

        return [begins, *steps, ends]

    packed = gzip.compress(json.dumps({"choices": [], "padding": "x" * 600_000}).encode())
    large = [recording(n, chunks=[packed], headers=[(b"content-encoding", b"gzip")]) for n in range(5)]
    small = [recording(number) for number in range(result.MAX_GROUP + 1)]
    assert len(result.capture_all(Stepwise(change), large + small)) == len(large) + len(small)
    assert groups == [[2, 2], [2, 2], [result.MAX_GROUP, result.MAX_GROUP], [2, 2]]
    assert result.capture_all(capture(), []) == []
