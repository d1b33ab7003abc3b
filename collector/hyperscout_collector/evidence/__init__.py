"""What all agents saw, newest per (node, probe, subject), with its age; kept across restarts."""
