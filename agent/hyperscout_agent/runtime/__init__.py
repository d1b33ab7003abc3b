"""The agent's access to the host: threads, subprocesses, ports, secrets, the health page."""
