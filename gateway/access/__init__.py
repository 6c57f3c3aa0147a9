"""Who may send what: API keys, limits, prices and what was spent."""
