"""Values of the placer that help texts name: the placer itself imports NumPy, which takes time."""

MAX_WORKERS = 1_000_000
GPUS = "nvidia.com/gpu"
