"""Fabrics of any shape, planted faults, and the evidence that a fault leaves."""
