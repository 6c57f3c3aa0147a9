"""A judge and embeddings on loopback, and a configuration that names them."""

import pytest

from tests.support.rules_server import rules_server


@pytest.fixture
def llm():
    with rules_server() as one:
        yield one


@pytest.fixture
def config(llm, tmp_path):
    path = tmp_path / "gaugeway.toml"
    path.write_text(
        f"""
        [judge]
        base_url = "{llm.url}"
        model = "stub"
        price_in = 1.0
        price_out = 10.0
        [embeddings]
        base_url = "{llm.url}"
        model = "vectors"
        """
    )
    return path
