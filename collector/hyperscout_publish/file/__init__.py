"""Publishes HyperNodes as YAML in a file or on standard output."""
