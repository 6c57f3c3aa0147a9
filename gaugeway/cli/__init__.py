"""The `gaugeway` command and its subcommands."""
