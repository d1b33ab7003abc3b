"""A cluster of real kubelets on one machine: each node a "machine" in namespaces of its own. Start with `cluster`."""
