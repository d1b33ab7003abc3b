"""States of HyperNodes and changes, sent to an MQTT broker."""
