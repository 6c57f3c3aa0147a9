"""The tables of the SQLite files, and how older files come to have them."""

from __future__ import annotations

from gaugeway.storage.engines.scripts import migrations
from gaugeway.storage.engines.sqlite.connection import Schema

STORE = Schema(
    kind="store",
    application_id=0x67777374,  # "gwst"
    migrations=migrations("sqlite/migrations/store"),
)
QUEUE = Schema(
    kind="queue",
    application_id=0x67777175,  # "gwqu"
    migrations=migrations("sqlite/migrations/queue"),
)
KEYS = Schema(
    kind="key file",
    application_id=0x67776B79,  # "gwky"
    migrations=migrations("sqlite/migrations/keys"),
)
TEMPLATES = Schema(
    kind="template file",
    application_id=0x6777746D,  # "gwtm"
    migrations=migrations("sqlite/migrations/templates"),
)
