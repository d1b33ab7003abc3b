"""Builds the parts in order, starts them and ends them."""
