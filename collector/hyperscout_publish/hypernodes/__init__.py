"""Publishes HyperNode objects to a cluster or a file, and reads them back from a cluster."""
