"""Trials: sends sampled requests to a candidate, judges both answers, and compares them."""
