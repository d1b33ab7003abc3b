"""Publishes the NICs of nodes as devices of Kubernetes (DRA), and taints single devices."""
