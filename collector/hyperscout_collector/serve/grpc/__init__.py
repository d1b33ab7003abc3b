"""What readers of the picture ask: TopologyService, and its values on the wire."""
