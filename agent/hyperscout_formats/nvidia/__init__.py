"""Readers of nvidia-smi and nccl-tests, and the meaning of NVML values."""
