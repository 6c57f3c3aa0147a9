"""The store in ClickHouse."""
