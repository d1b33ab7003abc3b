"""Publishes HyperNode objects to a cluster, and reads them back from a cluster."""
