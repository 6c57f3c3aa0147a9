"""`python -m monitors`: the evaluation plane alone."""

from monitors.cli.main import monitors

monitors(prog_name="python -m monitors")
