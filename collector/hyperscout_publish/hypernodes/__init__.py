"""HyperNode objects: in a cluster, in a file, and read back from a cluster."""
