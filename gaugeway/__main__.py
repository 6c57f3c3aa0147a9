"""`python -m gaugeway.cli`: the `gaugeway` command."""

from gaugeway.cli.main import main

main(prog_name="gaugeway")
