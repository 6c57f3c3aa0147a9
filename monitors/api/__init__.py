"""The admin port's JSON API."""
