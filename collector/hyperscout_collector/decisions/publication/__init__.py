"""Which inferred topologies are published, when, and under which number."""
