"""`python -m gateway`: the data plane alone."""

from gateway.cli import gateway

gateway(prog_name="python -m gateway")
