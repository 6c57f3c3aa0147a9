"""Acme's extensions of Gaugeway."""
