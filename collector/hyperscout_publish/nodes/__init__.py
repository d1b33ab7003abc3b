"""Publishes labels and taints of nodes, and Kueue's Topology object, which names the labels."""
