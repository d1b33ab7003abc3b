"""Settings of the agent."""
