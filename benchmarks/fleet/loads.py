"""What a soak sends: small exchanges that a judge scores, or large ones that are scored without a judge."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scaling"))

from answering import bodies, request
from stands import process, upstream

from tests.support.fleet import CONFIG
from tests.support.traffic import request_of

UNJUDGED = """
[[upstreams]]
base_url = "{url}/v1"

[queue]
url = "{queue}"
target_age_s = inf

[store]
url = "{store}"
"""
DISTINCT, STREAMED_ONE_IN = 4000, 4


@dataclass(frozen=True, kw_only=True)
class Load:
    """The requests by number, the URL of the model (and judge), the configuration, and what to call it."""

    url: str
    config: str
    request: Callable[[int], bytes]
    said: str


@contextlib.contextmanager
def load(*, judged: bool) -> Iterator[Load]:
    """Run the model of a load.

    Without a judge an exchange has 8 KB of passages and an answer of 300 words; one answer in four is streamed.
    """
    if judged:
        config = CONFIG.replace("{capture}", "1.0").replace("{faithfulness}", "1.0").replace("{relevancy}", "0.0")
        with upstream(0.0) as url:
            yield Load(url=url, config=config, request=request_of, said="captured and judged")
        return
    made = [request(body) for body in bodies(DISTINCT)]
    streams, plain = made[::2], made[1::2]

    def of(number: int) -> bytes:
        return (plain if number % STREAMED_ONE_IN else streams)[number * 7 % len(plain)]

    said = "captured (8 KB of passages, 300 words) and scored without a judge"
    with process(Path(__file__).parents[1] / "scaling" / "answering.py") as url:
        yield Load(url=url, config=UNJUDGED, request=of, said=said)
