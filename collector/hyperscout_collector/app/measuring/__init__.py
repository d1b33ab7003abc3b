"""Runs latency and NCCL measurements between agents."""
