"""Fabrics of any shape, planted faults, and what a fault leaves to be seen."""
