"""A fabric simulator: any shape, planted faults, real texts and frames, and the agents of all its hosts."""
