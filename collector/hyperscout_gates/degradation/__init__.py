"""Moves running gangs away from degraded links."""
