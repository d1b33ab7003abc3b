"""Builds the collector's components in dependency order, starts them and stops them."""
