"""The samples of recorded requests (`*.jsonl.gz`) as one hash a file, to compare by hand before and after a change.

python -m tests.golden.traffic FILE ...
python -m tests.golden.traffic --rows FILE    # every sample on its line as well
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from pathlib import Path

from tests.golden.record import fixed, plain

ROUTES = {"chat/completions": "chat_completions", "responses": "responses", "completions": "completions"}


def recorded(path):
    """The recordings of a file: an object a line with `app`, `path`, `request` and maybe the answer."""
    from tests.golden.samples import captured, responded

    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            said = json.loads(line)
            route = ROUTES[said["path"].removeprefix("/v1/")]
            response = said.get("response") or said.get("response_raw")
            made = captured(number, said["app"], said["request"], response or responded(route), route)
            if isinstance(response, str):
                made.chunks = [response.encode()]
                if response.lstrip().startswith(("data:", "event:")):
                    made.response_headers = [(b"content-type", b"text/event-stream")]
            yield made


def main(arguments):
    fixed()
    from tests.golden.samples import row, samples

    for path in map(Path, [name for name in arguments if name != "--rows"]):
        rows = [json.dumps(plain(row(sample)), sort_keys=True) for sample in samples(recorded(path))]
        digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()
        shown = [*(rows if "--rows" in arguments else ()), f"{digest}  {path.name}, {len(rows)} samples"]
        sys.stdout.write("\n".join(shown) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
