"""Agents of simulated hosts, which stream findings to a collector."""
