"""Decides which agent sweeps which fabric, and which ports have too many errors."""
