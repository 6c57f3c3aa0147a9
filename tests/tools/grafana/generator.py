"""The generator, in spite of its library's advice to use the newer model, which older Grafanas do not read."""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
    from tools.grafana import build, panels

__all__ = ["build", "panels"]
