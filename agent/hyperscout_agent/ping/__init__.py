"""Round trips between nodes: packets, keys, bursts, a responder and statistics."""
