"""Data that the release before this one stored, and what it read of it: `write` makes them."""
