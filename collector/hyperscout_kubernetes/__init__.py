"""What the collector needs of a Kubernetes API server: requests, watches, a lease. It knows no topology."""
