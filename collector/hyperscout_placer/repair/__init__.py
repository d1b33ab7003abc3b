"""Moves workers of placed gangs, after a loss of nodes or to reduce fragmentation. Pure."""
