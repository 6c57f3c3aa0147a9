"""The monitors' command and its subcommands."""
