"""What a process loads before it is ready: a web framework is 22 MB and a sixth of a second."""

import subprocess
import sys

import pytest

HEAVY = ("litestar", "uvicorn", "numpy", "httpx", "rich", "pydantic", "openai", "jinja2", "opentelemetry")
OTHERS = ("gateway.capture.factory", "monitors.offline", "gaugeway.cli.evaluate", "gaugeway.redaction")
"""What commands need that serve no traffic: 10 MB of the process that supervises the others."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("gaugeway.cli.main", ()),
        ("gateway.config", ()),
        ("gateway.supervisor", ()),
        ("gateway.handoff.sampler_process", ()),
        ("gateway.app", ("litestar", "uvicorn")),
        ("monitors.app", ("litestar", "uvicorn", "numpy", "rich", "jinja2")),
    ],
)
def test_a_process_loads_nothing_heavy_that_it_does_not_need(module, allowed):
    look = f"import sys, {module}; print(' '.join(one for one in {HEAVY} if one in sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) <= set(allowed)


def test_a_command_loads_no_other_command():
    look = f"import sys, gaugeway.cli.main, gateway.supervisor; print([one for one in {OTHERS} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_an_application_loads_no_plugins_that_its_routes_do_not_use():
    build = "import sys; from gateway.api.health import Readiness, traffic_app; traffic_app(Readiness())"
    look = f"{build}; print(' '.join(one for one in ('pydantic', 'attr') if one in sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
