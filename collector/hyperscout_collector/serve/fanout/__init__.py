"""Sends generations to the readers of gRPC and REST."""
