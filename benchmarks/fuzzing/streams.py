"""Event streams: split, folded into a body, read as an answer, and with the usage taken out.

Beyond "never raises": splitting gives what a reader gives that takes the stream in pieces, wherever they are cut; what
a prefix holds is the beginning of what the whole holds; hiding the usage changes no other byte, wherever it is cut.
An input is two bytes (where to cut, which route), then the stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fuzzing.finding import expect
from gateway.http import sse
from gateway.http.sse_events import Events
from gateway.proxy.stream_usage import HideUsage
from gaugeway.exchange import GENERATION_ROUTES, Response
from gaugeway.prompts import response_text as answers

ROUTES = sorted(GENERATION_ROUTES)
WORDS = [
    b"data: ",
    b"data:",
    b"event: message_start\n",
    b": ping\n",
    b"id: 1\n",
    b"\n\n",
    b"\r\n\r\n",
    b"\r\r",
    b"\r",
    b"[DONE]",
    b'{"choices":[',
    b'{"index":0,',
    b'"delta":{"content":"a"}}',
    b'"finish_reason":"stop"',
    b'"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]',
    b'"usage":{"prompt_tokens":1}',
    b'"function_call":{"name":"f"}',
    b'"type":"response.completed","response":{',
    b'"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"x"',
    b'"type":"response.output_item.done","item":{"type":"message"}',
    b'"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}',
    b'"type":"content_block_delta","delta":{"text":"x"}',
    b'"type":"message_delta","delta":{"stop_reason":"end_turn"}',
    b'"error":{}',
    b"null",
    b"1e999",
    b"\xff",
    b"\xef\xbb\xbf",
]
SEEDS = [
    (
        b'\x05\x00data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\ndata: [DONE]\n\n'
    ),
    (
        b'\x11\x00data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"a","function":{"name":"f",'
        b'"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\r\n\r\n'
    ),
    b'\x20\x01data: {"choices":[{"text":"a","index":0}]}\r\rdata: {"error":{"message":"x"}}\n\n',
    (
        b'\x30\x02event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}'
        b"\n\n"
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}\n\n'
        b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}\n\n'
    ),
    (
        b'\x40\x03data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"x"}\n\n'
        b'data: {"type":"response.completed","response":{"id":"r","output":[{"type":"message","content":[{"type":'
        b'"output_text","text":"x"}]}]}}\n\n'
    ),
    b'\x07\x00data: {"x":' + b"[" * 2000 + b"\n\n",
    b"\x07\x00: ping\n\ndata: one\r\ndata:two\r\n\r\nretry: 5\n\ndata: cut",
]


class Piecewise:
    """The specification's state machine, fed with pieces: slow, plain, and no relative of what it is held against."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._after_cr = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        for byte in piece:
            skipped = byte == 0x0A and self._after_cr
            self._after_cr = byte == 0x0D
            if skipped:
                continue
            if byte not in b"\r\n":
                self._line.append(byte)
                continue
            line = bytes(self._line)
            self._line.clear()
            if not line and self._data:
                yield b"\n".join(self._data)
                self._data.clear()
            elif line[:5] == b"data:":
                rest = line[5:]
                self._data.append(rest[1:] if rest[:1] == b" " else rest)


def one(data: bytes) -> None:
    """What the fuzzer calls."""
    if len(data) < 3:
        return
    cut, route, stream = data[0] * len(data) // 256, ROUTES[data[1] % len(ROUTES)], data[2:]
    whole = list(Events(stream))
    reader = Piecewise()
    pieces = [*reader.feed(stream[:cut]), *reader.feed(stream[cut:])]
    expect(whole == pieces, f"split at {cut}: {pieces!r}, whole: {whole!r}")
    before = list(Events(stream[:cut]))
    expect(whole[: len(before)] == before, f"the first {cut} bytes hold {before!r}, the whole {whole!r}")
    body = sse.fold(route, stream)
    expect(isinstance(body, dict) and sse.fold(route, stream) == body, "folded twice into different bodies")
    response = answers.read(route, body, 200)
    expect(isinstance(response, Response) and isinstance(response.text, str), f"no answer: {response!r}")
    _hide(stream, cut)


def _hide(stream: bytes, cut: int) -> None:
    at_once, in_pieces = HideUsage(), HideUsage()
    passed = at_once.feed(stream) + at_once.flush()
    cut_up = in_pieces.feed(stream[:cut]) + in_pieces.feed(stream[cut:]) + in_pieces.flush()
    expect(passed == cut_up, f"cut at {cut} other bytes pass: {cut_up!r}, at once: {passed!r}")
    if b'"usage"' not in stream:
        expect(passed == stream, "bytes were lost although there is no usage")
