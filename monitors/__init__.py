"""The evaluation plane: scores samples, watches the scores, raises alerts. Works without the gateway."""
