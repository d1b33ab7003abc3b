"""Measurements between agents, as they are run."""
