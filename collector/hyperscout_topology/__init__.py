"""The topology as a value: its tables, names, differences, events, and its forms as proto and JSON. Pure."""
