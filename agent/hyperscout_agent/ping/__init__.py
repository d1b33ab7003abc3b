"""Measures round trips between nodes: packets, keys, bursts, a responder and statistics."""
