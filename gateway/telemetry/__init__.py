"""The gateway's metrics and trace context."""
