"""SNMP messages, rows of walks, and the tables of a switch."""
