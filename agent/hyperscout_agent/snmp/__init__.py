"""SNMP v2c and v3 walks of switches, and the crawl from one switch to the next."""
