"""GPUs and NVLinks as NVIDIA's management library (NVML) reports them, and the PCI tree."""
