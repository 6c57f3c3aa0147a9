"""What the sources of passages did for the answers, and which questions have no good answer."""
