"""NCCL runs between two nodes, by a library or by nccl-tests."""
