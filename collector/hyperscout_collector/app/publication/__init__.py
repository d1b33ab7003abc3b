"""Publishes inferred topologies as generations, saves them, and finds those of an earlier process."""
