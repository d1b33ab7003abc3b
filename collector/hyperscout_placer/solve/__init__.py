"""Finds the best placement of one gang, or the reason why there is none. Pure."""
