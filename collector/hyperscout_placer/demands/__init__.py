"""What pods and roles demand of nodes: node selectors, node affinity, tolerations."""
