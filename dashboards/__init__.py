"""Grafana dashboards, Prometheus rules and Alertmanager routes for the series of both planes, as files."""

from importlib.resources import files


def runbooks() -> dict[str, str]:
    """Return the runbooks in Markdown, by the name of the alert of the Prometheus rules, sorted."""
    pages = [entry for entry in (files(__name__) / "runbooks").iterdir() if entry.name.startswith("Gaugeway")]
    return {page.name.removesuffix(".md"): page.read_text("utf-8") for page in sorted(pages, key=lambda one: one.name)}
