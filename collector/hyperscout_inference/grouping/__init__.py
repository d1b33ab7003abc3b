"""Levels of switches, groups of children under shared parents, and tiers of domains."""
