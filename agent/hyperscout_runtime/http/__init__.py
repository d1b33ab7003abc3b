"""Plain HTTP for health probes and metrics, and bounds of connections."""
