"""Reaching a collector or a cluster."""
