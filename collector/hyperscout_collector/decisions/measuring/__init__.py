"""Decides which pairs of nodes measure each other, when, and within which limits."""
