"""Alerting: rules, streams, detectors, causes, delivery to notifiers."""
