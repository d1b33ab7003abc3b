"""Runs the placer in the collector: its reservations, the free resources and the watchers."""
