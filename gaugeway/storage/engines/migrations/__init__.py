"""The SQL scripts that `gaugeway.storage.engines.migrate` applies, in the order of their names."""
