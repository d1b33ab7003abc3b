"""Runs the collector process: a single collector, or one of several replicas with a leader."""
