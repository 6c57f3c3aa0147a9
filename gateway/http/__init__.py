"""HTTP helpers without state: headers, URLs, errors, encodings, SSE, JSON members."""
