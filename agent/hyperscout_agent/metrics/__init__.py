"""The agent's page of metrics."""
