"""Defines the collector's settings, and reads the files that they name."""
