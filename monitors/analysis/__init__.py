"""What the stored scores say: estimates, A/B comparison, labels, coverage."""
