"""GPUs and NVLinks, as NVIDIA's library reports them."""
