"""Infers topologies from the evidence, the Kubernetes cluster and the blueprint, and handles failures."""
