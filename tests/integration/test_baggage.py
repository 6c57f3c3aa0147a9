"""The W3C `baggage` header at the gateway, on both of its paths."""

import httpx
import pytest

from tests.support.product import product
from tests.support.scripted_model import Model, serve

BODY = b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'
CONFIG = """
[[upstreams]]
base_url = "{url}"

[telemetry]
baggage = {kept}
"""


@pytest.mark.parametrize("chunked", [False, True])  # by callbacks, and by a task
@pytest.mark.parametrize("kept", [False, True])
def test_baggage_reaches_the_upstream_only_where_it_is_asked_for(tmp_path, chunked, kept):
    model = Model()
    with serve(model) as url:
        config = CONFIG.format(url=url, kept=str(kept).lower())
        with product(tmp_path, config, command="gateway") as running:
            for _ in range(2):  # the second time with an idle upstream connection
                httpx.post(
                    f"{running.base_url}/chat/completions",
                    headers={"baggage": "user.id=ann", "tracestate": "k=v", "content-type": "application/json"},
                    content=iter([BODY]) if chunked else BODY,
                ).raise_for_status()
    assert model.log[-1].header("baggage") == ("user.id=ann" if kept else None)
    assert model.log[-1].header("tracestate") == "k=v"
