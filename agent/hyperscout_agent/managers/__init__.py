"""Requests to fabric managers: UFM, NMX and NetQ."""
