"""The SQL scripts that `monitors.storage.engines.migrate` applies, in the order of their names."""
