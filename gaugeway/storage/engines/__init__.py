"""Connections to SQLite, PostgreSQL, ClickHouse and Redis, and schema migrations."""
