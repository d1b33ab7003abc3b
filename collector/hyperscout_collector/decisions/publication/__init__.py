"""Decides which inferred topologies are published, when, and under which generation number."""
