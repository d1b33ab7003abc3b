"""Serves /metrics of the collector, with one module per subject."""
