"""Sweep leases, seeds, link counters, the blueprint and the cluster, as they are followed."""
