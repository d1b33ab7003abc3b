"""The agent's metrics page."""
