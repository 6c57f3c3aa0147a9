"""A frame is read whole or not at all."""

import io

import msgspec

from gaugeway.processes.frames import framed, next_frame


def test_frames_are_read_one_after_the_other():
    read = io.BytesIO(framed({"a": 1}) + framed([])).read
    assert [msgspec.msgpack.decode(next_frame(read)) for _ in range(2)] == [{"a": 1}, []]
    assert next_frame(read) is None


def test_an_input_that_breaks_off_holds_no_frame():
    whole = framed({"a": 1})
    assert {next_frame(io.BytesIO(whole[:cut]).read) for cut in range(len(whole))} == {None}
