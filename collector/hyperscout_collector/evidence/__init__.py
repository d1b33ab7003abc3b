"""The newest findings of all agents per (node, probe, subject), with their age; kept across restarts."""
