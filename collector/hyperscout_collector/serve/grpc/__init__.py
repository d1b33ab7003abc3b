"""Serves topology, measurements and placements over gRPC."""
