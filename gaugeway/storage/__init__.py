"""Queues, stores, and the engines beneath them."""
