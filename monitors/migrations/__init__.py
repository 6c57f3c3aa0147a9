"""The SQL scripts that `monitors.migrating` applies, in the order of their names."""
