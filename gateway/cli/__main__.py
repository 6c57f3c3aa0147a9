"""`python -m gateway.cli`: the `gaugeway` command."""

from gateway.cli.main import main

main(prog_name="gaugeway")
