"""The data plane: passes traffic through untouched, captures it, and hands samples to the evaluation plane."""
