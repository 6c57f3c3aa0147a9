"""What the views read in the background: traffic, trends, the gateways' counters."""
