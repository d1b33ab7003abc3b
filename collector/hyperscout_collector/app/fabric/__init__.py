"""Follows sweep leases, seeds, link counters, the blueprint file and the Kubernetes cluster."""
