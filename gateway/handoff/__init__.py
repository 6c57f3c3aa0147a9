"""From the request path to the queue: buffer, sampling process, spill file."""
