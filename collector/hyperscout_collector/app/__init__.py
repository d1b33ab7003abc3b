"""Assembles the collector from its parts and runs it."""
