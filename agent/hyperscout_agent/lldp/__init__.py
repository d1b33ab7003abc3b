"""LLDP frames: a listener with raw sockets, and a separate process that dissects the frames."""
