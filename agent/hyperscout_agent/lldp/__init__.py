"""LLDP frames: a listener with raw sockets, and a process that dissects them."""
