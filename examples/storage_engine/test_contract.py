"""The engine keeps what every engine promises."""

import pytest

from gaugeway.storage.contract import DocumentsContract, QueueContract, StoreContract


@pytest.fixture
def url(tmp_path):
    return f"memory://{tmp_path}"


class TestStore(StoreContract):
    pass


class TestQueue(QueueContract):
    pass


class TestDocuments(DocumentsContract):
    pass
