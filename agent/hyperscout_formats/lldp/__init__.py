"""LLDP frames, and what lldpd's tools print."""
