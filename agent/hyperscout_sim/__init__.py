"""Simulates fabrics: any shape, planted faults, realistic texts and frames, and the agents of all hosts."""
