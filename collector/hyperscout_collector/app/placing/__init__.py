"""Runs the placer in the collector: its inputs, its watchers, and the reservations on disk."""
