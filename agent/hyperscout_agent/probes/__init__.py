"""The agent's probes, one file each. A probe reports observations and draws no conclusions."""
