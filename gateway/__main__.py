"""`python -m gateway`: the data plane alone."""

from gaugeway.cli.main import gateway

gateway(prog_name="python -m gateway")
