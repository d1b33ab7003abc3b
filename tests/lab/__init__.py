"""A cluster of real kubelets on one machine, each node in namespaces of its own. Start with `cluster`."""
