"""Uneven fabrics, as they occur in practice: drawn by a seed, each with its truth and its planted faults."""
