"""Tiers from latency (pure): pairs that were measured in; domains, tiers and what to measure next out."""
