"""From LLDP and SNMP readings to the Ethernet part of the graph."""
