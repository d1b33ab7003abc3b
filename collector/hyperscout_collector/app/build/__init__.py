"""Builds the collector's parts, starts them in order and stops them in reverse order."""
