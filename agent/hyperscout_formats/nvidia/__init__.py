"""nvidia-smi, NVML values and nccl-tests."""
