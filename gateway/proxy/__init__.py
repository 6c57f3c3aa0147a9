"""The request path: handler, response, cache, WebSocket."""
