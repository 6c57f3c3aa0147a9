"""Generates the Grafana dashboards."""
