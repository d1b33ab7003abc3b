"""What goes to an MQTT broker (states, changes) and what comes from it (findings of devices)."""
