"""Readers of the API responses of UFM, NMX and NetQ."""
