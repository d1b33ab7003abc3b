"""Kubernetes API client: requests, watches and leader election. Contains no topology logic."""
