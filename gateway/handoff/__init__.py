"""From the request path to the queue: capture buffer, sampler process, spill file."""
