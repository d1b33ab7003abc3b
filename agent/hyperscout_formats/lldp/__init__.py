"""Readers of LLDP frames and of the output of lldpd's tools."""
