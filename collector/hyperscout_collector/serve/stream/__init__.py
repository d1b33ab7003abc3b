"""The live stream of server-sent events."""
