"""Infers topologies from evidence and publishes them as generations."""
