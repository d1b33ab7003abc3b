"""Publishes states of HyperNodes and changes to an MQTT broker."""
