"""SNMP messages, rows of SNMP walks, and the tables of a switch."""
