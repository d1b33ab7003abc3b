"""Serves the live stream of server-sent events."""
