"""Walks of switches by SNMP v2c and v3, and the crawl from one to the next."""
