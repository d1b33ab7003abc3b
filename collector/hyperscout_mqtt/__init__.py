"""MQTT client: publishes states and changes to a broker, and receives findings from devices."""
