"""Assembles the collector from its components and runs it."""
