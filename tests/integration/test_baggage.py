"""The W3C `baggage` header at the gateway, on both of its paths."""

import httpx
import pytest

from gateway.demo.model import Model, serve
from tests.support.product import product

CONFIG = """
[gateway]
http_path = "{path}"

[[upstreams]]
base_url = "{url}"

[telemetry]
baggage = {kept}
"""


@pytest.mark.parametrize("path", ["asgi", "protocol"])
@pytest.mark.parametrize("kept", [False, True])
def test_baggage_reaches_the_upstream_only_where_it_is_asked_for(tmp_path, path, kept):
    model = Model()
    with serve(model) as url:
        config = CONFIG.format(path=path, url=url, kept=str(kept).lower())
        with product(tmp_path, config, command="gateway") as running:
            httpx.post(
                f"{running.base_url}/chat/completions",
                headers={"baggage": "user.id=ann", "tracestate": "k=v"},
                json={"model": "m", "messages": [{"role": "user", "content": "Hello"}]},
            ).raise_for_status()
    assert model.log[-1].header("baggage") == ("user.id=ann" if kept else None)
    assert model.log[-1].header("tracestate") == "k=v"
