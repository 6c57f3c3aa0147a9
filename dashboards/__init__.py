"""Grafana dashboards, Prometheus rules and Alertmanager routes for the series of both planes, as files."""
