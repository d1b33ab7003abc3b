"""Build the Ethernet part of the graph from LLDP and SNMP readings."""
