"""Serves clients: gRPC, REST, the live stream and the map."""
