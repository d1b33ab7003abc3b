"""Defines the collector's settings and converts them into the settings of its parts."""
