"""Infer tiers from latency: measured pairs in; domains, tiers and the next pairs to measure out. Pure."""
