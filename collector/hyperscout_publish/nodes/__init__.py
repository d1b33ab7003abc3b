"""Labels and taints on nodes, and Kueue's Topology object that names the labels."""
