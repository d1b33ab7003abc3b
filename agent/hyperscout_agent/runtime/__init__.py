"""What the agent needs of the machine: threads, subprocesses, ports, secrets, the health page."""
