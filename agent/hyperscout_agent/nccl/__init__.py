"""NCCL measurements: within a node with nccl-tests, between two nodes with libnccl."""
