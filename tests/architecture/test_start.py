"""What a process loads before it is ready: a web framework is 22 MB and a sixth of a second."""

import subprocess
import sys

import pytest

HEAVY = ("litestar", "uvicorn", "numpy", "httpx", "rich", "pydantic", "openai", "jinja2", "opentelemetry")


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("gateway.config", ()),
        ("gateway.supervisor", ()),
        ("gateway.handoff.sampler_process", ()),
        ("gateway.app", ("litestar", "uvicorn")),
        ("monitors.app", ("litestar", "uvicorn", "numpy", "httpx", "rich", "jinja2")),
    ],
)
def test_a_process_loads_nothing_heavy_that_it_does_not_need(module, allowed):
    look = f"import sys, {module}; print(' '.join(one for one in {HEAVY} if one in sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) <= set(allowed)


def test_an_application_loads_no_plugins_that_its_routes_do_not_use():
    build = "import sys; from gateway.api.health import Readiness, traffic_app; traffic_app(Readiness())"
    look = f"{build}; print(' '.join(one for one in ('pydantic', 'attr') if one in sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
