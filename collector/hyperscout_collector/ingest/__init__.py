"""Receives findings from agents and devices: streams, MQTT messages, and the checks of both."""
