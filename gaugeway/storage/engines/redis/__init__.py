"""The queue, the limits and the connection in Redis."""
