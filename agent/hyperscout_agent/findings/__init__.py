"""What a probe is, when probes run, and the store of what they found."""
