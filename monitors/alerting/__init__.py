"""From scores to notifications: rules, streams, detectors, causes, delivery."""
