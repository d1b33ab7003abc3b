"""Moves workers of gangs that are placed: after a loss, and against fragmentation. Pure."""
