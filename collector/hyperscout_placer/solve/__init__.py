"""Finds the best place for one gang, and the reason where there is none. Pure."""
