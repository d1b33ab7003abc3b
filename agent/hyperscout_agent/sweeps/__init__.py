"""Sweeps of InfiniBand fabrics: leases, tools that run under them, and the judgement of their size."""
