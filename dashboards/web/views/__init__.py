"""One module for each view of the operator's page."""
