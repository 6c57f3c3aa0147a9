"""The contract that is shipped for engines of others holds for our own, and for the engine of the examples."""

import pytest

from gaugeway import extensions
from gaugeway.storage import engine
from gaugeway.storage.contract import DocumentsContract, QueueContract, StoreContract
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres
from tests.support.redis import redis_server

KEEPS = {
    "sqlite": {"templates", "datasets"},
    "postgresql": {"keys", "limits", "templates", "datasets"},
    "clickhouse": {"templates", "datasets"},
    "redis": {"limits"},
    "memory": {"keys", "limits", "templates", "datasets"},
}


def url_of(name, tmp_path):
    servers = {"postgresql": postgres, "clickhouse": clickhouse}
    if name in servers:
        return servers[name]().database()
    return redis_server().url() if name == "redis" else f"{name}:///{tmp_path}/some.db"


@pytest.fixture
def url(request, tmp_path, monkeypatch):
    known = {**extensions.registered("engines"), "memory": "gaugeway_memory:ENGINE"}
    monkeypatch.setattr(engine, "registered", lambda _: known)
    return url_of(request.param, tmp_path)


@pytest.mark.parametrize("url", ["sqlite", "postgresql", "clickhouse", "memory"], indirect=True)
class TestStore(StoreContract):
    pass


@pytest.mark.parametrize("url", ["sqlite", "postgresql", "redis", "memory"], indirect=True)
class TestQueue(QueueContract):
    pass


@pytest.mark.parametrize("url", KEEPS, indirect=True)
class TestDocuments(DocumentsContract):
    @pytest.fixture(autouse=True)
    def _only_what_it_keeps(self, url):
        self.keeps = KEEPS[url.partition("://")[0]]
