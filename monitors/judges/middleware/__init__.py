"""What stands between a metric and the judge's endpoint: retries, breaker, cache, deadline."""
