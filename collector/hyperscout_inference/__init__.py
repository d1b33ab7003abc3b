"""From evidence to a topology: one graph, its levels and domains, and what does not fit. Pure."""
