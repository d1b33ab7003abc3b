"""The content of the agent's HTTP pages /metrics and /findings."""
