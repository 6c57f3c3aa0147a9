"""Answers on the way to another answer: what a later request of the app shows of them."""
