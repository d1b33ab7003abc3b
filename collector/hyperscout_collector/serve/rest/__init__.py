"""Serves REST: the operations on topology, placements and history, and the files of the map."""
