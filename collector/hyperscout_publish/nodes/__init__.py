"""Publishes labels, taints and conditions of nodes, and Kueue's Topology object, which names the labels."""
