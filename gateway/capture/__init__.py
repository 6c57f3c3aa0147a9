"""Capture: decodes recorded exchanges and makes samples of them."""
