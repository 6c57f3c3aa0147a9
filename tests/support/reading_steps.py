"""Prints, as JSON, the steps that regular expressions take to read prompts made of `sys.argv[1]`, a JSON list of units.

A process of its own: patterns count that are compiled after `counting`. Of each unit: the steps per character of a
prompt of 500 characters and of one twice as long.
"""

from __future__ import annotations

import json
import sys
import threading

from tests.support.regex_steps import Steps, counting

SIZES = (700, 1_400)
ROLES = ("user", "system", "tool")


def main() -> None:
    """Read every prompt, in each role."""
    counting()
    from gateway.capture.factory import extractors_of
    from gateway.config import Capture
    from gaugeway.exchange import Request, Response
    from gaugeway.prompts import trace

    extractors, nothing = extractors_of(Capture()), Response(status=200, body={})
    found = {}
    for unit in json.loads(sys.argv[1]):
        found[unit] = []
        for size in SIZES:
            before = Steps.total
            for role in ROLES:
                text = "Use the following context:\n<context>answer\n" + unit * (size // len(unit)) + "x"
                messages = [{"role": role, "content": text}, {"role": "user", "content": "q"}][: 1 + (role != "user")]
                trace(Request(route="chat_completions", headers={}, body={"messages": messages}), nothing, extractors)
            found[unit].append((Steps.total - before) / size)
    print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    sys.setrecursionlimit(1_000_000)
    threading.stack_size(512 * 2**20)  # a group that repeats takes a few frames each time
    reader = threading.Thread(target=main)
    reader.start()
    reader.join()
